"""Versions of the APIs of a broker, the choice of one for a request, and the first request."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from kohort.errors import KafkaConnectionError, UnsupportedVersionError
from kohort.protocol import Message, VersionRange
from kohort.types import NamedTuple

if TYPE_CHECKING:
    from kohort.protocol.messages import ApiVersionsResponse

_API_VERSIONS = 18
"""API key of ApiVersions. The table of all APIs is not needed for it at the import."""
_RELEASE = "metadata.version"
"""The feature with the release of a cluster. No broker of it may be older (KIP-584, KIP-778)."""
USUAL_VERSION = 4
NAMING_VERSION = 5
_LOWER = {5: 3, 4: 3, 3: 0}
"""Version after one on which the broker closed. Version 3 was the last for four years."""
REMEMBERED_SECONDS = 600.0
"""Time until an address gets the usual version again, because its broker may be upgraded."""
GIVEN_UP_SECONDS = 30.0
"""Time without lower versions after a broker closed on each of them."""


@functools.lru_cache(maxsize=16)
def _ranges(served: tuple[tuple[int, int, int], ...]) -> Mapping[int, VersionRange]:
    """Return the table of versions, one for all brokers with the same. It takes 2 KB."""
    return {api_key: VersionRange(first, last) for api_key, first, last in served}


class BrokerVersions:
    """Versions that one broker serves."""

    def __init__(
        self,
        peer: str,
        apis: Iterable[ApiVersionsResponse.ApiVersion],
        *,
        is_common: bool = False,
    ) -> None:
        self._peer = peer
        self.is_common = is_common
        """True if all brokers of the cluster serve them, because none has an older release."""
        served = ((each.api_key, each.min_version, each.max_version) for each in apis)
        self._ranges = _ranges(tuple(served))
        self._chosen: dict[tuple[type[Message], int | None, int | None], int] = {}

    @classmethod
    def of(cls, peer: str, response: ApiVersionsResponse) -> BrokerVersions:
        """Return the versions that a broker has sent."""
        return cls(peer, response.api_keys, is_common=_is_of_oldest_release(response))

    def at(self, peer: str) -> BrokerVersions:
        """Return the same versions for a broker at another address."""
        other = BrokerVersions(peer, (), is_common=self.is_common)
        other._ranges = self._ranges
        return other

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


def _is_of_oldest_release(response: ApiVersionsResponse) -> bool:
    """True if the cluster is finalized at the latest level of this broker's release.

    During an upgrade the broker has a later level than the cluster.
    """
    latest = {each.name: each.max_version for each in response.supported_features}
    levels = {each.name: each.max_version_level for each in response.finalized_features}
    return _RELEASE in levels and levels[_RELEASE] == latest.get(_RELEASE)


class ClosedSilentlyError(KafkaConnectionError):
    """The broker closed the connection at ApiVersions, before it sent a byte."""


class Greeting(NamedTuple):
    """The first request of a connection: the version of ApiVersions, and the broker it names.

    Version 5 names the cluster and the broker that the client means to reach (KIP-1242). A broker
    that is another one refuses with REBOOTSTRAP_REQUIRED.
    """

    version: int = USUAL_VERSION
    cluster_id: str | None = None
    node_id: int = -1


class Greetings:
    """The greetings of one client. It remembers the version that suits an address.

    A broker is named if the broker of the latest connection serves NAMING_VERSION, so that an older
    cluster costs no second request. A service may close the connection on a version that it does
    not know. Then lower versions follow, each on a new connection.
    """

    def __init__(self) -> None:
        self.cluster_id: str | None = None
        """The cluster that the known brokers belong to, or None to name no broker."""
        self._serves_naming = False
        self._versions: dict[tuple[str, int], tuple[int | None, float]] = {}
        """The version that suits an address, or None if none does, and the end of that memory."""

    def of(self, host: str, port: int, node_id: int, now: float) -> Greeting:
        """Return the greeting for a broker at an address."""
        version = self._remembered(host, port, now)
        if version is not None:
            return Greeting(version)
        if self.cluster_id is not None and node_id >= 0 and self._serves_naming:
            return Greeting(NAMING_VERSION, self.cluster_id, node_id)
        return Greeting()

    def _remembered(self, host: str, port: int, now: float) -> int | None:
        version, until = self._versions.get((host, port), (None, now))
        return version if now < until else None

    def note_served(self, versions: BrokerVersions) -> None:
        """Note what the broker of the latest connection serves."""
        served = versions.served(_API_VERSIONS)
        self._serves_naming = served is not None and NAMING_VERSION in served

    def lower(self, host: str, port: int, closed: Greeting, now: float) -> Greeting | None:
        """Return the greeting after a broker closed on one, or None to give up."""
        version, until = self._versions.get((host, port), (USUAL_VERSION, now))
        if version is None and now < until:
            return None
        lower = _LOWER.get(closed.version)
        if lower is None:
            self._versions[host, port] = None, now + GIVEN_UP_SECONDS
            return None
        return Greeting(lower)

    def succeeded(self, host: str, port: int, greeting: Greeting, now: float) -> None:
        """Remember a lower version that the broker answered."""
        key = host, port
        if greeting.version >= USUAL_VERSION:
            self._versions.pop(key, None)
        elif self._remembered(host, port, now) is None:
            self._versions[key] = greeting.version, now + REMEMBERED_SECONDS
