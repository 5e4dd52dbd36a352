"""Fetch sessions (KIP-227), which store a client's partitions so that messages contain only
changes.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from kohort.errors import ErrorCode
from kohort.protocol import ZERO_UUID
from kohort.protocol.messages import FetchRequest, FetchResponse

NO_SESSION = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
MAX_SESSIONS = 1000
_LAST_EPOCH = (1 << 31) - 1


class FetchKey(NamedTuple):
    """A partition and its topic, by name or by id as the request's version has it."""

    topic: str
    topic_id: bytes
    partition: int


@dataclass(slots=True)
class CachedPartition:
    """A partition of a fetch session: what to read, and the values of the last response."""

    key: FetchKey
    offset: int
    max_bytes: int
    leader_epoch: int
    last_fetched_epoch: int = -1
    high_watermark: int = -1
    log_start_offset: int = -1

    def update(self, data: FetchResponse.PartitionData) -> bool:
        """Store the values of a response; return True if the response must contain the
        partition.
        """
        changed = (
            bool(data.records)
            or data.error_code != ErrorCode.NONE
            or data.diverging_epoch.epoch >= 0
            or data.preferred_read_replica >= 0
            or data.high_watermark != self.high_watermark
            or data.log_start_offset != self.log_start_offset
        )
        failed = data.error_code != ErrorCode.NONE
        self.high_watermark = -1 if failed else data.high_watermark
        self.log_start_offset = data.log_start_offset
        return changed


@dataclass(slots=True)
class BrokerFetchSession:
    """A fetch session of one client; ``epoch`` is that of its next request."""

    id: int
    uses_topic_ids: bool
    epoch: int = 1
    partitions: dict[FetchKey, CachedPartition] = field(default_factory=dict)


@dataclass(slots=True)
class ServedFetch:
    """Partitions that one request reads. ``session`` is None without a session."""

    partitions: list[CachedPartition]
    session: BrokerFetchSession | None = None
    incremental: bool = False
    error: ErrorCode = ErrorCode.NONE


class FetchSessions:
    """The sessions of one broker. The least recently used one is removed when there are
    too many.
    """

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._sessions: dict[int, BrokerFetchSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def plan(self, request: FetchRequest, version: int) -> ServedFetch:
        """Find or create the session, and update it by the request."""
        by_id = version >= 13
        if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            self._sessions.pop(request.session_id, None)
            partitions = _merge({}, request)
            if request.session_epoch == FINAL_EPOCH:
                return ServedFetch(list(partitions.values()))
            session = self._open(by_id)
            session.partitions = partitions
            return ServedFetch(list(partitions.values()), session)
        return self._next(request, by_id)

    def _next(self, request: FetchRequest, by_id: bool) -> ServedFetch:
        session = self._sessions.pop(request.session_id, None)
        if session is None:
            return ServedFetch([], error=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        self._sessions[session.id] = session
        if session.uses_topic_ids != by_id:
            return ServedFetch([], session, error=ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        if session.epoch != request.session_epoch:
            return ServedFetch([], session, error=ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        _merge(session.partitions, request)
        for forgotten in request.forgotten_topics_data:
            for partition in forgotten.partitions:
                key = FetchKey(forgotten.topic, bytes(forgotten.topic_id), partition)
                session.partitions.pop(key, None)
        if not session.partitions:
            del self._sessions[session.id]
            return ServedFetch([])
        session.epoch = 1 if session.epoch == _LAST_EPOCH else session.epoch + 1
        return ServedFetch(list(session.partitions.values()), session, incremental=True)

    def _open(self, by_id: bool) -> BrokerFetchSession:
        if len(self._sessions) >= MAX_SESSIONS:
            del self._sessions[next(iter(self._sessions))]
        while True:
            session_id = self._rng.randint(1, _LAST_EPOCH)
            if session_id not in self._sessions:
                break
        session = self._sessions[session_id] = BrokerFetchSession(session_id, by_id)
        return session

    @staticmethod
    def changed_results(
        plan: ServedFetch, results: Iterable[tuple[CachedPartition, FetchResponse.PartitionData]]
    ) -> list[tuple[CachedPartition, FetchResponse.PartitionData]]:
        """Return the results that the response must contain.

        Partitions with data move to the end of the session, so that the next response begins with
        others.
        """
        if plan.session is None:
            return list(results)
        changed = []
        partitions = plan.session.partitions
        for cached, data in results:
            if cached.update(data) or not plan.incremental:
                changed.append((cached, data))
            if plan.incremental and data.records and cached.key in partitions:
                partitions[cached.key] = partitions.pop(cached.key)
        return changed


def _merge(
    partitions: dict[FetchKey, CachedPartition], request: FetchRequest
) -> dict[FetchKey, CachedPartition]:
    """Add the partitions of a request, and keep the last response's values of known ones."""
    for topic in request.topics:
        topic_id = bytes(topic.topic_id)
        name = topic.topic if topic_id == ZERO_UUID else ""
        for requested in topic.partitions:
            key = FetchKey(name, topic_id, requested.partition)
            known = partitions.get(key)
            if known is None:
                known = partitions[key] = CachedPartition(key, 0, 0, -1)
            known.offset = requested.fetch_offset
            known.max_bytes = requested.partition_max_bytes
            known.leader_epoch = requested.current_leader_epoch
            known.last_fetched_epoch = requested.last_fetched_epoch
    return partitions
