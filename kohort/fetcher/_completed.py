"""What one fetch brought of one partition: records not decoded yet, or an error in their place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kohort.errors import CorruptBatchError, DataError, KafkaError, RecordDeserializationError
from kohort.fetcher._deserialize import DeserializeRecord
from kohort.fetcher._lease import Releasable
from kohort.records import DEFAULT_BUDGET, ConsumerRecord, RecordSet, Scratch
from kohort.types import TopicPartition

if TYPE_CHECKING:
    from kohort.records import TablePlan


class DecodeOptions:
    """How batches become records; the same for all fetches of a consumer."""

    __slots__ = ("budget", "check_crcs", "deserialize", "scratch")

    def __init__(
        self,
        *,
        check_crcs: bool = True,
        budget: int = DEFAULT_BUDGET,
        deserialize: DeserializeRecord | None = None,
    ) -> None:
        self.check_crcs: Final = check_crcs
        self.budget: Final = budget
        self.deserialize: Final = deserialize
        self.scratch: Final = Scratch()
        """Decoding happens on one thread at a time."""


class CompletedFetch:
    """The records of one partition from one answer, decoded bit by bit as they are taken.

    Made by the core, which knows from the headers alone where the next fetch has to start; taken
    by the caller. Records before the offset asked for, control batches and aborted transactions
    are passed over, and :attr:`position` passes them too. ``lease`` is released with the last
    batch decoded: records are copies.
    """

    def __init__(
        self,
        topic_partition: TopicPartition,
        epoch: int,
        records: RecordSet,
        *,
        deserialize: DeserializeRecord | None = None,
        lease: Releasable | None = None,
        high_watermark: int = -1,
        last_stable_offset: int = -1,
        log_start_offset: int = -1,
    ) -> None:
        self.topic_partition: Final = topic_partition
        self.epoch: Final = epoch
        self.high_watermark: Final = high_watermark
        self.last_stable_offset: Final = last_stable_offset
        self.log_start_offset: Final = log_start_offset
        self.size: Final = records.size
        self.next_offset: Final[int] = records.next_offset
        """Where the next fetch starts."""
        self.last_leader_epoch: Final[int] = records.leader_epoch
        self.position: int = records.passed
        """The offset behind what was taken."""
        self.error: DataError | None = None
        """What the last take() stopped at; nothing gets past it."""
        self.raised: int = 0
        self.is_busy = False
        self.is_measured: bool = False
        """Rows may have gone into a table: what is behind :attr:`position` may not be at hand."""
        self._set = records
        self._deserialize = deserialize
        self._lease = lease
        self._ready: list[ConsumerRecord[Any, Any]] = []
        self._at = 0  # of the records that the set has read, not deserialized
        self._passed = records.passed  # behind the last records that are done with
        self._failed_at: int | None = None  # the offset of the latest error

    @property
    def is_blocked(self) -> bool:
        return self.error is not None

    @property
    def is_exhausted(self) -> bool:
        """Nothing is left to take, and nothing to raise."""
        return not (self._ready or self._at < len(self._set.records) or not self._set.done)

    def take(self, limit: int) -> list[ConsumerRecord[Any, Any]]:
        """Up to ``limit`` records; stops early, with ``error`` set, where one cannot be read.

        A deserializer is tried again by the next take(); a corrupt batch stays one.
        """
        taken, ready = self._ready[:limit], self._ready[limit:]
        try:
            if not ready:
                self._take(limit, taken)
            else:
                self.error = None  # it comes up again behind these
            if ready or self._at < len(self._set.records):
                position = taken[-1].offset + 1 if taken else max(self.position, self._passed)
            else:
                position = self._passed
        except BaseException:  # Ctrl-C in a deserializer, for one
            self._ready = taken + ready
            raise
        self._ready, self.position = ready, position
        return taken

    @property
    def is_partly_decoded(self) -> bool:
        """Records were decoded that are not taken: their bytes are not at hand any more."""
        return bool(self._ready) or self._at < len(self._set.records)

    def measure(self, plan: TablePlan) -> int:
        """Put rows into a table in place of taking records; returns how many. No way back."""
        rows = 0
        self.is_measured = True  # before anything is called: Ctrl-C comes in calls
        if not isinstance(self.error, CorruptBatchError):
            try:
                rows = self._set.add_rows_to(plan)
            except CorruptBatchError as error:
                self._passed = self._set.passed
                self._fail(self._located(error))
            self.position = self._passed = self._set.passed
            if self._set.done:
                self.release()
        return rows

    @property
    def measured_epoch(self) -> int:
        """The leader epoch of the last row that was planned."""
        return self._set.read_epoch

    def skip(self) -> None:
        """Pass over the record that the last take() could not deserialize."""
        assert isinstance(self.error, RecordDeserializationError)
        assert self.error.next_offset is not None
        position = max(self.position, self.error.next_offset)
        self._at += 1
        self.error, self.raised, self.position = None, 0, position
        self._close_finished()

    def put_back(self, records: list[ConsumerRecord[Any, Any]]) -> None:
        """Undo the latest take()."""
        if records:
            self._ready = records + self._ready
            self.position = records[0].offset

    def release(self) -> None:
        """Let go of the bytes: what was not decoded so far never will be."""
        self._set.release()
        if self._lease is not None:
            self._lease.release()
            self._lease = None

    def _take(self, limit: int, taken: list[ConsumerRecord[Any, Any]]) -> None:
        self._close_finished()  # last time Ctrl-C may have come before that
        if isinstance(self.error, CorruptBatchError):
            return
        deserialize = self._deserialize
        try:
            while len(taken) < limit:
                records = self._set.records
                if self._at < len(records):
                    stop = min(len(records), self._at + limit - len(taken))
                    if deserialize is None:
                        taken += records[self._at : stop]
                        self._at = stop
                    else:
                        for record in records[self._at : stop]:
                            taken += [deserialize(record)]  # append() would let Ctrl-C in here
                            self._at += 1
                elif not self._read_on(limit - len(taken)):
                    break
                self._close_finished()
        except (CorruptBatchError, RecordDeserializationError) as error:
            self._fail(error)
        else:
            self.error = None

    def _fail(self, error: DataError) -> None:
        if self._failed_at != error.offset:
            self._failed_at, self.raised = error.offset, 0
        self.error = error

    def _close_finished(self) -> None:
        if self._at == len(self._set.records):
            self._set.records, self._at = [], 0
            self._passed = self._set.passed

    def _read_on(self, enough: int) -> bool:
        """Decode the next records for the user; False at the end."""
        found = self._set
        try:
            while not found.done:
                found.read(enough)
                if found.done:
                    self.release()
                if found.records:
                    return True
                self._passed = found.passed
        except CorruptBatchError as error:
            self._passed = found.passed
            raise self._located(error) from error.__cause__
        return False

    def _located(self, error: CorruptBatchError) -> CorruptBatchError:
        """The error with the partition, and what to do about it."""
        tp = self.topic_partition
        offset = self._passed if error.offset is None else max(error.offset, self._passed)
        next_offset = error.next_offset
        if next_offset is not None:
            advice = f"seek({tp}, {next_offset}) passes over it"
        else:
            advice = "where it ends cannot be told from its bytes: seek() to a later offset"
        return type(error)(
            f"{tp.topic}-{tp.partition}: {error}. Nothing is skipped and the other partitions go "
            f"on; {advice}, seek({tp}, {offset}) reads it again",
            topic_partition=tp,
            offset=offset,
            next_offset=next_offset,
            raw=error.raw,
            reason=str(error),
        )


class FailedFetch:
    """What stands in the queue of a partition where a fetch or look-up failed.

    ``passing``: it is tried again by itself, so the error is raised once and then forgotten;
    otherwise it stands until the partition is sought elsewhere.
    """

    size: Final = 0
    is_exhausted: Final = False

    def __init__(
        self, topic_partition: TopicPartition, epoch: int, error: KafkaError, *, is_transient: bool
    ) -> None:
        self.topic_partition: Final = topic_partition
        self.epoch: Final = epoch
        self.error: Final = error
        self.is_transient: Final = is_transient
        self.raised = 0
        self.is_busy = False

    @property
    def is_blocked(self) -> bool:
        return not self.is_transient

    def release(self) -> None:
        """It holds nothing."""
