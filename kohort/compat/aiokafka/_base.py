"""Subscription and assignment of aiokafka's consumer."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable
from typing import Any

from kohort.compat.aiokafka import errors
from kohort.compat.aiokafka._kohort import NativeConsumer
from kohort.compat.aiokafka._private import AioClient, AioCoordinator
from kohort.compat.aiokafka._subscription import SubscriptionKind, SubscriptionView
from kohort.compat.aiokafka._values import all_partitions, to_native, to_partitions
from kohort.compat.aiokafka.abc import ConsumerRebalanceListener
from kohort.compat.aiokafka.structs import TopicPartition


class AioSubscribing:
    """The methods of aiokafka's consumer that choose partitions."""

    _closed: bool | None = None
    _loop: asyncio.AbstractEventLoop
    _group_id: str | None
    _fetcher: object | None
    _coordinator: AioCoordinator | None
    _client: AioClient
    _subscription: SubscriptionView
    _kohort: NativeConsumer

    def subscribe(
        self,
        topics: Any = (),
        pattern: Any = None,
        listener: ConsumerRebalanceListener | None = None,
    ) -> None:
        """Subscribe to topics or to a pattern, in place of an earlier subscription.

        The assignment ends at once, and the group is joined again.
        """
        if not (topics or pattern):
            raise TypeError("You should provide either `topics` or `pattern`")
        if topics and pattern:
            raise TypeError("You can't provide both `topics` and `pattern`")
        if listener is not None and not isinstance(listener, ConsumerRebalanceListener):
            raise TypeError("listener should be an instance of ConsumerRebalanceListener")
        if pattern is None:
            self._subscription.subscribe(checked_topics(topics), listener)
        else:
            try:
                compiled = re.compile(pattern)
            except re.error as error:
                raise ValueError(f"{pattern!r} is not a valid pattern: {error}") from error
            self._subscription.subscribe_pattern(compiled, listener)
        self._call_in_order(self._apply_subscription)

    def _apply_subscription(self) -> None:
        """Give kohort's consumer the subscription of now."""
        view, native = self._subscription, self._kohort.native
        if view.kind is SubscriptionKind.ASSIGNED:
            native.assign(to_native(view.assignment or ()))
            return
        before = native.subscription()
        if view.pattern is not None:
            native.subscribe(pattern=view.pattern, listener=view.adapter)
        elif view.named:
            native.subscribe(sorted(view.named), listener=view.adapter)
            if before == view.named and self._group_id is not None:
                native.enforce_rebalance("subscribe() was called again")

    def _call_in_order(self, function: Callable[[], Any]) -> None:
        """Call the function now, or after an unsubscribe() that has not ended.

        Before ``start()`` there is nothing to call.
        """
        if self._fetcher is not None and not self._closed:
            with self._kohort.errors.translating():
                self._kohort.calls.run(function)

    def unsubscribe(self) -> None:
        """Remove subscription and assignment at once, and leave the group in the background."""
        if self._closed:
            return
        self._subscription.unsubscribe()
        native = self._kohort.native
        self._call_in_order(native.unsubscribe)

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Assign these partitions, in place of the earlier ones."""
        self._subscription.assign(partitions)
        if self._subscription.assignment:
            self._call_in_order(self._apply_subscription)
        else:
            native = self._kohort.native
            self._call_in_order(native.unsubscribe)

    def subscription(self) -> frozenset[str]:
        """Return the subscribed topics; those that match the pattern now."""
        return self._subscription.topics

    def assignment(self) -> frozenset[TopicPartition]:
        """Return the assigned partitions."""
        return self._assigned_partitions()

    def _assigned_partitions(self) -> frozenset[TopicPartition]:
        return self._assigned_now() or frozenset()

    def _assigned_now(self) -> frozenset[TopicPartition] | None:
        """Return the assignment, or None if there is none yet."""
        view = self._subscription
        if self._group_id is None and view.is_automatic:
            if self._fetcher is None or self._kohort.calls.is_busy:
                return None
            return to_partitions(self._kohort.native.assignment()) or None
        return view.assignment

    def _chosen_or_assigned(self, partitions: tuple[Any, ...]) -> frozenset[TopicPartition]:
        """Return the partitions, all by default. Raise an error for what is not assigned."""
        if not all_partitions(partitions):
            raise TypeError("partitions must be TopicPartition instances")
        assigned = self._assigned_partitions()
        if not partitions:
            assert assigned, "No partitions are currently assigned"
            return assigned
        foreign = to_partitions(partitions) - assigned
        if foreign:
            raise errors.IllegalStateError(f"Partitions {set(foreign)} are not assigned")
        return to_partitions(partitions)

    def _require_started(self) -> None:
        if self._fetcher is None:
            raise errors.IllegalStateError("The consumer is not started. Await start() first")


def checked_topics(topics: Any) -> frozenset[str]:
    """Return the topics as a set. Raise TypeError for a single name."""
    if not isinstance(topics, (tuple, set, list)):
        raise TypeError("Topics should be list of strings")
    return frozenset(topics)
