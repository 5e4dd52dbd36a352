"""What the core knows of one partition: its records in flight, its window and its commit."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from kohort import OffsetAndMetadata, TopicPartition
from kohort.processing._batches import Chunk, end_of
from kohort.processing._done_set import decode_done, encode_done


class HasOffset(Protocol):
    """A record, or anything else with an offset."""

    @property
    def offset(self) -> int: ...


class Lane:
    """Records that are handled one after the other: all of a partition, of a key, or one alone.

    ``load`` is the record, or the batch, that is being handled or comes next. The others wait in
    ``queue``. A topic may have a lane for each record, so some attributes are set only when they
    are needed. ``failures`` counts the calls of the ``failed`` policy that raised, and ``failure``
    is its latest error. ``wake`` is the number of the lane's entry among the sleeping ones.
    ``called_again`` is the time of the latest call but the first one, for this load or an earlier
    one.
    """

    __slots__ = (
        "attempt",
        "called_again",
        "error",
        "failure",
        "failures",
        "key",
        "load",
        "partition",
        "queue",
        "started",
        "wake",
    )

    called_again: float
    failure: Exception
    failures: int
    wake: int

    def __init__(self, partition: Partition, key: Any, load: Any) -> None:
        self.partition: Partition = partition
        self.key: Any = key
        self.load: Any = load
        self.queue: deque[Any] | None = None
        self.attempt: int = 0
        """Number of calls of the handler for this load."""
        self.error: Exception | None = None
        """The error of the handler, while the ``failed`` policy is to be called with it."""
        self.started: float | None = None
        """Time of the first call for this load, by the latest tick."""

    def called(self) -> float:
        """Return the time of the latest call for this load, of the handler or of the policy."""
        return max(self.started or 0.0, getattr(self, "called_again", 0.0))


class Partition:
    """An assigned partition. It is replaced when the group assigns the partition again.

    ``open`` has the offsets in flight: taken, and neither finished nor skipped. ``order`` has the
    offsets as they were taken. Its first ones may be finished already.
    """

    __slots__ = (
        "_committed",
        "_inherited",
        "_last",
        "arrivals",
        "deadline",
        "is_closed",
        "is_dropped",
        "is_full",
        "is_splitting",
        "is_watched",
        "lanes",
        "mean_size",
        "open",
        "order",
        "pieces",
        "polled",
        "seen",
        "since_check",
        "tp",
        "waiting",
    )

    def __init__(self, tp: TopicPartition, committed: OffsetAndMetadata | None) -> None:
        self.tp: TopicPartition = tp
        self.lanes: dict[Any, Lane] = {}
        self.open: set[int] = set()
        self.order: deque[int] = deque()
        self.seen: int | None = None
        """The offset after the last one taken; None until the first position is known."""
        self.polled: int | None = None
        """The offset after the last one that a poll returned."""
        self.waiting: deque[Any] = deque()
        """Records that a poll returned and for which the window has no room yet."""
        self.is_full: bool = False
        self.is_closed: bool = False
        """True if no more handlers are started for it."""
        self.is_dropped: bool = False
        """True if it belongs to others, so that results no longer count."""
        self.deadline: float | None = None
        """The time at which its handlers are cancelled, once they are to end."""
        self.is_watched: bool = False
        """True if the end of a handler needs more than the usual steps: one of the three above."""
        self.mean_size: float = 0.0
        """Bytes of a record, as of the records that were sampled last."""
        self.since_check: int = 0
        """Number of finished records since the window was last checked."""
        self.arrivals: deque[tuple[int, float]] = deque()
        """Ends of polls and their times, while their records wait for a batch."""
        self.pieces: list[tuple[list[Any], Exception | None, int]] = []
        """Parts of a failed batch, the next one last. Each has the error for the policy, if it is
        to be called, and the number of attempts."""
        self.is_splitting: bool = False
        """True while the parts of a failed batch are handled."""
        self._committed = committed
        self._inherited: set[int] = set()
        """Offsets from ``seen`` on that an earlier owner has finished."""
        self._last = committed
        """What the group has as the committed offset, as far as it is known."""

    def begin(self, position: int) -> None:
        """Note the first position. A seek to before the committed offset asks for a replay."""
        committed = self._committed
        self.seen = self.polled = position
        if committed is not None and committed.offset <= position:
            done = decode_done(committed.offset, committed.metadata)
            self._inherited = {offset for offset in done if offset >= position}

    def move_to(self, position: int) -> None:
        """Note the position of a partition without records in flight, which may pass holes."""
        if self.is_closed or self.open or self.waiting:
            return
        if self.seen is None:
            self.begin(position)
        elif position > self.seen:
            self._take_to(position)
            self.polled = position

    def take(self, records: list[Any]) -> list[Any]:
        """Take records into flight. Return those that no earlier owner has finished."""
        if self._inherited and not isinstance(records[0], Chunk):
            done = self._inherited
            kept = [record for record in records if record.offset not in done]
        else:
            kept = records
        offsets = [record.offset for record in kept]
        self.open.update(offsets)
        self.order.extend(offsets)
        self._take_to(end_of(records[-1]))
        return kept

    def note_sizes(self, records: Sequence[Any]) -> None:
        """Sample the sizes of polled records. Columns are left out, because they share memory."""
        sample = (records[0], records[len(records) // 2], records[-1])
        if not isinstance(sample[0], Chunk):
            size = sum(each.serialized_value_size for each in sample) / len(sample)
            self.mean_size = max(size, (self.mean_size + size) / 2)

    def bytes_in_flight(self) -> float:
        """Return the estimated bytes of the records in flight."""
        return self.mean_size * (len(self.open) + len(self.waiting))

    def finish(self, load: Any) -> None:
        """Note that a record or a batch is finished."""
        if isinstance(load, list):
            self.open.difference_update([piece.offset for piece in load])
        else:
            self.open.discard(load.offset)

    def note_split(self, offsets: Iterable[int]) -> None:
        """Note the first offsets of parts of chunks in flight."""
        if not self.open.issuperset(new := set(offsets)):
            self.open |= new
            self.order = deque(sorted(self.open))

    def _take_to(self, end: int) -> None:
        self.seen = end
        if self._inherited:
            self._inherited = {offset for offset in self._inherited if offset >= end}

    def lowest(self) -> int | None:
        """Return the lowest offset in flight, else the offset after the last one taken."""
        order, unfinished = self.order, self.open
        while order:
            if order[0] in unfinished:
                return order[0]
            order.popleft()
        return self.seen

    def taken(self) -> int:
        """Return the number of offsets from the lowest one in flight to the last one taken."""
        lowest = self.lowest()
        return 0 if lowest is None or self.seen is None else self.seen - lowest

    # -- commits ------------------------------------------------------------------------------

    def to_commit(self, *, with_done: bool, longest: int) -> OffsetAndMetadata | None:
        """Return what to commit, or None if the group has it already.

        A done set of more than ``longest`` characters is left out.
        """
        lowest = self.lowest()
        if lowest is None or self.seen is None:
            return None
        text = ""
        if with_done or self._inherited:
            text = encode_done(lowest, self.seen, self.open, self._inherited)
            if (self.seen == lowest and not self._inherited) or len(text) > longest:
                text = ""
        last = self._last
        if last is not None and (last.offset, last.metadata) == (lowest, text):
            return None
        return OffsetAndMetadata(lowest, text)

    def note_committed(self, committed: OffsetAndMetadata) -> None:
        """Note what the group has accepted."""
        self._last = committed
