"""Consumers of the connector: how one is made, and those kept by a worker process."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from kohort import KafkaConsumer
from kohort.errors import ConfigurationError

KEPT = 4
"""Idle consumers kept a configuration: a worker runs one task at a time."""

_ALWAYS = {"enable.auto.commit": False, "auto.offset.reset": "none"}
# What is to be read is there; a fetch that waits for more would hold up the next task's.
_OF_A_READER = {"fetch.max.wait.ms": 10}
_OF_A_GROUP = ("group.id", "group.instance.id")

_Key = tuple[int, frozenset[tuple[str, str]]]
_idle: dict[_Key, list[KafkaConsumer]] = {}


def make_consumer(properties: Mapping[str, str], *, group: bool) -> KafkaConsumer:
    """A consumer with the user's properties; without a group unless that is wanted. No I/O."""
    chosen: dict[str, Any] = dict(properties)
    if not group:
        chosen = _OF_A_READER | {k: v for k, v in chosen.items() if k not in _OF_A_GROUP}
    try:
        return KafkaConsumer.from_properties(chosen | _ALWAYS)
    except ConfigurationError as error:
        raise type(error)(f"{error} (as an option of the source: with the prefix kafka.)") from None


@contextmanager
def borrowed(properties: Mapping[str, str]) -> Iterator[KafkaConsumer]:
    """A consumer without a group, assigned nothing; connections are kept for the next one.

    Spark reuses its Python workers, and a connection costs as much as a small batch.
    """
    wanted = {name: value for name, value in properties.items() if name not in _OF_A_GROUP}
    key = (os.getpid(), frozenset(wanted.items()))
    kept = _idle.setdefault(key, [])
    consumer = kept.pop() if kept else make_consumer(properties, group=False)
    healthy = False
    try:
        yield consumer
        healthy = True
    except GeneratorExit:  # the task wants no more records
        healthy = True
        raise
    finally:
        if healthy and len(kept) < KEPT:
            consumer.unsubscribe()
            kept.append(consumer)
        else:
            consumer.close()


def close_idle() -> None:
    """Close all that are kept by this process."""
    for kept in _idle.values():
        while kept:
            kept.pop().close()
