"""Rebalance listeners, called when and as kafka-python calls them."""

from __future__ import annotations

import asyncio
import inspect
import threading
from abc import ABC, abstractmethod
from collections.abc import Coroutine, Iterable
from typing import TYPE_CHECKING, Any

from kohort import ConsumerRebalanceListener as NativeListener
from kohort import TopicPartition as NativePartition
from kohort.compat._peer import peer_name
from kohort.compat.kafka_python._values import to_partitions
from kohort.compat.kafka_python.structs import TopicPartition


class ConsumerRebalanceListener(ABC):
    """Base class of listeners whose methods are plain functions."""

    @abstractmethod
    def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        """Finish the work on partitions that are given up."""

    @abstractmethod
    def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        """Prepare the work on assigned partitions."""

    def on_partitions_lost(self, lost: set[TopicPartition]) -> None:
        """Drop partitions that other members may own by now; revoked by default."""
        self.on_partitions_revoked(lost)


class AsyncConsumerRebalanceListener(ABC):
    """Base class of listeners whose methods are coroutines."""

    @abstractmethod
    async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        """Finish the work on partitions that are given up."""

    @abstractmethod
    async def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        """Prepare the work on assigned partitions."""

    async def on_partitions_lost(self, lost: set[TopicPartition]) -> None:
        """Drop partitions that other members may own by now; revoked by default."""
        await self.on_partitions_revoked(lost)


if not TYPE_CHECKING:
    _STATE = "kafka.consumer.subscription_state"
    ConsumerRebalanceListener = (
        peer_name(_STATE, "ConsumerRebalanceListener") or ConsumerRebalanceListener
    )
    AsyncConsumerRebalanceListener = (
        peer_name(_STATE, "AsyncConsumerRebalanceListener") or AsyncConsumerRebalanceListener
    )


def check_listener(listener: object) -> None:
    """Raise TypeError unless the listener is of a class for listeners."""
    classes = (ConsumerRebalanceListener, AsyncConsumerRebalanceListener, NativeListener)
    if not isinstance(listener, classes):
        raise TypeError(
            "listener must be a ConsumerRebalanceListener or AsyncConsumerRebalanceListener"
        )


class ListenerAdapter(NativeListener):
    """Calls a listener of kafka-python from a consumer of kohort.

    An eager member of kafka-python reports all its partitions as revoked before each join. Before
    its first one it reports an empty set. kohort reports nothing there.
    """

    def __init__(self, listener: Any, *, eager: bool) -> None:
        self._listener = listener
        self._eager = eager
        self._muted = False
        self._revoked = False

    def mute(self) -> None:
        """Call the listener no more: kafka-python's ``unsubscribe()`` does not."""
        self._muted = True

    def on_partitions_revoked(self, revoked: Iterable[NativePartition]) -> None:
        """Report revoked partitions."""
        self._revoked = True
        self._report("on_partitions_revoked", revoked)

    def on_partitions_assigned(self, assigned: Iterable[NativePartition]) -> None:
        """Report assigned partitions, after an empty revocation if there was none."""
        if self._eager and not self._revoked:
            self._report("on_partitions_revoked", ())
        self._revoked = False
        if assigned or self._eager:
            self._report("on_partitions_assigned", assigned)

    def on_partitions_lost(self, lost: Iterable[NativePartition]) -> None:
        """Report lost partitions; as revoked to listeners without that method."""
        self._revoked = True
        known = hasattr(self._listener, "on_partitions_lost")
        self._report("on_partitions_lost" if known else "on_partitions_revoked", lost)

    def _report(self, callback: str, partitions: Iterable[NativePartition]) -> None:
        if self._muted:
            return
        result = getattr(self._listener, callback)(to_partitions(partitions))
        if inspect.iscoroutine(result):
            _run(result)


def _run(coroutine: Coroutine[Any, Any, Any]) -> None:
    """Run a coroutine to its end, also inside a running event loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        asyncio.run(coroutine)
        return
    errors: list[BaseException] = []

    def run() -> None:
        try:
            asyncio.run(coroutine)
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, name="kohort-listener")
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
