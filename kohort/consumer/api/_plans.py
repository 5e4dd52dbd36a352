"""The requests of both APIs: checked arguments, the call of the engine to make, and its timeout."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from kohort.consumer.api import _arguments
from kohort.consumer.driver._driver import Driver, Plan
from kohort.fetcher import EARLIEST, LATEST
from kohort.types import LazyModule, OffsetAndMetadata, OffsetAndTimestamp, TopicPartition

if TYPE_CHECKING:
    import uuid

    from kohort.consumer.api import _typing
    from kohort.consumer.engine._engine import Engine
else:
    uuid, _typing = LazyModule("uuid"), LazyModule("kohort.consumer.api._typing")


def _seconds(driver: Driver, timeout_ms: float | None) -> float:
    """Return a timeout in seconds, which is that of a request for None."""
    seconds = _arguments.timeout_seconds(timeout_ms)
    return driver.request_seconds if seconds is None else seconds


# -- commits and positions --------------------------------------------------------------------


def commit(
    driver: Driver, offsets: dict[TopicPartition, OffsetAndMetadata], timeout_ms: float | None
) -> Plan[None]:
    """Plan commit()."""
    seconds = _seconds(driver, timeout_ms)
    return Plan(_commit, (offsets, seconds), seconds)


async def _commit(
    engine: Engine, offsets: dict[TopicPartition, OffsetAndMetadata], seconds: float
) -> None:
    await engine.offset_requests.commit(offsets, seconds)


def committed(
    driver: Driver,
    partition: TopicPartition | Iterable[TopicPartition],
    metadata: bool,
    timeout_ms: float | None,
) -> Plan[Any]:
    """Plan committed(), of one partition or of several."""
    is_one, chosen = _arguments.one_or_more(partition)
    seconds = _seconds(driver, timeout_ms)
    return Plan(_committed, (chosen, is_one, metadata, seconds), seconds)


async def _committed(
    engine: Engine, chosen: list[TopicPartition], is_one: bool, metadata: bool, seconds: float
) -> Any:
    found = await engine.offset_requests.committed(chosen, seconds)
    offsets: dict[TopicPartition, int | OffsetAndMetadata | None] = {
        tp: at if metadata or at is None else at.offset for tp, at in found.items()
    }
    return offsets[chosen[0]] if is_one else offsets


def position(driver: Driver, tp: TopicPartition, timeout_ms: float | None) -> Plan[int]:
    """Plan position()."""
    seconds = _seconds(driver, timeout_ms)
    return Plan(_position, (tp, seconds), seconds)


async def _position(engine: Engine, tp: TopicPartition, seconds: float) -> int:
    return await engine.positions.find(tp, seconds)


# -- the cluster ------------------------------------------------------------------------------


def partitions_of(driver: Driver, topic: str, timeout_ms: float | None) -> Plan[set[int]]:
    """Plan partitions_for_topic()."""
    (name,) = _arguments.topic_names([topic])
    seconds = _seconds(driver, timeout_ms)
    return Plan(_partitions_of, (name, seconds), seconds)


async def _partitions_of(engine: Engine, name: str, seconds: float) -> set[int]:
    return set(await engine.cluster_requests.partitions_of(name, seconds))


def topics(driver: Driver, timeout_ms: float | None) -> Plan[set[str]]:
    """Plan topics()."""
    seconds = _seconds(driver, timeout_ms)
    return Plan(_topics, (seconds,), seconds)


async def _topics(engine: Engine, seconds: float) -> set[str]:
    return set(await engine.cluster_requests.all_topics(seconds))


def topic_ids(
    driver: Driver, topics: _typing.Topics, timeout_ms: float | None
) -> Plan[dict[str, uuid.UUID]]:
    """Plan topic_ids()."""
    names = _arguments.topic_names(topics)
    seconds = _seconds(driver, timeout_ms)
    return Plan(_topic_ids, (names, seconds), seconds)


async def _topic_ids(engine: Engine, names: list[str], seconds: float) -> dict[str, uuid.UUID]:
    return await engine.cluster_requests.topic_ids(names, seconds)


def bootstrap(driver: Driver, timeout_ms: float | None, refresh: bool) -> Plan[None]:
    """Plan bootstrap()."""
    timeout = _arguments.timeout_seconds(timeout_ms)
    seconds = driver.bootstrap_seconds() if timeout is None else timeout
    return Plan(_bootstrap, (timeout, refresh), seconds)


async def _bootstrap(engine: Engine, timeout: float | None, refresh: bool) -> None:
    await engine.cluster_requests.bootstrap(timeout, refresh=refresh)


# -- offsets of the log -----------------------------------------------------------------------


def beginning_offsets(
    driver: Driver, partitions: Iterable[TopicPartition], timeout_ms: float | None
) -> Plan[dict[TopicPartition, int]]:
    """Plan beginning_offsets()."""
    return _boundary(driver, partitions, EARLIEST, timeout_ms)


def end_offsets(
    driver: Driver, partitions: Iterable[TopicPartition], timeout_ms: float | None
) -> Plan[dict[TopicPartition, int]]:
    """Plan end_offsets()."""
    return _boundary(driver, partitions, LATEST, timeout_ms)


def _boundary(
    driver: Driver, partitions: Iterable[TopicPartition], end: int, timeout_ms: float | None
) -> Plan[dict[TopicPartition, int]]:
    chosen = _arguments.topic_partitions(partitions)
    seconds = _seconds(driver, timeout_ms)
    return Plan(_boundary_offsets, (chosen, end, seconds), seconds)


async def _boundary_offsets(
    engine: Engine, chosen: list[TopicPartition], end: int, seconds: float
) -> dict[TopicPartition, int]:
    return await engine.offset_requests.boundary_offsets(chosen, end, seconds)


def offsets_for_times(
    driver: Driver, timestamps: Mapping[TopicPartition, float], timeout_ms: float | None
) -> Plan[dict[TopicPartition, OffsetAndTimestamp | None]]:
    """Plan offsets_for_times()."""
    wanted = _arguments.timestamps(timestamps)
    seconds = _seconds(driver, timeout_ms)
    return Plan(_offsets_for_times, (wanted, seconds), seconds)


async def _offsets_for_times(
    engine: Engine, wanted: Mapping[TopicPartition, int], seconds: float
) -> dict[TopicPartition, OffsetAndTimestamp | None]:
    return await engine.offset_requests.offsets_at(wanted, seconds)
