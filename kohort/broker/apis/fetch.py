"""Fetch (API 1), versions 4-18.

- Version 5 adds the log's start.
- Version 7 adds fetch sessions (KIP-227).
- Version 9 adds leader epochs (KIP-320).
- Version 11 adds racks and fetching from followers (KIP-392).
- Version 12 is flexible.
- Version 13 uses topic ids.
- Version 16 adds the new leader to NOT_LEADER_OR_FOLLOWER and FENCED_LEADER_EPOCH.

Data begins with a complete batch, which may exceed every limit and may start below the requested
offset. The last batch may be truncated.
"""

from __future__ import annotations

from dataclasses import dataclass

import anyio

from kohort.broker._fetch_sessions import (
    READ_COMMITTED,
    BrokerFetchSession,
    CachedPartition,
    FetchView,
    in_order,
)
from kohort.broker.apis._registry import Context, serves
from kohort.broker.cluster._topics import Replica
from kohort.broker.log import PartitionLog
from kohort.broker.security import AclOperation, ResourceType
from kohort.errors import ErrorCode
from kohort.protocol import ZERO_UUID, Buffer
from kohort.protocol.messages import FetchRequest, FetchResponse

_Data = FetchResponse.PartitionData
_Results = list[tuple[CachedPartition, _Data]]
_NO_RECORDS = b""
_ISOLATION_LEVELS = (0, READ_COMMITTED)
_FOLLOWERS = 11
"""First version in which followers serve fetches."""
_UNKNOWN = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
_MOVED = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


@dataclass(slots=True)
class _Fetch:
    """A request that is served, with the pending partitions that were special at its start.

    ``refused`` are those that the principal may not read, ``absent`` those without a replica here.
    The idle partitions are neither (:mod:`kohort.broker._fetch_sessions`).
    """

    ctx: Context
    request: FetchRequest
    session: BrokerFetchSession
    refused: dict[CachedPartition, _Data]
    absent: frozenset[CachedPartition]

    def readable(self) -> list[CachedPartition]:
        """Return the pending partitions that the principal may read, in the session's order."""
        return in_order(self.session.pending.difference(self.refused))


@serves(FetchRequest, (4, 18))
async def fetch(ctx: Context, request: FetchRequest) -> FetchResponse:
    if request.isolation_level not in _ISOLATION_LEVELS:
        return _invalid_request(ctx, request)
    sessions = ctx.broker.fetch_sessions
    plan = sessions.plan(request, ctx.version)
    if plan.error is not ErrorCode.NONE:
        return FetchResponse(error_code=plan.error)
    session = plan.session
    with session.used():
        session.set_view(_view(ctx, request))
        refused = _refused(ctx, session)
        absent = frozenset(
            cached
            for cached in session.pending.difference(refused)
            if isinstance(_locate(ctx, cached), ErrorCode)
        )
        serving = _Fetch(ctx, request, session, refused, absent)
        if request.max_wait_ms > 0 and _some_exist(serving):
            await _wait_for_data(serving)
        results = sessions.changed_results(plan, [*_read(serving), *refused.items()])
    response = FetchResponse(session_id=session.id)
    _add_topics(ctx, response, results)
    return response


def _view(ctx: Context, request: FetchRequest) -> FetchView:
    authorizer = ctx.broker.cluster.authorizer
    return FetchView(
        ctx.version,
        request.isolation_level,
        request.rack_id,
        ctx.principal,
        ctx.client_host,
        0 if authorizer is None else authorizer.version,
    )


def _refused(ctx: Context, session: BrokerFetchSession) -> dict[CachedPartition, _Data]:
    """Return the errors of the pending partitions that the principal may not read."""
    refused: dict[CachedPartition, _Data] = {}
    if ctx.broker.cluster.authorizer is None:
        return refused
    for cached in in_order(session.pending):
        topic = ctx.broker.cluster.topics.find(cached.key.topic, cached.key.topic_id)
        name = cached.key.topic if topic is None else topic.name
        unknown_id = topic is None and ctx.version >= 13
        if not unknown_id and not ctx.allows(AclOperation.READ, ResourceType.TOPIC, name):
            data = _failed(ctx, cached, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            data.aborted_transactions = []
            refused[cached] = data
    return refused


def _invalid_request(ctx: Context, request: FetchRequest) -> FetchResponse:
    """Return Kafka's response to an invalid request: an error for each partition with a name."""
    error = ErrorCode.UNKNOWN_SERVER_ERROR
    response = FetchResponse(error_code=error if ctx.version >= 7 else ErrorCode.NONE)
    if ctx.version < 13:
        response.responses = [
            FetchResponse.FetchableTopicResponse(
                topic=topic.topic,
                partitions=[
                    _Data(
                        partition_index=requested.partition,
                        error_code=error,
                        high_watermark=-1,
                        aborted_transactions=[],
                        records=_NO_RECORDS,
                    )
                    for requested in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    return response


async def _wait_for_data(serving: _Fetch) -> None:
    """Wait until there are enough bytes, an error to report, or no time left.

    The deletion of a partition that was present is an error to report.
    """
    with anyio.move_on_after(serving.request.max_wait_ms / 1000):
        while not _has_enough_data(serving):
            await serving.session.wait()


def _has_enough_data(serving: _Fetch) -> bool:
    ctx, request = serving.ctx, serving.request
    total = 0
    for cached in serving.readable():
        replica = _locate(ctx, cached)
        if isinstance(replica, ErrorCode):
            if replica in _UNKNOWN and cached in serving.absent:
                continue  # As in Kafka, an unknown partition does not end the wait.
            return True
        if _check(replica, cached) is not ErrorCode.NONE or _diverged(replica, cached):
            return True
        if _preferred(ctx, request, replica, cached) >= 0:
            return True
        end, limit = _visible_end(replica, request), max(cached.max_bytes, 1)
        total += replica.partition.log.bytes_before(end, cached.offset, limit)
        if total and total >= request.min_bytes:
            return True
    return request.min_bytes <= 0


def _some_exist(serving: _Fetch) -> bool:
    """True if a partition of the fetch exists, as each idle one does."""
    session = serving.session
    has_idle = len(session.pending) < len(session.partitions)
    return has_idle or any(_exists(serving.ctx, cached) for cached in serving.readable())


def _exists(ctx: Context, cached: CachedPartition) -> bool:
    """True if the partition exists, on this broker or another one."""
    topic = ctx.broker.cluster.topics.find(cached.key.topic, cached.key.topic_id)
    return topic is not None and 0 <= cached.key.partition < len(topic.partitions)


def _locate(ctx: Context, cached: CachedPartition) -> Replica | ErrorCode:
    """Return the replica to read, and watch its log.

    Followers are read only since version 11 (KIP-392).
    """
    topics = ctx.broker.cluster.topics
    topic = topics.find(cached.key.topic, cached.key.topic_id)
    if topic is None and ctx.version >= 13:
        return ErrorCode.UNKNOWN_TOPIC_ID
    # Only in this API every negative epoch means that there is none.
    epoch = max(cached.leader_epoch, -1)
    replica = ctx.broker.replica(topic, cached.key.partition, epoch)
    if isinstance(replica, ErrorCode):
        return replica
    if replica.partition.leader != ctx.broker.node.id and ctx.version < _FOLLOWERS:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    cached.watch(replica.partition.log)
    return replica


def _visible_end(replica: Replica, request: FetchRequest) -> int:
    committed = request.isolation_level == READ_COMMITTED
    return replica.last_stable_offset if committed else replica.high_watermark


def _check(replica: Replica, cached: CachedPartition) -> ErrorCode:
    if cached.max_bytes < 0:
        return ErrorCode.UNKNOWN_SERVER_ERROR
    log, requested = replica.partition.log, cached.last_fetched_epoch
    diverges = requested >= 0 and log.end_of_epoch(requested)[0] < 0
    if diverges or cached.offset < log.start_offset:
        return ErrorCode.OFFSET_OUT_OF_RANGE
    if requested < 0 and cached.offset > replica.end_offset:
        return ErrorCode.OFFSET_OUT_OF_RANGE
    return ErrorCode.NONE


def _preferred(
    ctx: Context, request: FetchRequest, replica: Replica, cached: CachedPartition
) -> int:
    """Return the follower in the client's rack to read from instead, -1 if there is none."""
    cluster, partition, rack = ctx.broker.cluster, replica.partition, request.rack_id
    if not rack or cluster.config.racks is None or partition.leader != ctx.broker.node.id:
        return -1
    local_replicas = [
        node.id for node in cluster.nodes if node.rack == rack and node.id in partition.isr
    ]
    has_offset = partition.log.start_offset <= cached.offset <= replica.end_offset
    return (
        max(local_replicas)
        if local_replicas and has_offset and partition.leader not in local_replicas
        else -1
    )


def _diverged(replica: Replica, cached: CachedPartition) -> FetchResponse.EpochEndOffset | None:
    """Return the point where the client's log diverges from this one, if it does (KIP-595)."""
    if cached.last_fetched_epoch < 0:
        return None
    epoch, end = replica.partition.log.end_of_epoch(cached.last_fetched_epoch)
    end = min(end, replica.end_offset)
    if epoch >= cached.last_fetched_epoch and end >= cached.offset:
        return None
    return FetchResponse.EpochEndOffset(epoch=epoch, end_offset=end)


def _read(serving: _Fetch) -> _Results:
    """Read each pending partition; unknown partitions are the last ones of the result.

    A partition that was deleted while the fetch waited is an unknown partition, also in a fetch by
    topic id.
    """
    ctx, request = serving.ctx, serving.request
    left = request.max_bytes
    is_empty = True
    committed = request.isolation_level == READ_COMMITTED
    results: _Results = []
    missing: _Results = []
    for cached in serving.readable():
        replica = _locate(ctx, cached)
        if replica in _UNKNOWN and cached not in serving.absent:
            deleted = _failed(ctx, cached, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            deleted.aborted_transactions = None
            results.append((cached, deleted))
            continue
        error = replica if isinstance(replica, ErrorCode) else _check(replica, cached)
        if isinstance(replica, ErrorCode) or error is not ErrorCode.NONE:
            failed = missing if error in _UNKNOWN else results
            failed.append((cached, _failed(ctx, cached, error)))
            continue
        log = replica.partition.log
        data = _Data(
            partition_index=cached.key.partition,
            high_watermark=replica.high_watermark,
            last_stable_offset=replica.last_stable_offset,
            log_start_offset=log.start_offset,
            aborted_transactions=_aborted(log, cached) if committed else None,
            records=_NO_RECORDS,
        )
        if (preferred := _preferred(ctx, request, replica, cached)) >= 0:
            data.preferred_read_replica = preferred
            data.aborted_transactions = None
        elif (diverged := _diverged(replica, cached)) is not None:
            data.diverging_epoch = diverged
        else:
            limit = min(cached.max_bytes, left)
            if cached.offset >= (end := _visible_end(replica, request)):
                records: Buffer = _NO_RECORDS
            else:
                limit = log.bytes_before(end, cached.offset, limit)
                records = log.read(cached.offset, limit, at_least_one=is_empty)
            is_empty = is_empty and not records
            left = max(0, left - len(records))
            data.records = records
        results.append((cached, data))
    return results + missing


def _aborted(log: PartitionLog, cached: CachedPartition) -> list[FetchResponse.AbortedTransaction]:
    return [
        FetchResponse.AbortedTransaction(
            producer_id=aborted.producer_id, first_offset=aborted.first_offset
        )
        for aborted in log.aborted_from(cached.offset)
    ]


def _failed(ctx: Context, cached: CachedPartition, error: ErrorCode) -> _Data:
    data = _Data(
        partition_index=cached.key.partition,
        error_code=error,
        high_watermark=-1,
        aborted_transactions=[] if error in _UNKNOWN else None,
        records=_NO_RECORDS,
    )
    if ctx.version >= 16 and error in _MOVED:
        topic = ctx.broker.cluster.topics.find(cached.key.topic, cached.key.topic_id)
        if topic is not None:
            led = topic.partitions[cached.key.partition]
            data.current_leader = FetchResponse.LeaderIdAndEpoch(
                leader_id=led.leader, leader_epoch=led.leader_epoch
            )
    return data


def _add_topics(ctx: Context, response: FetchResponse, results: _Results) -> None:
    """Add the results to the response, by topic, and the endpoints of new leaders.

    As in Kafka a topic has two entries if another topic is between its partitions.
    """
    leaders: set[int] = set()
    before: tuple[str, bytes] | None = None
    for cached, data in results:
        key = cached.key.topic, cached.key.topic_id
        if key != before:
            before = key
            response.responses.append(
                FetchResponse.FetchableTopicResponse(
                    topic=cached.key.topic, topic_id=cached.key.topic_id or ZERO_UUID
                )
            )
        response.responses[-1].partitions.append(data)
        leaders.add(data.current_leader.leader_id)
    if ctx.version >= 16:
        response.node_endpoints = [
            FetchResponse.NodeEndpoint(
                node_id=node.id, host=node.host, port=ctx.port_of(node), rack=node.rack
            )
            for node in ctx.broker.cluster.nodes
            if node.id in leaders
        ]
