"""A deserializer of a share consumer that needs I/O gets it, and no record is rejected."""

from __future__ import annotations

from typing import Any

import pytest

from kohort import AsyncShareConsumer, ShareConsumer
from kohort.errors import DeserializerNotReadyError
from kohort.testing import Cluster


class Lazy:
    """A deserializer that has to load each first letter. The first time, it is away."""

    def __init__(self) -> None:
        self.loaded: list[str] = []
        self._is_away = True

    def deserialize(self, topic: str, headers: Any, data: bytes) -> str:
        text = data.decode()
        if text[0] not in self.loaded:
            raise DeserializerNotReadyError("not loaded", prepare=lambda: self._load(text[0]))
        return text.upper()

    def _load(self, letter: str) -> None:
        if self._is_away:
            self._is_away = False
            raise ConnectionError("away")
        self.loaded.append(letter)


def options(cluster: Cluster, lazy: Lazy) -> dict[str, Any]:
    return {
        "bootstrap_servers": cluster.bootstrap_servers,
        "group_id": "workers",
        "start": "earliest",
        "value_deserializer": lazy,
        "on_error": "reject",
    }


def seen(polled: Any) -> list[tuple[Any, int]]:
    return [(each.value, each.delivery_count) for records in polled.values() for each in records]


EXPECTED = [("TEA", 1), ("MILK", 1), ("TOAST", 1)]


def test_share_poll_prepares_and_rejects_nothing() -> None:
    lazy = Lazy()
    found: list[tuple[Any, int]] = []
    with Cluster(topics={"jobs": 1}) as cluster:
        cluster.produce("jobs", ["tea", "milk", "toast"])
        with ShareConsumer("jobs", **options(cluster, lazy)) as consumer:
            with pytest.raises(ConnectionError, match="away"):
                while True:
                    assert not consumer.poll(timeout_ms=60_000)
            while len(found) < 3:
                found += seen(consumer.poll(timeout_ms=60_000))
    assert (found, lazy.loaded) == (EXPECTED, ["t", "m"])


@pytest.mark.anyio
async def test_async_share_poll_prepares_and_rejects_nothing() -> None:
    lazy = Lazy()
    found: list[tuple[Any, int]] = []
    with Cluster(topics={"jobs": 1}) as cluster:
        cluster.produce("jobs", ["tea", "milk", "toast"])
        async with AsyncShareConsumer("jobs", **options(cluster, lazy)) as consumer:
            with pytest.raises(ConnectionError, match="away"):
                while True:
                    assert not await consumer.poll(timeout_ms=60_000)
            while len(found) < 3:
                found += seen(await consumer.poll(timeout_ms=60_000))
    assert (found, lazy.loaded) == (EXPECTED, ["t", "m"])
