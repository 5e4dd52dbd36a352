"""ShareFetch (API 78), versions 1-2: a member acquires records, and acknowledges earlier ones.

Version 2 adds the strict limit of records (KIP-1206) and renewals of locks (KIP-1222).

A fetch without records waits. Besides new records, expired locks and a window that has moved end
the wait. As in Kafka, released records do not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import anyio

from kohort.broker.apis._registry import Context, serves
from kohort.broker.apis._share_requests import (
    AckResult,
    acknowledge,
    named_partitions,
    session_key,
    topic_error,
)
from kohort.broker.log import PartitionLog
from kohort.broker.share import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    AcquireLimit,
    Fetched,
    SessionKey,
    ShareKey,
    ShareSession,
)
from kohort.errors import ErrorCode
from kohort.protocol.messages import ShareFetchRequest, ShareFetchResponse

_Data = ShareFetchResponse.PartitionData
_Topic = ShareFetchResponse.ShareFetchableTopicResponse
_STRICT = 1
_MOVED = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


@dataclass(slots=True)
class _Fetch:
    """A request that is served. ``keys`` are the partitions that it can read, in their turn."""

    ctx: Context
    request: ShareFetchRequest
    member: SessionKey
    keys: list[ShareKey] = field(default_factory=list)
    errors: dict[ShareKey, ErrorCode] = field(default_factory=dict)
    not_ready: list[ShareKey] = field(default_factory=list)
    """Partitions whose states are not initialized yet."""
    results: dict[ShareKey, Fetched] = field(default_factory=dict)
    acks: dict[ShareKey, AckResult] = field(default_factory=dict)


@serves(ShareFetchRequest, (1, 2))
async def share_fetch(ctx: Context, request: ShareFetchRequest) -> ShareFetchResponse:
    member = session_key(request.group_id, request.member_id)
    if isinstance(member, ErrorCode):
        return ShareFetchResponse(error_code=member)
    named = list(named_partitions(member.group_id, request.topics))
    sizes = request.max_wait_ms, request.min_bytes, request.max_bytes, request.max_records
    if request.is_renew_ack and any(sizes):
        return ShareFetchResponse(error_code=ErrorCode.INVALID_REQUEST)
    epoch = request.share_session_epoch
    sessions = ctx.broker.share_leader.sessions
    if epoch == INITIAL_EPOCH:
        if any(acks for _, acks in named):
            return ShareFetchResponse(error_code=ErrorCode.INVALID_REQUEST)
        session = sessions.open(member, ctx.connection)
        if session is ErrorCode.SHARE_SESSION_LIMIT_REACHED:
            # As in Kafka, a refused client does not come back at once.
            await anyio.sleep(max(request.max_wait_ms, 0) / 1000)
    else:
        session = sessions.use(member, epoch)
    if isinstance(session, ErrorCode):
        return ShareFetchResponse(error_code=session)
    serving = _Fetch(ctx, request, member)
    for key, acks in named:
        if acks:
            serving.acks[key] = acknowledge(ctx, member, key, acks, renews=request.is_renew_ack)
    if epoch == FINAL_EPOCH:
        ctx.broker.share_leader.close_session(session)
    else:
        _update(serving, session, named)
        if not request.is_renew_ack:
            _prepare(serving, session)
            await _wait_for_records(serving)
    ctx.broker.cluster.changed()
    return _response(serving, tells_all=epoch == INITIAL_EPOCH)


def _update(
    serving: _Fetch, session: ShareSession, named: Sequence[tuple[ShareKey, object]]
) -> None:
    """Add the named partitions to the session, and forget others.

    Partitions that do not exist get their error once. So a session is never larger than the
    cluster.
    """
    topics = serving.ctx.broker.cluster.topics
    added: list[ShareKey] = []
    for key, _ in named:
        topic = topics.by_id(key.topic_id)
        if topic is not None and 0 <= key.partition < len(topic.partitions):
            added.append(key)
        elif key not in session.partitions:
            unknown = topic_error(serving.ctx, key) or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            serving.errors[key] = unknown
    forgotten = (
        ShareKey(session.key.group_id, bytes(topic.topic_id), partition)
        for topic in serving.request.forgotten_topics_data
        for partition in topic.partitions
    )
    session.update(added, forgotten)


def _prepare(serving: _Fetch, session: ShareSession) -> None:
    """Load the partitions of the session, and find those that cannot be read."""
    for key in session.in_turn():
        error = topic_error(serving.ctx, key)
        if error is ErrorCode.NONE:
            error = serving.ctx.broker.share_leader.load(key)
        elif error is ErrorCode.UNKNOWN_TOPIC_ID:
            # The topic was deleted, so the session knows its name still.
            error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if error is ErrorCode.NONE:
            serving.keys.append(key)
        elif error is ErrorCode.INVALID_REQUEST:
            serving.not_ready.append(key)
        else:
            serving.errors[key] = error


async def _wait_for_records(serving: _Fetch) -> None:
    """Acquire records, after a wait until there are any, or until no time is left.

    At the end of the wait it takes what is there, such as records that were released meanwhile.
    """
    request, leader = serving.request, serving.ctx.broker.share_leader
    deadline = anyio.current_time() + max(request.max_wait_ms, 0) / 1000
    watches = _Watches(serving)
    try:
        while serving.keys or serving.not_ready:
            watches.start()
            for key in list(serving.not_ready):
                if leader.load(key) is ErrorCode.NONE:
                    serving.not_ready.remove(key)
                    serving.keys.append(key)
            is_over = anyio.current_time() >= deadline
            if is_over or _has_enough(serving):
                _acquire(serving)
            if is_over or any(each.acquired or each.is_moved for each in serving.results.values()):
                return
            with anyio.CancelScope(deadline=deadline):
                await watches.woken.wait()
    finally:
        watches.stop()


def _has_enough(serving: _Fetch) -> bool:
    request, leader = serving.request, serving.ctx.broker.share_leader
    wanted = max(request.min_bytes, 1)
    total = 0
    for key in serving.keys:
        total += leader.readable_bytes(key, wanted)
        if total >= wanted:
            return True
    return False


def _acquire(serving: _Fetch) -> None:
    request, leader = serving.request, serving.ctx.broker.share_leader
    if not serving.keys:
        return
    left = request.max_records
    max_bytes = max(request.max_bytes, 0) // len(serving.keys)
    is_strict = request.share_acquire_mode == _STRICT
    for key in serving.keys:
        limit = AcquireLimit(left, max(request.batch_size, 1), is_strict)
        fetched = leader.fetch(
            key, serving.member.member_id, limit, max_bytes, anyio.current_time()
        )
        serving.results[key] = fetched
        left -= sum(acquired.last - acquired.first + 1 for acquired in fetched.acquired)
        if left <= 0:
            return


class _Watches:
    """What may give a waiting fetch records: logs, and events of its share-partitions."""

    def __init__(self, serving: _Fetch) -> None:
        self.woken = anyio.Event()
        self._serving = serving
        self._keys: list[ShareKey] = []
        self._logs: list[PartitionLog] = []

    def start(self) -> None:
        """Watch the partitions of the fetch from now on."""
        self.stop()
        self.woken = anyio.Event()
        broker = self._serving.ctx.broker
        self._keys = [*self._serving.keys, *self._serving.not_ready]
        for key in self._keys:
            broker.share_leader.watch(key, self._wake)
            topic = broker.cluster.topics.by_id(key.topic_id)
            if topic is not None and 0 <= key.partition < len(topic.partitions):
                log = topic.partitions[key.partition].log
                log.watchers.add(self._wake)
                self._logs.append(log)

    def stop(self) -> None:
        """End all watches."""
        for key in self._keys:
            self._serving.ctx.broker.share_leader.unwatch(key, self._wake)
        for log in self._logs:
            log.watchers.discard(self._wake)
        self._keys, self._logs = [], []

    def _wake(self) -> None:
        self.woken.set()


def _response(serving: _Fetch, *, tells_all: bool) -> ShareFetchResponse:
    ctx = serving.ctx
    limits = ctx.broker.cluster.configs.groups.limits_of(serving.member.group_id, ctx.broker.node)
    response = ShareFetchResponse(acquisition_lock_timeout_ms=limits.share_record_lock_duration_ms)
    topics: dict[bytes, _Topic] = {}
    leaders: set[int] = set()
    for key in dict.fromkeys([*serving.keys, *serving.errors, *serving.acks]):
        fetched = serving.results.get(key, Fetched())
        error = serving.errors.get(key, ErrorCode.NONE)
        ack = serving.acks.get(key)
        is_told = fetched.acquired or (tells_all and fetched.is_read)
        if not is_told and error is ErrorCode.NONE and ack is None:
            continue
        data = _Data(
            partition_index=key.partition,
            error_code=error,
            records=b"".join(fetched.records),
            acquired_records=[
                ShareFetchResponse.AcquiredRecords(
                    first_offset=acquired.first,
                    last_offset=acquired.last,
                    delivery_count=acquired.deliveries,
                )
                for acquired in fetched.acquired
            ],
        )
        if ack is not None:
            data.acknowledge_error_code, data.acknowledge_error_message = ack
        if error in _MOVED:
            led = ctx.broker.cluster.topics.by_id(key.topic_id)
            if led is not None:
                partition = led.partitions[key.partition]
                leaders.add(partition.leader)
                data.current_leader = ShareFetchResponse.LeaderIdAndEpoch(
                    leader_id=partition.leader, leader_epoch=partition.leader_epoch
                )
        topics.setdefault(key.topic_id, _Topic(topic_id=key.topic_id)).partitions.append(data)
    response.responses = list(topics.values())
    response.node_endpoints = [
        ShareFetchResponse.NodeEndpoint(
            node_id=node.id, host=node.host, port=ctx.port_of(node), rack=node.rack
        )
        for node in ctx.broker.cluster.nodes
        if node.id in leaders
    ]
    return response
