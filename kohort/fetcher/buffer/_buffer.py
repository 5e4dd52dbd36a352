"""The buffer that the caller drains. The background task fills its queues.

A drain has two steps:

1. Decode records on the caller's thread, without the lock. The fetches are marked busy, so that an
   append does not drop them.
2. Take the lock, move the positions and deliver the records. Records of a partition that has
   another epoch by now are dropped.

If an exception is raised in between (Ctrl-C in a deserializer), all decoded records return to the
fetches.

An error of one partition never delays another partition. A drain that found records returns them,
and the next drain raises the error. See :meth:`FetchBuffer.drain`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

from kohort.errors import (
    DeserializerNotReadyError,
    KafkaError,
    OffsetOutOfRangeError,
    TopicRecreatedError,
)
from kohort.fetcher.buffer._completed import FailedFetch
from kohort.fetcher.buffer._drain import DrainSteps, DrainTarget, Records, RecordTarget, TableTarget
from kohort.fetcher.buffer._error_policy import ErrorPolicy, Item, OnError
from kohort.fetcher.buffer._memory import FetchMemory
from kohort.fetcher.buffer._partition_queues import PartitionQueues
from kohort.logs import get_logger
from kohort.subscription import OffsetReset, SubscriptionState
from kohort.types import TopicPartition

if TYPE_CHECKING:
    from kohort.records import SizeHistory

logger = get_logger("kohort.fetcher")


class FetchBuffer:
    """The queues of completed fetches, and the drains of the caller. One thread drains."""

    def __init__(
        self,
        subscription: SubscriptionState,
        *,
        max_bytes: int,
        on_room: Callable[[], None] = lambda: None,
        may_deliver: Callable[[], bool] = lambda: True,
        on_error: OnError = "raise",
        memory: FetchMemory | None = None,
        laggiest_first: bool = False,
    ) -> None:
        """Take the arguments of PartitionQueues and DrainSteps.

        While ``may_deliver`` returns False, drains deliver nothing.
        """
        self.queues: PartitionQueues = PartitionQueues(
            subscription,
            max_bytes=max_bytes,
            on_room=on_room,
            memory=memory,
        )
        self.steps: DrainSteps = DrainSteps(
            subscription, self.queues, laggiest_first=laggiest_first
        )
        self.policy: ErrorPolicy = ErrorPolicy(subscription, on_error, on_room=on_room)
        self.tables: SizeHistory | None = None
        """Sizes of the last table, or None before the first one."""
        self._subscription = subscription
        self._may_deliver = may_deliver
        self._reported: KafkaError | None = None  # an error that concerns no single partition
        self._pending_error: Item | None = None  # raised first by the next drain
        self._raises = 0
        self._emptied_at = -1  # the bytes appended before the latest drain if that took all

    @property
    def is_empty(self) -> bool:
        """True if no records were appended since a drain took all that it might.

        Those of partitions that were paused then do not count.
        """
        return self._emptied_at == self.queues.counters.bytes_appended

    def drain(
        self,
        max_records: int,
        partitions: Collection[TopicPartition] | None = None,
        *,
        repeat_errors: bool = True,
        target: RecordTarget | None = None,
    ) -> Records[Any, Any]:
        """Return up to ``max_records`` buffered records, or none, and move the positions.

        An error of a partition is raised after all records before it were delivered. It is never
        raised together with records: if other partitions have records, the *next* drain raises
        it. The drain after that returns records again.

        The error remains until the partition is sought past it, paused or revoked. Every drain
        that finds no records raises it again. With ``repeat_errors=False`` a drain raises only
        errors that were not raised before. A caller that waits for records passes False until its
        timeout ends, so that it neither spins nor misses the error. ``on_error`` is called first
        for data that cannot be read. A DeserializerNotReadyError is raised as it is, and the next
        drain calls the deserializer again. A caller that passes a new ``target`` finds the
        delivered records there if an exception is raised (see consumer/driver/_delivery).
        """
        if target is None:
            target = RecordTarget()
        self._drain(target, max_records, partitions, repeat_errors)
        return target.records

    def drain_table(
        self,
        target: TableTarget[Any],
        partitions: Collection[TopicPartition] | None = None,
        *,
        repeat_errors: bool = True,
    ) -> None:
        """Put the rows of all partitions into one table, by the rules of drain().

        Deserializers do not run.
        """
        self.steps.use_table_limits()
        target.plan.expect(self.steps.deliverable_bytes(partitions))
        self._drain(target, target.plan.max_rows, partitions, repeat_errors)

    def undo(self, target: DrainTarget) -> None:
        """Undo the drain into a target, so that its records are drained or fetched again."""
        self._emptied_at = -1
        self.steps.put_back(target)

    def report(self, error: KafkaError) -> None:
        """Let the next drain raise an error that concerns no single partition."""
        self._reported = error

    def close(self) -> None:
        """Drop all buffered fetches and pending errors."""
        self.queues.clear()
        self._pending_error = self._reported = None

    def _drain(
        self,
        target: DrainTarget,
        max_records: int,
        partitions: Collection[TopicPartition] | None,
        repeat_errors: bool,
    ) -> None:
        if not self._may_deliver():
            return
        self._raise_pending(partitions)
        try:
            stopped = self._decode(target, max_records, partitions, repeat_errors)
            target.finish()
            delivered = self.steps.deliver(target)
            if not target.is_complete():
                self.undo(target)
                return  # a later drain raises the errors after the rows before them
        except BaseException:
            self.undo(target)
            raise
        if not stopped:
            return
        try:
            blocked = self._resolve(stopped, delivered, repeat_errors)
        except BaseException:
            self.queues.on_room()  # the exception may have come before this call in a step
            raise
        if blocked:
            item = min(blocked, key=lambda item: item.raised)
            if delivered:
                self._pending_error = item
            elif repeat_errors or not item.raised:
                self._raise(item)

    def _resolve(
        self, stopped: list[Item], delivered: set[TopicPartition], repeat_errors: bool
    ) -> list[Item]:
        """Reset partitions and apply ``on_error``. Return the items with errors to raise.

        A partition is reset by a drain without records of it. Otherwise their positions would be
        lost before they reach the caller.
        """
        blocked: list[Item] = []
        for item in stopped:
            if not isinstance(item, FailedFetch) or not self._is_reset(item):
                blocked.append(item)
            elif item.topic_partition not in delivered:
                self._reset(item)
        try_resolve = self.policy.try_resolve
        return [it for it in blocked if not try_resolve(it, delivered, repeat=repeat_errors)]

    def _decode(
        self,
        target: DrainTarget,
        max_records: int,
        partitions: Collection[TopicPartition] | None,
        repeat_errors: bool,
    ) -> list[Item]:
        """Decode records of one partition after the other.

        Return the items with errors, which stop their partitions.
        """
        stopped: list[Item] = []
        steps, drained, missing = self.steps, target.drained, max_records
        appended = self.queues.counters.bytes_appended
        order, emptied = steps.begin(partitions)
        if emptied:
            self.policy.forget(emptied)
        for tp in order:
            if missing <= 0:
                break
            index = 0
            while missing > 0:
                item = steps.claim(tp, index, partitions, drained)
                if item is None:
                    break
                if isinstance(item, FailedFetch):
                    stopped.append(item)
                    break
                if not target.is_ready(item):
                    break
                found = drained[-1]
                found.records = target.take(item, missing)
                while item.error is not None and self.policy.try_skip(item, repeat=repeat_errors):
                    found.records += target.take(item, missing - len(found.records))
                missing -= len(found.records)
                if item.error is not None:
                    stopped.append(item)
                if found.is_last or not item.is_exhausted:
                    break
                index += 1
        took_all = missing > 0 and not stopped and partitions is None
        self._emptied_at = appended if took_all else -1
        return stopped

    # --- errors ---------------------------------------------------------------------------------

    def _raise_pending(self, partitions: Collection[TopicPartition] | None) -> None:
        if self._reported is not None:
            error, self._reported = self._reported, None
            self.queues.counters.errors_raised += 1
            raise error
        item, self._pending_error = self._pending_error, None
        if item is None or item.error is None:
            return
        if self.steps.is_current(item, partitions):
            self._raise(item)

    def _raise(self, item: Item) -> None:
        error = self.policy.error_to_raise(item)
        cause = error.__cause__
        if isinstance(cause, DeserializerNotReadyError):  # nothing has failed yet
            raise cause.with_traceback(None)
        self._raises += 1
        item.raised = self._raises
        self.queues.counters.errors_raised += 1
        if isinstance(item, FailedFetch) and item.is_transient:
            self.steps.remove(item)
        # The traceback of an earlier raise would grow with each poll.
        raise error.with_traceback(None)

    def _is_reset(self, item: FailedFetch) -> bool:
        if isinstance(item.error, TopicRecreatedError):
            return self._subscription.default_reset.reads_recreated
        return (
            isinstance(item.error, OffsetOutOfRangeError)
            and not item.is_transient  # the error of a fetch, not of the look-up for a reset
            and self._subscription.default_reset != OffsetReset.NONE
        )

    def _reset(self, item: FailedFetch) -> None:
        """Reset a partition by ``auto_offset_reset``, after all records before were delivered.

        A recreated topic is read from its beginning, because every record in it is younger than
        the subscription.
        """
        recreated = isinstance(item.error, TopicRecreatedError)
        strategy = OffsetReset.EARLIEST if recreated else self._subscription.default_reset
        with self._subscription.lock:
            state = self._subscription.partition_at(item.topic_partition, item.epoch)
            if state is None:
                return
            offset = state.next_fetch.offset
            self._subscription.start_reset(state, strategy)
        if not recreated:
            logger.warning(
                "%s-%d: offset %s is out of range. The position is reset to %r",
                *item.topic_partition,
                offset,
                strategy.value,
            )
        self.queues.on_room()
