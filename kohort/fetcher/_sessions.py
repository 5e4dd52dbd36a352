"""Fetch sessions (KIP-227): the broker remembers what is fetched, so that only changes travel.

A session belongs to a lane. Its first request is a full one, with every partition; the broker
answers with an id, and from then on a request names only what is new, changed or forgotten, and
an answer only what there is something to say of. Whatever goes wrong, the next request is a full
one again, which makes the broker drop the old session.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from kohort.errors import ErrorCode
from kohort.fetcher._request import Ask, FetchPlan
from kohort.protocol import ZERO_UUID
from kohort.types import TopicPartition

if TYPE_CHECKING:
    from kohort.protocol.messages import FetchResponse

NO_SESSION = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
_LAST_EPOCH = (1 << 31) - 1

SESSION_ERRORS = (
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
)
"""The session is gone or mixed up; a full request begins another one."""


class Watermarks(NamedTuple):
    """The ends of a partition, as they were told last."""

    high_watermark: int
    last_stable_offset: int
    log_start_offset: int


class Quiet(Mapping[TopicPartition, Watermarks]):
    """The partitions that an answer leaves out, and their latest watermarks.

    A view: making one costs nothing, however many partitions the session has.
    """

    def __init__(
        self, told: Mapping[TopicPartition, Watermarks], there: Collection[TopicPartition]
    ) -> None:
        self._told = told
        self._there = there

    def __getitem__(self, tp: TopicPartition) -> Watermarks:
        if tp in self._there:
            raise KeyError(tp)
        return self._told[tp]

    def __contains__(self, tp: object) -> bool:
        return tp in self._told and tp not in self._there

    def __iter__(self) -> Iterator[TopicPartition]:
        return (tp for tp in self._told if tp not in self._there)

    def __len__(self) -> int:
        return sum(1 for _ in self)


NOTHING_QUIET = Quiet({}, ())


class FetchSession:
    """One lane's session. A request at a time: plan() or update(), then answered() or failed().

    The partitions of the latest request stay in :attr:`asks`, so that a request and an answer cost
    as much as they change.
    """

    def __init__(self, *, enabled: bool = True) -> None:
        self._enabled = enabled
        self.id = NO_SESSION
        self.asks: dict[TopicPartition, Ask] = {}
        """Every partition that the latest request fetches, named in it or not."""
        self.names: dict[bytes, str] = {}
        """The topics of these by their ids."""
        self.answered_at: float | None = None
        self._epoch = INITIAL_EPOCH
        self._by_id = False
        self._without_id = 0
        self._sizes: Counter[int] = Counter()
        self._told: dict[TopicPartition, Watermarks] = {}
        self._unsettled: dict[TopicPartition, None] = {}

    @property
    def incremental(self) -> bool:
        """The request under way, or the next one, is about changes only."""
        return self._epoch > INITIAL_EPOCH

    @property
    def sizes(self) -> Mapping[int, int]:
        """The sizes that are asked for, and of how many partitions each."""
        return self._sizes

    def plan(self, asks: Sequence[Ask]) -> FetchPlan:
        """What the next request has to say so that exactly these are fetched."""
        wanted = {ask.topic_partition: ask for ask in asks}
        changes: dict[TopicPartition, Ask | None] = {
            tp: None for tp in self.asks if tp not in wanted
        }
        return self.update(changes | wanted)

    def update(self, changes: Mapping[TopicPartition, Ask | None]) -> FetchPlan:
        """The next request after these changes; None: the partition is no longer fetched."""
        changed: list[Ask] = []
        forgotten: list[Ask] = []
        for tp, ask in changes.items():
            known = self.asks.get(tp)
            if known == ask:
                continue
            if ask is not None and known is not None and known[3:] == ask[3:]:
                self.asks[tp] = ask  # another offset, or another epoch
                self._unsettled[tp] = None
                if known.offset != ask.offset:
                    changed.append(ask)
                continue
            if known is not None:
                self._without_id -= known.topic_id == ZERO_UUID
                self._count(known.max_bytes, -1)
            if ask is None:
                assert known is not None
                del self.asks[tp]
                self._unsettled.pop(tp, None)
                forgotten.append(known)
                continue
            self.asks[tp] = ask
            self.names[ask.topic_id] = tp.topic
            self._without_id += ask.topic_id == ZERO_UUID
            self._count(ask.max_bytes, 1)
            self._unsettled[tp] = None
            if known is None or not _same(known, ask):
                changed.append(ask)
            if known is not None and known.topic_id != ask.topic_id:
                self.failed()  # another topic of the same name
        by_id = not self._without_id
        if by_id != self._by_id:
            self.failed()
        self._by_id = by_id
        if not self._enabled or not self.incremental:
            self._told.clear()
            self.names = {ask.topic_id: tp.topic for tp, ask in self.asks.items()}
            epoch = INITIAL_EPOCH if self._enabled else FINAL_EPOCH
            return FetchPlan(list(self.asks.values()), (), self.id, epoch, by_id)
        for ask in forgotten:
            self._told.pop(ask.topic_partition, None)
        return FetchPlan(changed, forgotten, self.id, self._epoch, by_id)

    def _count(self, size: int, by: int) -> None:
        self._sizes[size] += by
        if not self._sizes[size]:
            del self._sizes[size]

    def answered(
        self,
        session_id: int,
        there: Mapping[TopicPartition, FetchResponse.PartitionData],
        at: float = 0.0,
    ) -> Quiet:
        """Take an answer without an error of its own, and what is there in it.

        Returns the partitions that it leaves out because there is nothing new of them, with what
        was told of them last.
        """
        if not self._enabled:
            return NOTHING_QUIET
        self.answered_at = at
        for tp, data in there.items():
            if data.error_code:
                self._told.pop(tp, None)
            else:
                self._told[tp] = Watermarks(
                    data.high_watermark, data.last_stable_offset, data.log_start_offset
                )
        if not self.incremental:
            self.id = session_id
            whole = len(there) == len(self.asks)
            self._epoch = 1 if whole and self.id != NO_SESSION else INITIAL_EPOCH
            return NOTHING_QUIET
        if session_id != self.id:
            # The broker has closed it: every partition was forgotten, or it lacks the memory.
            self.id, self._epoch = session_id, INITIAL_EPOCH
        else:
            self._epoch = 1 if self._epoch == _LAST_EPOCH else self._epoch + 1
        return Quiet(self._told, there)

    def settle(
        self,
        quiet: Quiet,
        there: Collection[TopicPartition],
        *,
        had_room: bool,
    ) -> dict[TopicPartition, Watermarks]:
        """The quiet partitions to note something of: changed, or in an answer, since the last time.

        An answer that is quiet about a partition again says nothing new. But only an answer with
        room for more (``had_room``) says all there is to say.
        """
        due = {tp: quiet[tp] for tp in self._unsettled if tp in quiet}
        if had_room:
            self._unsettled = dict.fromkeys(tp for tp in self._unsettled if tp not in due)
        self._unsettled.update(dict.fromkeys(there))
        return due

    def fetched_at(self, tp: TopicPartition) -> float | None:
        """Time of the latest response that named the partition, or left it out as unchanged."""
        return self.answered_at if tp in self._told else None

    def end(self) -> FetchPlan | None:
        """What to say so that the broker forgets the session; None if there is none."""
        if self.id == NO_SESSION:
            return None
        plan = FetchPlan((), (), self.id, FINAL_EPOCH, self._by_id)
        self.id, self._epoch = NO_SESSION, INITIAL_EPOCH
        return plan

    def failed(self, code: int = 0) -> None:
        """Nobody knows what the broker has understood: begin again, in place of the old one."""
        self._epoch = INITIAL_EPOCH
        if code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
            self.id = NO_SESSION


def _same(known: Ask, ask: Ask) -> bool:
    # The partition's epoch is ours alone.
    return known[2:] == ask[2:]
