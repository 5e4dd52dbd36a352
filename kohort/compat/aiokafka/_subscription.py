"""State of the subscription as aiokafka's consumer shows it, and the listener that keeps it."""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from enum import Enum
from typing import Any

from kohort import TopicPartition as NativePartition
from kohort.compat.aiokafka import errors
from kohort.compat.aiokafka._values import to_partitions
from kohort.compat.aiokafka.structs import TopicPartition
from kohort.logs import get_logger

logger = get_logger("kohort.compat.aiokafka")

INSIDE_LISTENER: ContextVar[bool] = ContextVar("kohort_inside_listener", default=False)
"""True in the methods of a program's listener."""


class SubscriptionKind(Enum):
    """The way in which a program chose its partitions."""

    NONE = "none"
    TOPICS = "topics"
    PATTERN = "pattern"
    ASSIGNED = "assigned"


class SubscriptionView:
    """The subscription and assignment of a consumer, as of the program's last call.

    kohort's consumer keeps the old assignment until the group has a new one. This view has none
    after ``subscribe()`` and ``unsubscribe()``, as in aiokafka.
    """

    def __init__(self, group_id: str | None) -> None:
        self.kind = SubscriptionKind.NONE
        self.named: frozenset[str] = frozenset()
        self.pattern: re.Pattern[str] | None = None
        self.assignment: frozenset[TopicPartition] | None = None
        self.owned: frozenset[TopicPartition] = frozenset()
        self.epoch: int = 0
        self.adapter: ListenerAdapterForAio | None = None
        self.matching: Callable[[], Iterable[str]] = tuple
        self._group_id = group_id
        self._listener: Any = None
        self._waiters: list[asyncio.Future[None]] = []

    @property
    def topics(self) -> frozenset[str]:
        """Topics of the subscription; those that match the pattern now."""
        if self.kind is SubscriptionKind.PATTERN:
            return frozenset(self.matching())
        return self.named

    @property
    def subscription(self) -> SubscriptionView | None:
        """This object, or None if the program has not subscribed."""
        return None if self.kind is SubscriptionKind.NONE else self

    @property
    def is_automatic(self) -> bool:
        """True if the group or the cluster decides which partitions are assigned."""
        return self.kind in (SubscriptionKind.TOPICS, SubscriptionKind.PATTERN)

    def subscribe(self, topics: Iterable[str], listener: Any) -> None:
        """Start a subscription to topics, without an assignment yet."""
        self._change(SubscriptionKind.TOPICS, frozenset(topics), None, listener)

    def subscribe_pattern(self, pattern: re.Pattern[str], listener: Any) -> None:
        """Start a subscription to topics by a pattern, without an assignment yet."""
        self._change(SubscriptionKind.PATTERN, frozenset(), pattern, listener)

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Replace the assignment by partitions that the program chose."""
        chosen = to_partitions(partitions)
        self._change(SubscriptionKind.ASSIGNED, frozenset(tp.topic for tp in chosen), None, None)
        self.set_assignment(chosen)

    def unsubscribe(self) -> None:
        """Remove subscription, assignment and listener."""
        self.kind = SubscriptionKind.NONE
        self._change(SubscriptionKind.NONE, frozenset(), None, None)
        self.owned = frozenset()

    def _change(
        self,
        kind: SubscriptionKind,
        topics: frozenset[str],
        pattern: re.Pattern[str] | None,
        listener: Any,
    ) -> None:
        if self.kind not in (SubscriptionKind.NONE, kind):
            raise errors.IllegalStateError(
                "Subscription to topics, partitions and pattern are mutually exclusive"
            )
        self.kind, self.named, self.pattern = kind, topics, pattern
        self.assignment = None
        self.epoch += 1
        self._listener = listener
        self.adapter = (
            ListenerAdapterForAio(self, listener, self._group_id) if self.is_automatic else None
        )

    def set_assignment(self, partitions: frozenset[TopicPartition]) -> None:
        """Take the partitions of an assignment, and end the wait for one."""
        self.assignment = partitions
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
        self._waiters.clear()

    def wait_for_assignment(self) -> asyncio.Future[None]:
        """Return a future that is done at the next assignment."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        return waiter


class ListenerAdapterForAio:
    """Listener of kohort's consumer that calls a listener of aiokafka's.

    aiokafka revokes all partitions before each join, also when there are none. It reports an
    assignment as a whole, and logs the errors of a listener.
    """

    def __init__(self, view: SubscriptionView, listener: Any, group_id: str | None) -> None:
        self._view = view
        self._listener = listener
        self._group_id = group_id
        self._has_revoked = False

    async def on_partitions_revoked(self, revoked: frozenset[NativePartition]) -> None:
        """Report revoked partitions, while the program still owns them."""
        if self._view.adapter is not self:
            return
        self._has_revoked = True
        await self._report("on_partitions_revoked", revoked)
        self._view.owned -= to_partitions(revoked)

    async def on_partitions_assigned(self, assigned: frozenset[NativePartition]) -> None:
        """Report the whole assignment, after an empty revocation if there was none."""
        if self._view.adapter is not self:
            return
        if not self._has_revoked:
            await self._report("on_partitions_revoked", ())
        self._has_revoked = False
        if self._view.adapter is not self:
            return  # the listener subscribed again
        self._view.owned |= to_partitions(assigned)
        self._view.set_assignment(self._view.owned)
        await self._report("on_partitions_assigned", self._view.owned)

    async def on_partitions_lost(self, lost: frozenset[NativePartition]) -> None:
        """Report lost partitions as revoked. aiokafka has no other method for them."""
        await self.on_partitions_revoked(lost)

    async def _report(self, callback: str, partitions: Iterable[tuple[str, int]]) -> None:
        if self._listener is None:
            return
        token = INSIDE_LISTENER.set(True)
        try:
            result = getattr(self._listener, callback)(set(to_partitions(partitions)))
            if inspect.isawaitable(result):
                await result
        except Exception:
            logger.exception(
                "[%s] %s of listener %r failed", self._group_id, callback, self._listener
            )
        finally:
            INSIDE_LISTENER.reset(token)
