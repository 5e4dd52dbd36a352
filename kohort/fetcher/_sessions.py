"""Fetch sessions (KIP-227): the broker remembers what is fetched, so that only changes travel.

A session belongs to a lane. Its first request is a full one, with every partition; the broker
answers with an id, and from then on a request names only what is new, changed or forgotten, and
an answer only what there is something to say of. Whatever goes wrong, the next request is a full
one again, which makes the broker drop the old session.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from kohort.errors import ErrorCode
from kohort.fetcher._request import Ask, FetchPlan
from kohort.protocol.messages import FetchResponse
from kohort.types import TopicPartition

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


class FetchSession:
    """One lane's session. A request at a time: plan(), then answered() or failed()."""

    def __init__(self, *, enabled: bool = True) -> None:
        self._enabled = enabled
        self.id = NO_SESSION
        self._epoch = INITIAL_EPOCH
        self._by_id = False
        self._asks: dict[TopicPartition, Ask] = {}
        self._told: dict[TopicPartition, Watermarks] = {}

    @property
    def incremental(self) -> bool:
        """The request under way, or the next one, is about changes only."""
        return self._epoch > INITIAL_EPOCH

    def plan(self, asks: Sequence[Ask]) -> FetchPlan:
        """What the next request has to say so that exactly these are fetched."""
        by_id = all(any(ask.topic_id) for ask in asks)
        if not self._enabled:
            return FetchPlan(asks, (), NO_SESSION, FINAL_EPOCH, by_id)
        known, self._asks = self._asks, {ask.topic_partition: ask for ask in asks}
        if by_id != self._by_id or _made_anew(known, self._asks):
            self.failed()
        self._by_id = by_id
        if not self.incremental:
            self._told.clear()
            return FetchPlan(asks, (), self.id, INITIAL_EPOCH, by_id)
        changed = [ask for ask in asks if not _same(known.get(ask.topic_partition), ask)]
        forgotten = [ask for tp, ask in known.items() if tp not in self._asks]
        for ask in forgotten:
            self._told.pop(ask.topic_partition, None)
        return FetchPlan(changed, forgotten, self.id, self._epoch, by_id)

    def answered(
        self, session_id: int, there: Mapping[TopicPartition, FetchResponse.PartitionData]
    ) -> Mapping[TopicPartition, Watermarks]:
        """Take an answer without an error of its own, and what is there in it.

        Returns the partitions that it leaves out because there is nothing new of them, with what
        was told of them last.
        """
        if not self._enabled:
            return {}
        for tp, data in there.items():
            if data.error_code:
                self._told.pop(tp, None)
            else:
                self._told[tp] = Watermarks(
                    data.high_watermark, data.last_stable_offset, data.log_start_offset
                )
        if not self.incremental:
            self.id = session_id
            whole = len(there) == len(self._asks)
            self._epoch = 1 if whole and self.id != NO_SESSION else INITIAL_EPOCH
            return {}
        if session_id != self.id:
            # The broker has closed it: every partition was forgotten, or it lacks the memory.
            self.id, self._epoch = session_id, INITIAL_EPOCH
        else:
            self._epoch = 1 if self._epoch == _LAST_EPOCH else self._epoch + 1
        return {tp: told for tp, told in self._told.items() if tp not in there}

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


def _same(known: Ask | None, ask: Ask) -> bool:
    # The partition's epoch is ours alone.
    return known is not None and known._replace(epoch=ask.epoch) == ask


def _made_anew(known: Mapping[TopicPartition, Ask], asks: Mapping[TopicPartition, Ask]) -> bool:
    """Whether a topic has another id than before, for the same partition."""
    return any(tp in known and known[tp].topic_id != ask.topic_id for tp, ask in asks.items())
