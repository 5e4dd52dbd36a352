"""Listeners for what most listeners do; each serves both faces."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Protocol

from kohort.listeners._base import AsyncRebalanceListener, ConsumerRebalanceListener
from kohort.listeners._dispatch import CallbackName, check_listener, is_awaited, method_of
from kohort.types import TopicPartition

Partitions = frozenset[TopicPartition]
Offsets = Mapping[TopicPartition, int]
Load = Callable[[Partitions], Any]
Save = Callable[[dict[TopicPartition, int]], Any]


class Consumer(Protocol):
    """The part of a consumer that these need."""

    def positions(self) -> dict[TopicPartition, int]: ...
    def seek(self, partition: TopicPartition, offset: int) -> None: ...

    @property
    def commit(self) -> Callable[..., Any]: ...


class CommitOnRevoke(ConsumerRebalanceListener):
    """Commits the positions of partitions before they are taken away.

    For consumers without automatic commits, whose records are done with when poll() is called
    again. Lost partitions are not committed: they are another member's. With
    ``rebalance_without_poll="always"`` it commits records that you still process, too.
    """

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self.awaits: bool = inspect.iscoroutinefunction(consumer.commit)

    def on_partitions_revoked(self, revoked: Partitions) -> Any:
        offsets = _of(self._consumer.positions(), revoked)
        result: Awaitable[None] | None = self._consumer.commit(offsets) if offsets else None
        return result

    def on_partitions_lost(self, lost: Partitions) -> None:
        pass


class ExternalOffsets(ConsumerRebalanceListener):
    """Offsets that are kept outside of Kafka: loaded when assigned, saved when revoked.

    ``load(partitions)`` returns ``{partition: offset}``; where one is missing or None, what is
    committed or ``auto_offset_reset`` decides. ``save({partition: offset})`` gets the positions,
    that is, the offsets of the next records; it should refuse those of an older owner by itself,
    as nothing can stop a process that was suspended in the midst of it. With AsyncKafkaConsumer
    both may be coroutine functions. What is lost is not saved.
    """

    def __init__(self, consumer: Consumer, *, load: Load, save: Save) -> None:
        self._consumer = consumer
        self._load = load
        self._save = save
        self.awaits: bool = inspect.iscoroutinefunction(load) or inspect.iscoroutinefunction(save)

    def on_partitions_assigned(self, assigned: Partitions) -> Any:
        found = self._load(assigned) if assigned else {}
        if inspect.isawaitable(found):
            return self._seek_later(found)
        self._seek(found)
        return None

    def on_partitions_revoked(self, revoked: Partitions) -> Any:
        offsets = _of(self._consumer.positions(), revoked)
        result = self._save(offsets) if offsets else None
        return result if inspect.isawaitable(result) else None

    def on_partitions_lost(self, lost: Partitions) -> None:
        pass

    def _seek(self, offsets: Offsets) -> None:
        for tp, offset in offsets.items():
            if offset is not None:
                self._consumer.seek(tp, offset)

    async def _seek_later(self, offsets: Awaitable[Offsets]) -> None:
        self._seek(await offsets)


class ListenerChain(ConsumerRebalanceListener):
    """Calls several listeners, in the order given. One that raises does not keep the others from
    being called; the first exception is raised then."""

    def __init__(self, *listeners: AsyncRebalanceListener) -> None:
        for listener in listeners:
            check_listener(listener, asynchronous=True)
        self._listeners = listeners
        self.awaits: bool = any(is_awaited(listener) for listener in listeners)

    def on_partitions_assigned(self, assigned: Partitions) -> Any:
        return self._call("on_partitions_assigned", assigned)

    def on_partitions_revoked(self, revoked: Partitions) -> Any:
        return self._call("on_partitions_revoked", revoked)

    def on_partitions_lost(self, lost: Partitions) -> Any:
        return self._call("on_partitions_lost", lost)

    def _call(self, callback: CallbackName, partitions: Partitions) -> Awaitable[None] | None:
        if self.awaits:
            return self._call_later(callback, partitions)
        first: Exception | None = None
        for listener in self._listeners:
            try:
                method_of(listener, callback)(partitions)
            except Exception as error:
                first = first or error
        if first is not None:
            raise first
        return None

    async def _call_later(self, callback: CallbackName, partitions: Partitions) -> None:
        first: Exception | None = None
        for listener in self._listeners:
            try:
                result = method_of(listener, callback)(partitions)
                if inspect.isawaitable(result):
                    await result
            except Exception as error:
                first = first or error
        if first is not None:
            raise first


def _of(positions: Offsets, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    return {tp: positions[tp] for tp in sorted(partitions) if tp in positions}
