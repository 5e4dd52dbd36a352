"""Consumers of the connector: creation, and a pool per worker process."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

from kohort import KafkaConsumer
from kohort.errors import ConfigurationError, DataError
from kohort.logs import error_text, get_logger
from kohort.spark_connector.options._consumer_options import (
    TOKEN_PROVIDER,
    for_queries,
    token_provider,
)

logger = get_logger("kohort.spark_connector")

MAX_IDLE_CONSUMERS = 4
"""Idle consumers per configuration. A worker runs one task at a time."""

_DEFAULTS = {"allow.auto.create.topics": "false"}  # a request would recreate a deleted topic
_GROUP_DEFAULTS = {"group.protocol": "auto"}
_FIXED = {"enable.auto.commit": False, "auto.offset.reset": "none"}
_GROUP_PROPERTIES = ("group.id", "group.instance.id")
_FETCH_WAIT_NAMES = ("fetch.max.wait.ms", "fetch.wait.max.ms")
FETCH_WAIT_MS = 10
"""Wait of a fetch. The records exist already, and a longer wait would delay the next task."""
_FETCH_BYTES_NAMES = ("max.partition.fetch.bytes", "fetch.message.max.bytes")
FETCH_BYTES = ((2_000, 128 << 10), (200_000, 1 << 20), (1 << 63, 4 << 20))
"""Bytes of one fetch of a partition, by the number of offsets to read.

Each fetch has a fixed cost, and records fetched past the end of a range are dropped.
"""

_Key = tuple[int, frozenset[tuple[str, Any]]]
_SKIPPED: WeakKeyDictionary[KafkaConsumer, list[DataError]] = WeakKeyDictionary()
"""Data that consumers with on.error=skip have skipped since the last skipped_data()."""
_idle: dict[_Key, list[KafkaConsumer]] = {}


def make_consumer(properties: Mapping[str, Any], *, group: bool) -> KafkaConsumer:
    """Return a consumer with the user's properties. Drop the group's unless ``group``. No I/O."""
    chosen = {k: v for k, v in properties.items() if group or k not in _GROUP_PROPERTIES}
    path = chosen.pop(TOKEN_PROVIDER, None)
    # Each process has its own provider: an object cannot be an option of Spark.
    provider = {} if path is None else {"oauth_cb": token_provider(path)}
    try:
        defaults = _DEFAULTS | _GROUP_DEFAULTS if group else _DEFAULTS
        return _made(defaults | chosen | provider | _FIXED)
    except ConfigurationError as error:
        raise type(error)(for_queries(error)) from None


def _made(properties: Mapping[str, Any]) -> KafkaConsumer:
    """Return a consumer that notes what it skips."""
    if str(properties.get("on.error", "")).strip().lower() != "skip":
        return KafkaConsumer.from_properties(properties)
    skipped: list[DataError] = []

    def skip(error: DataError) -> str:
        logger.warning("%s. The task continues without it (on.error=skip)", error_text(error))
        skipped.append(error)
        return "skip"

    consumer = KafkaConsumer.from_properties({**properties, "on.error": skip})
    _SKIPPED[consumer] = skipped
    return consumer


def skipped_data(consumer: KafkaConsumer) -> list[DataError]:
    """Return the errors of data that the consumer has skipped since the last call."""
    skipped = _SKIPPED.get(consumer, [])
    found = skipped.copy()
    skipped.clear()
    return found


def reader_properties(properties: Mapping[str, str], offsets: int) -> dict[str, Any]:
    """Return the user's properties with defaults for a reader of about ``offsets`` offsets."""
    chosen: dict[str, Any] = {k: v for k, v in properties.items() if k not in _GROUP_PROPERTIES}
    size = next(size for most, size in FETCH_BYTES if offsets < most)
    for names, value in ((_FETCH_WAIT_NAMES, FETCH_WAIT_MS), (_FETCH_BYTES_NAMES, size)):
        if not chosen.keys() & set(names):
            chosen[names[0]] = value
    return chosen


@contextmanager
def borrowed_consumer(properties: Mapping[str, str], offsets: int = 0) -> Iterator[KafkaConsumer]:
    """Yield a consumer without a group from the pool, and put it back.

    Spark reuses its Python workers, and a connection costs as much as a small batch. ``offsets`` is
    about how many are read of a partition.
    """
    wanted = reader_properties(properties, offsets)
    key = (os.getpid(), frozenset(wanted.items()))
    idle = _idle.setdefault(key, [])
    consumer = idle.pop() if idle else make_consumer(wanted, group=False)
    healthy = False
    try:
        yield consumer
        healthy = True
    except GeneratorExit:  # Spark needs no more records
        healthy = True
        raise
    finally:
        if healthy and len(idle) < MAX_IDLE_CONSUMERS:
            _reset(consumer)
            idle.append(consumer)
        else:
            consumer.close()


def _reset(consumer: KafkaConsumer) -> None:
    """Pause all partitions and drop buffered records.

    The fetch sessions stay open, because closing them costs a round trip.
    """
    partitions = sorted(consumer.assignment())
    consumer.pause(*partitions)
    for tp in partitions:
        consumer.seek(tp, 0)  # this drops buffered records


def close_idle() -> None:
    """Close all idle consumers of this process."""
    for idle in _idle.values():
        while idle:
            idle.pop().close()
