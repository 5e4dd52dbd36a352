"""Fetch sessions (KIP-227), which store a client's partitions so that messages contain only
changes.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass

from kohort.broker._fetch_session import (
    BrokerFetchSession,
    CachedPartition,
    FetchKey,
    has_content,
)
from kohort.errors import ErrorCode
from kohort.protocol import ZERO_UUID
from kohort.protocol.messages import FetchRequest, FetchResponse

NO_SESSION = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
MAX_SESSIONS = 1000
READ_COMMITTED = 1
_LAST_EPOCH = (1 << 31) - 1


@dataclass(slots=True)
class ServedFetch:
    """A request with its session.

    ``epoch`` is that of the next request. The session has another one if that request came already.
    """

    session: BrokerFetchSession
    reads_committed: bool = False
    incremental: bool = False
    error: ErrorCode = ErrorCode.NONE
    epoch: int = 1


class FetchSessions:
    """The sessions of one broker. The least recently used one is removed when there are
    too many.
    """

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._sessions: dict[int, BrokerFetchSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def close(self) -> None:
        """Remove all sessions, when the broker ends."""
        for session_id in list(self._sessions):
            self._close(session_id)

    def plan(self, request: FetchRequest, version: int) -> ServedFetch:
        """Find or create the session, and update it by the request."""
        by_id = version >= 13
        committed = request.isolation_level == READ_COMMITTED
        if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            self._close(request.session_id)
            is_kept = request.session_epoch == INITIAL_EPOCH
            new = self._open(by_id) if is_kept else BrokerFetchSession(NO_SESSION, by_id)
            _merge(new, request)
            return ServedFetch(new, committed)
        session = self._sessions.get(request.session_id)
        if session is None:
            none = BrokerFetchSession(NO_SESSION, by_id)
            return ServedFetch(none, committed, error=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if (error := self._check(session, request, by_id)) is not ErrorCode.NONE:
            return ServedFetch(session, committed, error=error)
        _merge(session, request)
        for forgotten in request.forgotten_topics_data:
            for partition in forgotten.partitions:
                session.remove(FetchKey(forgotten.topic, bytes(forgotten.topic_id), partition))
        if not session.partitions:
            self._close(session.id)
            return ServedFetch(BrokerFetchSession(NO_SESSION, by_id), committed)
        session.epoch = 1 if session.epoch == _LAST_EPOCH else session.epoch + 1
        return ServedFetch(session, committed, incremental=True, epoch=session.epoch)

    def _check(self, session: BrokerFetchSession, request: FetchRequest, by_id: bool) -> ErrorCode:
        self._sessions[session.id] = self._sessions.pop(session.id)
        if session.uses_topic_ids != by_id:
            return ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
        if session.epoch != request.session_epoch:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH
        return ErrorCode.NONE

    def _open(self, by_id: bool) -> BrokerFetchSession:
        if len(self._sessions) >= MAX_SESSIONS:
            self._close(next(iter(self._sessions)))
        while True:
            session_id = self._rng.randint(1, _LAST_EPOCH)
            if session_id not in self._sessions:
                break
        session = self._sessions[session_id] = BrokerFetchSession(session_id, by_id)
        session.acquire()
        return session

    def _close(self, session_id: int) -> None:
        if (session := self._sessions.pop(session_id, None)) is not None:
            session.release()

    @staticmethod
    def changed_results(
        plan: ServedFetch, results: Iterable[tuple[CachedPartition, FetchResponse.PartitionData]]
    ) -> list[tuple[CachedPartition, FetchResponse.PartitionData]]:
        """Return the results that the response must contain.

        Partitions with data move to the end of the session, so that the next response begins with
        others.
        """
        changed = []
        session = plan.session
        is_latest = session.epoch == plan.epoch
        for cached, data in results:
            if cached.update(data) or not plan.incremental:
                changed.append((cached, data))
            if plan.incremental and data.records:
                session.move_to_end(cached)
            end = data.last_stable_offset if plan.reads_committed else data.high_watermark
            is_idle = is_latest and not has_content(data) and cached.offset >= end
            session.settle(cached, is_idle=is_idle)
        return changed


def _merge(session: BrokerFetchSession, request: FetchRequest) -> None:
    """Add the partitions of a request, and keep the last response's values of known ones."""
    for topic in request.topics:
        topic_id = bytes(topic.topic_id)
        name = topic.topic if topic_id == ZERO_UUID else ""
        for requested in topic.partitions:
            cached = session.partition(FetchKey(name, topic_id, requested.partition))
            cached.offset = requested.fetch_offset
            cached.max_bytes = requested.partition_max_bytes
            cached.leader_epoch = requested.current_leader_epoch
            cached.last_fetched_epoch = requested.last_fetched_epoch
