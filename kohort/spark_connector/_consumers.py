"""Consumers of the connector: how one is made, and those kept by a worker process."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from kohort import KafkaConsumer
from kohort.errors import ConfigurationError

MAX_IDLE_CONSUMERS = 4
"""Idle consumers kept a configuration: a worker runs one task at a time."""

_DEFAULTS = {"allow.auto.create.topics": "false"}  # or a deleted one came back by being asked for
_FIXED = {"enable.auto.commit": False, "auto.offset.reset": "none"}
_GROUP_PROPERTIES = ("group.id", "group.instance.id")
_FETCH_WAIT_NAMES = ("fetch.max.wait.ms", "fetch.wait.max.ms")
FETCH_WAIT_MS = 10
"""What is to be read is there; a fetch that waits for more would hold up the next task's."""
_FETCH_BYTES_NAMES = ("max.partition.fetch.bytes", "fetch.message.max.bytes")
FETCH_BYTES = ((2_000, 128 << 10), (200_000, 1 << 20), (1 << 63, 4 << 20))
"""Of a partition at once, by the offsets to be read of it: each fetch has a price of its own, and
what is fetched ahead at the end of a range is thrown away."""

_Key = tuple[int, frozenset[tuple[str, Any]]]
_idle: dict[_Key, list[KafkaConsumer]] = {}


def make_consumer(properties: Mapping[str, Any], *, group: bool) -> KafkaConsumer:
    """A consumer with the user's properties; without a group unless that is wanted. No I/O."""
    chosen = {k: v for k, v in properties.items() if group or k not in _GROUP_PROPERTIES}
    try:
        return KafkaConsumer.from_properties(_DEFAULTS | chosen | _FIXED)
    except ConfigurationError as error:
        raise type(error)(f"{error} (as an option of the source: with the prefix kafka.)") from None


def reader_properties(properties: Mapping[str, str], offsets: int) -> dict[str, Any]:
    """The user's, and what suits a reader of so many offsets of a partition."""
    chosen: dict[str, Any] = {k: v for k, v in properties.items() if k not in _GROUP_PROPERTIES}
    size = next(size for most, size in FETCH_BYTES if offsets < most)
    for names, value in ((_FETCH_WAIT_NAMES, FETCH_WAIT_MS), (_FETCH_BYTES_NAMES, size)):
        if not chosen.keys() & set(names):
            chosen[names[0]] = value
    return chosen


@contextmanager
def borrowed_consumer(properties: Mapping[str, str], offsets: int = 0) -> Iterator[KafkaConsumer]:
    """A consumer without a group, to be assigned to; connections are kept for the next one.

    Spark reuses its Python workers, and a connection costs as much as a small batch.
    ``offsets``: about so many are read of a partition.
    """
    wanted = reader_properties(properties, offsets)
    key = (os.getpid(), frozenset(wanted.items()))
    idle = _idle.setdefault(key, [])
    consumer = idle.pop() if idle else make_consumer(wanted, group=False)
    healthy = False
    try:
        yield consumer
        healthy = True
    except GeneratorExit:  # the task wants no more records
        healthy = True
        raise
    finally:
        if healthy and len(idle) < MAX_IDLE_CONSUMERS:
            _reset(consumer)
            idle.append(consumer)
        else:
            consumer.close()


def _reset(consumer: KafkaConsumer) -> None:
    """Have it fetch and hold nothing. Its fetch sessions go on: to end them is a round trip."""
    partitions = sorted(consumer.assignment())
    consumer.pause(*partitions)
    for tp in partitions:
        consumer.seek(tp, 0)  # what was fetched ahead is let go of


def close_idle() -> None:
    """Close all that are kept by this process."""
    for idle in _idle.values():
        while idle:
            idle.pop().close()
