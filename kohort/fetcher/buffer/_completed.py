"""The result of one fetch for one partition: undecoded records, or an error in their place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kohort.errors import CorruptBatchError, DataError, KafkaError, RecordDeserializationError
from kohort.fetcher.buffer._memory import Releasable
from kohort.records import DEFAULT_BUDGET, ConsumerRecord, RecordSet, Scratch
from kohort.subscription import Watermarks
from kohort.types import NamedTuple, TopicPartition

if TYPE_CHECKING:
    from kohort.fetcher.buffer._deserialize import DeserializeRecord
    from kohort.records import TablePlan


NO_WATERMARKS = Watermarks()


class DecodeOptions:
    """Options for decoding batches. All fetches of a consumer share them."""

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
        """Buffer for decompressed batches. Only one thread decodes at a time."""


class CompletedFetch:
    """The records of one partition from one response, decoded while the caller takes them.

    The background task creates it and reads only the batch headers, which say where the next fetch
    starts. Records before the requested offset, control batches and aborted transactions are
    skipped. :attr:`position` skips them, too. Records are copies, so ``lease`` is released when
    the last batch is decoded.
    """

    def __init__(
        self,
        topic_partition: TopicPartition,
        epoch: int,
        records: RecordSet,
        *,
        deserialize: DeserializeRecord | None = None,
        lease: Releasable | None = None,
        watermarks: Watermarks = NO_WATERMARKS,
    ) -> None:
        self.topic_partition: Final = topic_partition
        self.epoch: Final = epoch
        self.watermarks: Final = watermarks
        self.size: Final = records.scan.size
        self.next_offset: Final = records.next_offset
        """The offset at which the next fetch starts."""
        self.last_leader_epoch: Final = records.scan.leader_epoch
        """The leader epoch of the last batch, or -1 without one."""
        self.position: int = records.passed
        """The offset after the last record that was taken."""
        self.error: DataError | None = None
        """The error that stopped the last take(). No record after it is returned."""
        self.raised: int = 0
        self.is_busy = False
        self.is_measured: bool = False
        """True if rows may be in a table. Records after :attr:`position` may then be missing."""
        self._set = records
        self._deserialize = deserialize
        self._lease = lease
        self._ready: list[ConsumerRecord[Any, Any]] = []
        self._passed = records.passed  # the offset after finished records
        self._failed_at: int | None = None  # the offset of the latest error

    @property
    def is_blocked(self) -> bool:
        return self.error is not None

    @property
    def is_exhausted(self) -> bool:
        """True if no record is left to take and no error to raise."""
        found = self._set
        return found.done and found.used == len(found.records) and not self._ready

    def take(self, limit: int) -> list[ConsumerRecord[Any, Any]]:
        """Return up to ``limit`` records, and stop at a record that cannot be read.

        ``error`` is set then. The next take() calls the deserializer again. A corrupt batch is not
        read again.
        """
        taken, ready = self._ready[:limit], self._ready[limit:]
        try:
            if not ready:
                self._take(limit, taken)
            else:
                self.error = None  # a later take() finds it again after these records
            if ready or self._set.used < len(self._set.records):
                position = taken[-1].offset + 1 if taken else max(self.position, self._passed)
            else:
                position = self._passed
        except BaseException:  # for example Ctrl-C in a deserializer
            self._ready = taken + ready
            raise
        self._ready, self.position = ready, position
        return taken

    def next_timestamp(self) -> int | None:
        """Return the timestamp of the next record to take, or None while it is unknown.

        The caller holds the lock, so that no drain claims the fetch meanwhile.
        """
        if self.is_busy or self.is_measured or self.error is not None:
            return None
        return self._ready[0].timestamp if self._ready else self._set.next_timestamp()

    @property
    def holds_bytes(self) -> bool:
        """True until :meth:`release`."""
        return self._lease is not None or self._set.has_bytes

    @property
    def is_partly_decoded(self) -> bool:
        """True if records were decoded and not taken. The bytes of these are gone."""
        return bool(self._ready) or self._set.used < len(self._set.records)

    def measure(self, plan: TablePlan) -> int:
        """Put rows into a table in place of taking records, and return their number.

        It cannot be undone.
        """
        rows = 0
        self.is_measured = True  # set before any call, because Ctrl-C is raised in calls
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
        """Skip the record that the last take() could not deserialize."""
        assert isinstance(self.error, RecordDeserializationError)
        assert self.error.next_offset is not None
        position = max(self.position, self.error.next_offset)
        self._set.used += 1
        self.error, self.raised, self.position = None, 0, position
        self._close_finished()

    def put_back(self, records: list[ConsumerRecord[Any, Any]]) -> None:
        """Undo the latest take()."""
        if records:
            self._ready = records + self._ready
            self.position = records[0].offset

    def release(self) -> None:
        """Release the bytes. Batches that are not decoded yet are lost."""
        self._set.release()
        self._release_lease()

    def _release_lease(self) -> None:
        if self._lease is not None:
            self._lease.release()
            self._lease = None

    def _take(self, limit: int, taken: list[ConsumerRecord[Any, Any]]) -> None:
        found, deserialize = self._set, self._deserialize
        if self._passed != found.passed:
            self._close_finished()  # Ctrl-C may have ended the last call before this step
        if isinstance(self.error, CorruptBatchError):
            return
        try:
            while len(taken) < limit:
                records = found.records
                if found.used < len(records):
                    stop = min(len(records), found.used + limit - len(taken))
                    if deserialize is None:
                        taken += records[found.used : stop]
                        found.used = stop
                    else:
                        for record in records[found.used : stop]:
                            taken += [deserialize(record)]  # append() is a call: Ctrl-C
                            found.used += 1
                elif found.done or not self._read_on(limit - len(taken)):
                    break
                if found.used == len(found.records):
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
        found = self._set
        if found.used == len(found.records):
            found.records, found.used = [], 0
            self._passed = found.passed

    def _read_on(self, enough: int) -> bool:
        """Decode the next records, and return False at the end."""
        found = self._set
        try:
            while not found.done:
                found.read(enough)
                if found.done:
                    found.release()
                    if self._lease is not None:
                        self._release_lease()
                if found.records:
                    return True
                self._passed = found.passed
        except CorruptBatchError as error:
            self._passed = found.passed
            raise self._located(error) from error.__cause__
        return False

    def _located(self, error: CorruptBatchError) -> CorruptBatchError:
        """Return the error with the partition and the advice."""
        tp = self.topic_partition
        offset = self._passed if error.offset is None else max(error.offset, self._passed)
        next_offset = error.next_offset
        if next_offset is not None:
            advice = f"Call seek({tp}, {next_offset}) to skip it"
        else:
            advice = "Its end is unknown, so call seek() with a later offset to skip it"
        return type(error)(
            f"{tp.topic}-{tp.partition}: {error}. No record is skipped, and other partitions "
            f"continue. {advice}, or seek({tp}, {offset}) to read it again",
            topic_partition=tp,
            offset=offset,
            next_offset=next_offset,
            raw=error.raw,
            reason=str(error),
        )


class OversizedBatch(NamedTuple):
    """A partition and the first batch of its records, which no response may carry.

    Unknown fields are None.
    """

    topic_partition: TopicPartition
    size: int | None = None
    """Bytes of the batch, with its header."""
    next_offset: int | None = None
    """The offset after its last record."""


class FailedFetch:
    """The entry for a failed fetch or look-up in the queue of a partition.

    A transient error is raised once and then dropped, because the fetcher retries. Any other error
    remains until the partition is sought to another offset.
    """

    size: Final = 0
    is_exhausted: Final = False
    holds_bytes: Final = False

    def __init__(
        self,
        topic_partition: TopicPartition,
        epoch: int,
        error: KafkaError,
        *,
        is_transient: bool,
        oversized: OversizedBatch | None = None,
    ) -> None:
        self.topic_partition: Final = topic_partition
        self.epoch: Final = epoch
        self.error: Final = error
        self.is_transient: Final = is_transient
        self.oversized: Final = oversized
        self.raised = 0
        self.is_busy = False

    @property
    def is_blocked(self) -> bool:
        return not self.is_transient

    def release(self) -> None:
        """Do nothing, because there are no bytes."""
