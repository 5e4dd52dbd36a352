"""From fetched bytes to share records, on the caller's side."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from kohort.config import ConsumerConfig
from kohort.errors import (
    CorruptBatchError,
    DataError,
    DeserializerNotReadyError,
    RecordDeserializationError,
)
from kohort.fetcher.buffer._deserialize import KeptBytes, record_deserializer
from kohort.logs import PlacedText, get_logger
from kohort.records import ConsumerRecord, Record, RecordSet, Scratch
from kohort.share._record import ShareRecord, share_all, share_records
from kohort.share.client._locks import Fetched, Locks
from kohort.share.machine._acquired import Acknowledgement, Hold
from kohort.types import TopicPartition

if TYPE_CHECKING:
    from kohort.records import TablePlan
    from kohort.share._rows import SharedRows

logger = get_logger("kohort.share")

PoisonPolicy: TypeAlias = Literal["reject", "release", "raise"]
"""What becomes of data that cannot be read."""
_ALL = 0x7FFF_FFFF
_Damage: TypeAlias = tuple[DataError, set[int]]
"""The error of an unreadable batch or record, and its offsets."""
_Poison: TypeAlias = tuple[DataError, set[int], str]
"""The same with what ``on_error`` says of it."""


class ShareDelivery:
    """The decoder of one share consumer. One thread or task at a time delivers."""

    def __init__(
        self,
        config: ConsumerConfig,
        locks: Locks,
        on_error: PoisonPolicy | Callable[[DataError], str],
    ) -> None:
        self._locks = locks
        self._on_error = on_error
        self._kept_bytes = KeptBytes()
        self._deserialize = record_deserializer(
            config.deserialize_key, config.deserialize_value, self._kept_bytes
        )
        self._check_crcs = config.fetch.check_crcs
        self._budget = config.fetch.decompression_max_bytes
        self._scratch = Scratch()
        self.delivered: int = 0
        """The number of records that polls and iterations got."""
        self.errors: list[DataError] = []
        """Errors that later polls raise, one each."""

    def keep_bytes(self) -> None:
        """Let records that are deserialized from now on refer to their bytes."""
        self._kept_bytes.turn_on()

    def deliver(
        self, fetched: Iterable[Fetched]
    ) -> dict[TopicPartition, list[ShareRecord[Any, Any]]]:
        """Return the records of these fetches, and acknowledge what has no record.

        If a deserializer needs I/O first, or ``on_error`` raises, the fetch and those after it wait
        for the next call. If there are no records before, that exception is raised.
        """
        found: dict[TopicPartition, list[ShareRecord[Any, Any]]] = {}
        waiting = deque(fetched)
        while waiting:
            try:
                records = self._records(waiting[0])
            except BaseException as error:
                self._locks.put_back(waiting)
                if not found or not isinstance(error, Exception):
                    raise
                break
            each = waiting.popleft()
            if records:
                self.delivered += len(records)
                found.setdefault(each.partition, []).extend(records)
        return found

    def _records(self, fetched: Fetched) -> list[ShareRecord[Any, Any]]:
        records: list[Record] = []

        def read(found: RecordSet) -> bool:
            found.read(_ALL)
            records.extend(found.records)
            return True

        _, corrupt = self._decode(fetched, read)
        if self._deserialize is None and not corrupt and fetched.is_whole(records):
            hold = self._locks.hold_whole(fetched)
            return [] if hold is None else share_all(records, hold)
        acquired = fetched.offsets()
        offsets = {record.offset for record in records}
        if not acquired.issuperset(offsets):
            records = [record for record in records if record.offset in acquired]
        gaps = acquired.difference(offsets)
        gaps.difference_update(*(damaged for _, damaged in corrupt))
        if self._deserialize is None:
            good: list[ConsumerRecord[Any, Any]] = records
            bad: list[RecordDeserializationError] = []
        else:  # before anything is acknowledged
            good, bad = self._deserialized(records)
        poison = self._decided(
            [*corrupt, *((wrong, {wrong.offset}) for wrong in bad if wrong.offset is not None)]
        )
        holds = self._locks.hold(fetched, gaps)
        self._mark_poison(fetched.partition, poison, holds)
        return share_records(good, holds)

    def deliver_rows(self, fetched: Iterable[Fetched], plan: TablePlan) -> SharedRows:
        """Return the rows of these fetches, and acknowledge what has no row.

        What the plan has no room for waits for the next call. So does all if ``on_error`` raises.
        """
        from kohort.share._rows import SharedRows

        waiting = deque(fetched)
        read: list[tuple[Fetched, range, list[_Poison]]] = []
        while waiting and plan.has_room:
            each, first = waiting[0], plan.rows
            try:
                passed, corrupt = self._decode(each, partial(_add_rows, plan))
                poison = self._decided(corrupt)
            except BaseException:
                self._locks.put_back([*(fetch for fetch, _, _ in read), *waiting])
                raise
            waiting.popleft()
            read.append((each, range(first, plan.rows), poison))
            if passed is not None:
                waiting.appendleft(self._locks.split(each, passed))
        found = SharedRows(plan)
        for each, rows, poison in read:
            offsets = found.offsets[rows.start : rows.stop]
            gaps = each.offsets().difference(offsets, *(damaged for _, damaged, _ in poison))
            holds = self._locks.hold(each, gaps)
            self._mark_poison(each.partition, poison, holds)
            found.add(each.partition, rows, holds)
        if waiting:
            self._locks.put_back(waiting)
        self.delivered += len(found)
        return found

    def _deserialized(
        self, records: Iterable[Record]
    ) -> tuple[list[ConsumerRecord[Any, Any]], list[RecordDeserializationError]]:
        """Return the deserialized records, and errors. Raises DeserializerNotReadyError."""
        assert self._deserialize is not None
        good: list[ConsumerRecord[Any, Any]] = []
        bad: list[RecordDeserializationError] = []
        for record in records:
            try:
                good.append(self._deserialize(record))
            except RecordDeserializationError as error:
                if isinstance(error.__cause__, DeserializerNotReadyError):
                    raise error.__cause__.with_traceback(None) from None
                bad.append(error)
        return good, bad

    def _decode(
        self, fetched: Fetched, read: Callable[[RecordSet], bool]
    ) -> tuple[int | None, list[_Damage]]:
        """Let ``read`` take records until it returns False or all are taken.

        Return the offset where it stopped, or None for the end. Return also the errors and offsets
        of batches that are unreadable. After a batch whose end is unknown, all further offsets are.
        """
        corrupt: list[_Damage] = []
        offset, tp = min(fetched.ranges).first, fetched.partition
        while True:
            found = RecordSet(
                fetched.data,
                offset,
                topic=tp.topic,
                partition=tp.partition,
                check_crcs=self._check_crcs,
                budget=self._budget,
                scratch=self._scratch,
            )
            try:
                while not found.done:
                    if not read(found):
                        return found.passed, corrupt
            except CorruptBatchError as error:
                acquired = fetched.offsets()
                first = found.passed if error.offset is None else max(error.offset, found.passed)
                end = error.next_offset
                error.topic_partition = tp
                if end is None or end <= first:
                    corrupt.append((error, {each for each in acquired if each >= first}))
                    break
                corrupt.append((error, {each for each in acquired if first <= each < end}))
                offset = end
            else:
                break
        return None, corrupt

    def _decided(self, damage: Iterable[_Damage]) -> list[_Poison]:
        """Return the damage with what ``on_error`` says of it, before anything is held."""
        found = []
        for error, offsets in damage:
            policy = self._on_error(error) if callable(self._on_error) else self._on_error
            if policy not in _POLICIES:
                raise ValueError(
                    f"on_error returned {policy!r}: expected 'reject', 'release', 'accept' or "
                    "'raise'"
                )
            found.append((error, offsets, policy))
        return found

    def _mark_poison(
        self, tp: TopicPartition, poison: Iterable[_Poison], holds: Mapping[int, Hold]
    ) -> None:
        for error, damaged, policy in poison:
            offsets = damaged & holds.keys()
            for offset in offsets:
                self._locks.mark(offset, holds[offset], _POLICIES[policy])
            if not offsets:
                continue  # the locks are lost
            if policy == "raise":
                error.args = (
                    f"{_described(tp, error)}. The record was released, so it comes again",
                )
                self.errors.append(error)
            else:
                logger.warning("on_error is %r: %s", policy, _described(tp, error))


def _add_rows(plan: TablePlan, found: RecordSet) -> bool:
    found.add_rows_to(plan)
    return plan.has_room or found.done


_POLICIES = {
    "accept": Acknowledgement.ACCEPT,
    "reject": Acknowledgement.REJECT,
    "release": Acknowledgement.RELEASE,
    "raise": Acknowledgement.RELEASE,
}


def _described(tp: TopicPartition, error: DataError) -> str:
    text = f"{tp.topic}-{tp.partition} offset {error.offset} cannot be read: {error.reason}"
    return PlacedText(text, topic=tp.topic, partition=tp.partition, offset=error.offset)
