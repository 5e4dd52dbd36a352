"""Fetch sessions (KIP-227): a client's partitions, so that messages contain only changes.

A session of 1,000 partitions usually has news in a few of them, so a response looks only at the
pending partitions. The others are idle, and a full walk would find nothing to report in them.

Each partition starts as pending. A response that finds nothing in it makes it idle. A notification
of its log makes it pending again and wakes the waiting request.

Invariants:

1. A response with an idle partition would be empty for it. This broker has a replica. There is no
   error, no diverging epoch, no preferred replica, and no record to read. The session has the
   current high watermark and log start.
2. An idle partition watches its log, which notifies of each append and of each change of its start,
   end, leader or replicas. So no change of the log is missed.
3. The view has all other facts that a response depends on. Another view makes every partition
   pending, and a request that names a partition makes that one pending.
4. Only the response to the latest request makes partitions idle, because only that request has the
   session's view and offsets.
5. A watch ends with its first notification, so an unused session costs one call a partition, not
   one for each append. Locating the partition starts the next watch. A partition watches one log,
   because the log of a deleted topic notifies.
6. All watches end when neither the broker nor a request uses the session.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import anyio

from kohort.broker.log import PartitionLog
from kohort.errors import ErrorCode
from kohort.protocol import ZERO_UUID
from kohort.protocol.messages import FetchRequest, FetchResponse
from kohort.types import NamedTuple


class FetchKey(NamedTuple):
    """A partition and its topic, by name or by id as the request's version has it."""

    topic: str
    topic_id: bytes
    partition: int


class FetchView(NamedTuple):
    """Facts about a request that decide what it finds in an unchanged partition."""

    version: int
    isolation_level: int
    rack: str
    principal: str
    host: str
    acl_version: int


@dataclass(eq=False, slots=True)
class CachedPartition:
    """A partition of a fetch session: what to read, and the values of the last response.

    ``place`` orders the partitions of a session.
    """

    key: FetchKey
    session: BrokerFetchSession
    place: int
    offset: int = 0
    max_bytes: int = 0
    leader_epoch: int = -1
    last_fetched_epoch: int = -1
    high_watermark: int = -1
    log_start_offset: int = -1
    _watched: PartitionLog | None = None

    def update(self, data: FetchResponse.PartitionData) -> bool:
        """Store the values of a response; return True if the response must contain the
        partition.
        """
        changed = (
            has_content(data)
            or data.high_watermark != self.high_watermark
            or data.log_start_offset != self.log_start_offset
        )
        failed = data.error_code != ErrorCode.NONE
        self.high_watermark = -1 if failed else data.high_watermark
        self.log_start_offset = data.log_start_offset
        return changed

    def watch(self, log: PartitionLog) -> None:
        """Wait for the next notification of the log of this partition."""
        self._watched = log
        log.watchers.add(self._on_notified)

    def unwatch(self) -> None:
        if self._watched is not None:
            self._watched.watchers.discard(self._on_notified)
            self._watched = None

    def _on_notified(self) -> None:
        self.unwatch()
        self.session.add_pending(self)


@dataclass(eq=False, slots=True)
class BrokerFetchSession:
    """A fetch session of one client; ``epoch`` is that of its next request.

    A request without a session gets one with the id 0, which ends with the request.
    """

    id: int
    uses_topic_ids: bool
    epoch: int = 1
    partitions: dict[FetchKey, CachedPartition] = field(default_factory=dict)
    pending: set[CachedPartition] = field(default_factory=set)
    """Partitions that the next response must look at."""
    _view: FetchView | None = None
    _places: int = 0
    _users: int = 0
    _news: anyio.Event | None = None

    def partition(self, key: FetchKey) -> CachedPartition:
        """Return a partition that a request names; it is new or pending again."""
        cached = self.partitions.get(key)
        if cached is None:
            cached = self.partitions[key] = CachedPartition(key, self, self._next_place())
        self.pending.add(cached)
        return cached

    def remove(self, key: FetchKey) -> None:
        """Forget a partition; an unknown one is ignored."""
        if (cached := self.partitions.pop(key, None)) is not None:
            cached.unwatch()
            self.pending.discard(cached)

    def move_to_end(self, cached: CachedPartition) -> None:
        cached.place = self._next_place()

    def _next_place(self) -> int:
        self._places += 1
        return self._places

    def set_view(self, view: FetchView) -> None:
        """Set the view of a request, which decides about all partitions if it is another one."""
        if view != self._view:
            self._view = view
            self.pending.update(self.partitions.values())

    def add_pending(self, cached: CachedPartition) -> None:
        """Let the next response look at a partition, and wake the request that waits."""
        self.pending.add(cached)
        if self._news is not None:
            self._news.set()

    def settle(self, cached: CachedPartition, *, is_idle: bool) -> None:
        """Make a partition idle or pending after a response; a forgotten one is ignored."""
        if self.partitions.get(cached.key) is not cached:
            return
        if is_idle:
            self.pending.discard(cached)
        else:
            self.pending.add(cached)

    async def wait(self) -> None:
        """Wait until the log of a partition notifies. Requests may share the event."""
        if self._news is None or self._news.is_set():
            self._news = anyio.Event()
        await self._news.wait()

    # Use by the broker and by requests

    def acquire(self) -> None:
        self._users += 1

    def release(self) -> None:
        self._users -= 1
        if not self._users:
            for cached in self.partitions.values():
                cached.unwatch()
            # They refer to the session, which would be garbage that only the collector frees.
            self.partitions.clear()
            self.pending.clear()

    @contextmanager
    def used(self) -> Iterator[None]:
        """Keep the watches during a request, also when the broker removes the session."""
        self.acquire()
        try:
            yield
        finally:
            self.release()


def has_content(data: FetchResponse.PartitionData) -> bool:
    """True if a result has more than the ends of the log, so that it is never left out."""
    return (
        bool(data.records)
        or data.error_code != ErrorCode.NONE
        or data.diverging_epoch.epoch >= 0
        or data.preferred_read_replica >= 0
    )


def in_order(partitions: Iterable[CachedPartition]) -> list[CachedPartition]:
    return sorted(partitions, key=lambda cached: cached.place)


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
