"""Ready-made listeners for frequent tasks, which work with both APIs."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Protocol

from kohort.listeners._base import AsyncRebalanceListener, ConsumerRebalanceListener
from kohort.listeners._dispatch import CallbackName, check_listener, describe, invoke, is_awaited
from kohort.logs import get_logger
from kohort.types import RebalanceContext, TopicPartition

Partitions = frozenset[TopicPartition]
Load = Callable[[Partitions], Any]
Save = Callable[[dict[TopicPartition, int]], Any]


class Consumer(Protocol):
    """The methods of a consumer that the listeners use."""

    def positions(self) -> dict[TopicPartition, int]: ...
    def seek(self, partition: TopicPartition, offset: int) -> None: ...

    @property
    def commit(self) -> Callable[..., Any]: ...


class LoggingRebalanceListener(ConsumerRebalanceListener):
    """A listener that logs each callback with its partitions.

    Lost partitions are logged as WARNING, or with ``level`` if that is higher.
    """

    def __init__(self, logger: logging.Logger | None = None, level: int = logging.INFO) -> None:
        self._logger = logger or get_logger("kohort.rebalance")
        self._level = level

    def on_partitions_revoked(self, revoked: Partitions) -> None:
        self._logger.log(self._level, "partitions revoked: %s", describe(revoked))

    def on_partitions_assigned(self, assigned: Partitions) -> None:
        self._logger.log(self._level, "partitions assigned: %s", describe(assigned))

    def on_partitions_lost(self, lost: Partitions) -> None:
        level = max(self._level, logging.WARNING)
        self._logger.log(level, "partitions lost: %s", describe(lost))


class CommitOnRevoke(ConsumerRebalanceListener):
    """A listener that commits the positions of partitions before they are revoked.

    It is for consumers without automatic commits that process all records before the next poll().
    Lost partitions are not committed, because other members may own them. With
    ``rebalance_without_poll="always"`` it also commits records that you still process.
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
    """A listener for offsets that are stored outside of Kafka.

    ``load(partitions)`` is called for assigned partitions and returns ``{partition: offset}``. For
    a missing offset or None, the committed offset or ``auto_offset_reset`` decides.

    ``save({partition: offset})`` is called for revoked partitions with the offsets of their next
    records. It should reject the offsets of a previous owner, because a suspended process may
    continue in ``save`` after it lost the partitions. Lost partitions are not saved.

    With AsyncKafkaConsumer both may be coroutine functions.
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

    def _seek(self, offsets: Mapping[TopicPartition, int]) -> None:
        for tp, offset in offsets.items():
            if offset is not None:
                self._consumer.seek(tp, offset)

    async def _seek_later(self, offsets: Awaitable[Mapping[TopicPartition, int]]) -> None:
        self._seek(await offsets)


class ListenerChain(ConsumerRebalanceListener):
    """A listener that calls several listeners in the given order.

    All are called, also after an error. The first error is raised at the end.
    """

    def __init__(self, *listeners: AsyncRebalanceListener) -> None:
        for listener in listeners:
            check_listener(listener, asynchronous=True)
        self._listeners = listeners
        self.awaits: bool = any(is_awaited(listener) for listener in listeners)

    def on_partitions_assigned(
        self, assigned: Partitions, rebalance: RebalanceContext | None = None
    ) -> Any:
        return self._call("on_partitions_assigned", assigned, rebalance)

    def on_partitions_revoked(
        self, revoked: Partitions, rebalance: RebalanceContext | None = None
    ) -> Any:
        return self._call("on_partitions_revoked", revoked, rebalance)

    def on_partitions_lost(
        self, lost: Partitions, rebalance: RebalanceContext | None = None
    ) -> Any:
        return self._call("on_partitions_lost", lost, rebalance)

    def _call(
        self, callback: CallbackName, partitions: Partitions, rebalance: RebalanceContext | None
    ) -> Awaitable[None] | None:
        if self.awaits:
            return self._call_later(callback, partitions, rebalance)
        first: Exception | None = None
        for listener in self._listeners:
            try:
                invoke(listener, callback, partitions, rebalance)
            except Exception as error:
                first = first or error
        if first is not None:
            raise first
        return None

    async def _call_later(
        self, callback: CallbackName, partitions: Partitions, rebalance: RebalanceContext | None
    ) -> None:
        first: Exception | None = None
        for listener in self._listeners:
            try:
                result = invoke(listener, callback, partitions, rebalance)
                if inspect.isawaitable(result):
                    await result
            except Exception as error:
                first = first or error
        if first is not None:
            raise first


def _of(
    positions: Mapping[TopicPartition, int], partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, int]:
    return {tp: positions[tp] for tp in sorted(partitions) if tp in positions}
