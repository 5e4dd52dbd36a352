"""Versions of the APIs of a broker, and the choice of one for a request."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from kohort.errors import UnsupportedVersionError
from kohort.protocol import Message, VersionRange

if TYPE_CHECKING:
    from kohort.protocol.messages import ApiVersionsResponse


@functools.lru_cache(maxsize=16)
def _ranges(served: tuple[tuple[int, int, int], ...]) -> Mapping[int, VersionRange]:
    """Return the table of versions, one for all brokers with the same. It takes 2 KB."""
    return {api_key: VersionRange(first, last) for api_key, first, last in served}


class BrokerVersions:
    """Versions that one broker serves."""

    def __init__(self, peer: str, apis: Iterable[ApiVersionsResponse.ApiVersion]) -> None:
        self._peer = peer
        served = ((each.api_key, each.min_version, each.max_version) for each in apis)
        self._ranges = _ranges(tuple(served))
        self._chosen: dict[tuple[type[Message], int | None, int | None], int] = {}

    @property
    def by_api(self) -> Mapping[int, VersionRange]:
        """Versions of each API, by its key."""
        return self._ranges

    def served(self, api_key: int) -> VersionRange | None:
        """Return the versions of an API, or None if the broker does not know the API."""
        return self._ranges.get(api_key)

    def choose(
        self,
        message: type[Message],
        min_version: int | None = None,
        max_version: int | None = None,
    ) -> int:
        """Return the highest version that both sides know. Raises UnsupportedVersionError."""
        asked = message, min_version, max_version
        version = self._chosen.get(asked)
        if version is None:
            version = self._chosen[asked] = self._choose(*asked)
        return version

    def _choose(
        self, message: type[Message], min_version: int | None, max_version: int | None
    ) -> int:
        first, last = message.versions
        first = first if min_version is None else max(first, min_version)
        last = last if max_version is None else min(last, max_version)
        served = self._ranges.get(message.api_key)
        if served is not None:
            version = min(last, served.last)
            if version >= max(first, served.first):
                return version
        name = message.__name__.removesuffix("Request")
        serves = "does not serve it" if served is None else f"serves versions {served}"
        raise UnsupportedVersionError(
            f"{name} needs a version of {VersionRange(first, last)}, and {self._peer} {serves}"
        )
