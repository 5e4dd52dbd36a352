"""Error responses to requests, with the error code where the API has it: once, or in each part."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kohort.broker._fetch_sessions import BrokerFetchSession, CachedPartition, in_order
from kohort.broker.apis import Context
from kohort.errors import ErrorCode, InvalidOptionError, broker_error, error_name
from kohort.protocol import APIS, Request, Response
from kohort.protocol import messages as m

FailureBuilder = Callable[[Context, Any, ErrorCode], Response]


def check_failable(key: int) -> None:
    """Raise InvalidOptionError for an API whose response has no known place for an error."""
    api = APIS[key]
    if api.request not in _BUILDERS and not _has_error_code(api.response):
        raise InvalidOptionError(
            f"fail() does not support {api.name}: its response has no error code. Use on()"
        )


def error_response(ctx: Context, request: Request[Any], error: ErrorCode) -> Response:
    """Return the response with this error for all parts of a request, which is not executed."""
    builder = _BUILDERS.get(type(request))
    if builder is not None:
        return builder(ctx, request, error)
    response: Any = type(request).response()
    response.error_code = error
    return _as_response(response)


def _has_error_code(cls: type[Response]) -> bool:
    return "error_code" in vars(cls)


def _as_response(response: Any) -> Response:
    assert isinstance(response, Response)
    return response


def _named(part: Any, cls: Any, *names: str, **values: Any) -> Any:
    return cls(**{name: getattr(part, name) for name in names}, **values)


def _produce(_: Context, request: m.ProduceRequest, error: ErrorCode) -> Response:
    cls = m.ProduceResponse
    return cls(
        responses=[
            _named(
                topic,
                cls.TopicProduceResponse,
                "name",
                "topic_id",
                partition_responses=[
                    cls.PartitionProduceResponse(
                        index=entry.index, error_code=error, base_offset=-1
                    )
                    for entry in topic.partition_data
                ],
            )
            for topic in request.topic_data
        ]
    )


_SESSION_ERRORS = (
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
)


def _fetch(ctx: Context, request: m.FetchRequest, error: ErrorCode) -> Response:
    """Return the error for each partition of the session.

    The session records the error, so that the next response has the partition again. An error about
    the session is one of the whole response.
    """
    cls = m.FetchResponse
    if error in _SESSION_ERRORS and ctx.version >= 7:
        return cls(error_code=error)
    sessions = ctx.broker.fetch_sessions
    plan = sessions.plan(request, ctx.version)
    if plan.error is not ErrorCode.NONE:
        return cls(error_code=plan.error)
    topics: dict[tuple[str, bytes], m.FetchResponse.FetchableTopicResponse] = {}
    with plan.session.used():
        results = _failed_results(plan.session, error)
        changed = sessions.changed_results(plan, results)
    for cached, data in changed:
        key = cached.key.topic, cached.key.topic_id
        if key not in topics:
            topics[key] = cls.FetchableTopicResponse(topic=key[0], topic_id=key[1])
        topics[key].partitions.append(data)
    return cls(session_id=plan.session.id, responses=list(topics.values()))


def _failed_results(
    session: BrokerFetchSession, error: ErrorCode
) -> list[tuple[CachedPartition, m.FetchResponse.PartitionData]]:
    return [
        (
            cached,
            m.FetchResponse.PartitionData(
                partition_index=cached.key.partition,
                error_code=error,
                high_watermark=-1,
                records=b"",
            ),
        )
        for cached in in_order(session.partitions.values())
    ]


def _partitions(response: Any, topic: Any, partition: Any, name: str, index: str) -> FailureBuilder:
    """Return a builder for APIs whose requests and responses have ``topics`` of ``partitions``."""

    def fail(_: Context, request: Any, error: ErrorCode) -> Response:
        filled = response()
        for requested in request.topics:
            names = [name, "topic_id"] if hasattr(requested, "topic_id") else [name]
            parts = [
                _named(part, partition, index, error_code=error) for part in requested.partitions
            ]
            filled.topics.append(_named(requested, topic, *names, partitions=parts))
        return _as_response(filled)

    return fail


def _join_group(ctx: Context, _: m.JoinGroupRequest, error: ErrorCode) -> Response:
    return m.JoinGroupResponse(error_code=error, protocol_name=None if ctx.version >= 7 else "")


def _offset_fetch(ctx: Context, request: m.OffsetFetchRequest, error: ErrorCode) -> Response:
    cls = m.OffsetFetchResponse
    if ctx.version >= 8:
        return cls(
            groups=[
                cls.OffsetFetchResponseGroup(group_id=group.group_id, error_code=error)
                for group in request.groups
            ]
        )
    if ctx.version >= 2:
        return cls(error_code=error)
    return cls(
        topics=[
            cls.OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    cls.OffsetFetchResponsePartition(partition_index=index, error_code=error)
                    for index in topic.partition_indexes
                ],
            )
            for topic in request.topics or ()
        ]
    )


def _find_coordinator(
    ctx: Context, request: m.FindCoordinatorRequest, error: ErrorCode
) -> Response:
    cls = m.FindCoordinatorResponse
    if ctx.version < 4:
        return cls(error_code=error, error_message=error_name(error), node_id=-1, port=-1)
    return cls(
        coordinators=[
            cls.Coordinator(
                key=key, node_id=-1, port=-1, error_code=error, error_message=error_name(error)
            )
            for key in request.coordinator_keys
        ]
    )


def _metadata(ctx: Context, request: m.MetadataRequest, error: ErrorCode) -> Response:
    cls = m.MetadataResponse
    cluster = ctx.broker.cluster
    response = cls(
        cluster_id=cluster.cluster_id,
        controller_id=cluster.controller_id,
        brokers=[
            cls.MetadataResponseBroker(
                node_id=node.id, host=node.host, port=ctx.port_of(node), rack=node.rack
            )
            for node in cluster.nodes
        ],
    )
    if request.topics is None:
        requested = [(topic.name, topic.id) for topic in cluster.topics]
    else:
        requested = [(topic.name or "", bytes(topic.topic_id)) for topic in request.topics]
    for name, topic_id in requested:
        response.topics.append(
            cls.MetadataResponseTopic(name=name, topic_id=topic_id, error_code=error)
        )
    return response


def _delete_topics(ctx: Context, request: m.DeleteTopicsRequest, error: ErrorCode) -> Response:
    cls = m.DeleteTopicsResponse
    requested = [(topic.name, bytes(topic.topic_id)) for topic in request.topics]
    if ctx.version < 6:
        requested = [(name, bytes(16)) for name in request.topic_names]
    return cls(
        responses=[
            cls.DeletableTopicResult(name=name, topic_id=topic_id, error_code=error)
            for name, topic_id in requested
        ]
    )


def _create_topics(_: Context, request: m.CreateTopicsRequest, error: ErrorCode) -> Response:
    cls = m.CreateTopicsResponse
    return cls(
        topics=[
            cls.CreatableTopicResult(name=topic.name, error_code=error) for topic in request.topics
        ]
    )


def _create_partitions(
    _: Context, request: m.CreatePartitionsRequest, error: ErrorCode
) -> Response:
    cls = m.CreatePartitionsResponse
    return cls(
        results=[
            cls.CreatePartitionsTopicResult(name=topic.name, error_code=error)
            for topic in request.topics
        ]
    )


def _describe_groups(_: Context, request: m.DescribeGroupsRequest, error: ErrorCode) -> Response:
    cls = m.DescribeGroupsResponse
    return cls(
        groups=[cls.DescribedGroup(group_id=group, error_code=error) for group in request.groups]
    )


def _delete_groups(_: Context, request: m.DeleteGroupsRequest, error: ErrorCode) -> Response:
    cls = m.DeleteGroupsResponse
    return cls(
        results=[
            cls.DeletableGroupResult(group_id=group, error_code=error)
            for group in request.groups_names
        ]
    )


def _describe_configs(_: Context, request: m.DescribeConfigsRequest, error: ErrorCode) -> Response:
    cls = m.DescribeConfigsResponse
    return cls(
        results=[
            _named(
                requested,
                cls.DescribeConfigsResult,
                "resource_type",
                "resource_name",
                error_code=error,
            )
            for requested in request.resources
        ]
    )


def _alter(response: Any, result: Any) -> FailureBuilder:
    """Return a builder for APIs that change the settings of ``resources``."""

    def fail(_: Context, request: Any, error: ErrorCode) -> Response:
        return _as_response(
            response(
                responses=[
                    _named(requested, result, "resource_type", "resource_name", error_code=error)
                    for requested in request.resources
                ]
            )
        )

    return fail


def _alter_replica_log_dirs(
    _: Context, request: m.AlterReplicaLogDirsRequest, error: ErrorCode
) -> Response:
    cls = m.AlterReplicaLogDirsResponse
    return cls(
        results=[
            cls.AlterReplicaLogDirTopicResult(
                topic_name=topic.name,
                partitions=[
                    cls.AlterReplicaLogDirPartitionResult(partition_index=index, error_code=error)
                    for index in topic.partitions
                ],
            )
            for folder in request.dirs
            for topic in folder.topics
        ]
    )


def _consumer_group_describe(
    _: Context, request: m.ConsumerGroupDescribeRequest, error: ErrorCode
) -> Response:
    cls = m.ConsumerGroupDescribeResponse
    return cls(
        groups=[cls.DescribedGroup(group_id=group, error_code=error) for group in request.group_ids]
    )


def _share_group_describe(
    _: Context, request: m.ShareGroupDescribeRequest, error: ErrorCode
) -> Response:
    cls = m.ShareGroupDescribeResponse
    return cls(
        groups=[cls.DescribedGroup(group_id=group, error_code=error) for group in request.group_ids]
    )


def _describe_share_group_offsets(
    _: Context, request: m.DescribeShareGroupOffsetsRequest, error: ErrorCode
) -> Response:
    cls = m.DescribeShareGroupOffsetsResponse
    group = cls.DescribeShareGroupOffsetsResponseGroup
    return cls(groups=[group(group_id=each.group_id, error_code=error) for each in request.groups])


def _share_states(result: str) -> FailureBuilder:
    """Return the builder for a request to a share coordinator, whose results have this class."""

    def build(_: Context, request: Any, error: ErrorCode) -> Response:
        cls = type(request).response
        return _as_response(
            cls(
                results=[
                    getattr(cls, result)(
                        topic_id=topic.topic_id,
                        partitions=[
                            cls.PartitionResult(partition=each.partition, error_code=error)
                            for each in topic.partitions
                        ],
                    )
                    for topic in request.topics
                ]
            )
        )

    return build


def _add_partitions_to_txn(
    ctx: Context, request: m.AddPartitionsToTxnRequest, error: ErrorCode
) -> Response:
    cls = m.AddPartitionsToTxnResponse
    if ctx.version >= 4:
        return cls(error_code=error)
    part = cls.AddPartitionsToTxnPartitionResult
    return cls(
        results_by_topic_v3_and_below=[
            cls.AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    part(partition_index=index, partition_error_code=error)
                    for index in topic.partitions
                ],
            )
            for topic in request.v3_and_below_topics
        ]
    )


def _write_txn_markers(_: Context, request: m.WriteTxnMarkersRequest, error: ErrorCode) -> Response:
    cls = m.WriteTxnMarkersResponse
    part = cls.WritableTxnMarkerPartitionResult
    return cls(
        markers=[
            cls.WritableTxnMarkerResult(
                producer_id=marker.producer_id,
                topics=[
                    cls.WritableTxnMarkerTopicResult(
                        name=topic.name,
                        partitions=[
                            part(partition_index=index, error_code=error)
                            for index in topic.partition_indexes
                        ],
                    )
                    for topic in marker.topics
                ],
            )
            for marker in request.markers
        ]
    )


def _describe_producers(
    _: Context, request: m.DescribeProducersRequest, error: ErrorCode
) -> Response:
    cls = m.DescribeProducersResponse
    return cls(
        topics=[
            cls.TopicResponse(
                name=topic.name,
                partitions=[
                    cls.PartitionResponse(partition_index=index, error_code=error)
                    for index in topic.partition_indexes
                ],
            )
            for topic in request.topics
        ]
    )


def _describe_transactions(
    _: Context, request: m.DescribeTransactionsRequest, error: ErrorCode
) -> Response:
    cls = m.DescribeTransactionsResponse
    return cls(
        transaction_states=[
            cls.TransactionState(transactional_id=name, error_code=error)
            for name in request.transactional_ids
        ]
    )


def _alter_scram(
    _: Context, request: m.AlterUserScramCredentialsRequest, error: ErrorCode
) -> Response:
    cls = m.AlterUserScramCredentialsResponse
    names = [
        *(each.name for each in request.deletions),
        *(each.name for each in request.upsertions),
    ]
    return cls(
        results=[
            cls.AlterUserScramCredentialsResult(user=user, error_code=error)
            for user in dict.fromkeys(names)
        ]
    )


def _acls(response: Any, results: str, result: Any, requested: str) -> FailureBuilder:
    """Return a builder for APIs that create or delete ACLs."""

    def fail(_: Context, request: Any, error: ErrorCode) -> Response:
        message = str(broker_error(error))
        refused = [
            result(error_code=error, error_message=message) for _ in getattr(request, requested)
        ]
        return _as_response(response(**{results: refused}))

    return fail


_BUILDERS: dict[type[Any], FailureBuilder] = {
    m.ProduceRequest: _produce,
    m.FetchRequest: _fetch,
    m.ListOffsetsRequest: _partitions(
        m.ListOffsetsResponse,
        m.ListOffsetsResponse.ListOffsetsTopicResponse,
        m.ListOffsetsResponse.ListOffsetsPartitionResponse,
        "name",
        "partition_index",
    ),
    m.OffsetCommitRequest: _partitions(
        m.OffsetCommitResponse,
        m.OffsetCommitResponse.OffsetCommitResponseTopic,
        m.OffsetCommitResponse.OffsetCommitResponsePartition,
        "name",
        "partition_index",
    ),
    m.TxnOffsetCommitRequest: _partitions(
        m.TxnOffsetCommitResponse,
        m.TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic,
        m.TxnOffsetCommitResponse.TxnOffsetCommitResponsePartition,
        "name",
        "partition_index",
    ),
    m.DeleteRecordsRequest: _partitions(
        m.DeleteRecordsResponse,
        m.DeleteRecordsResponse.DeleteRecordsTopicResult,
        m.DeleteRecordsResponse.DeleteRecordsPartitionResult,
        "name",
        "partition_index",
    ),
    m.OffsetForLeaderEpochRequest: _partitions(
        m.OffsetForLeaderEpochResponse,
        m.OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult,
        m.OffsetForLeaderEpochResponse.EpochEndOffset,
        "topic",
        "partition",
    ),
    m.JoinGroupRequest: _join_group,
    m.OffsetFetchRequest: _offset_fetch,
    m.FindCoordinatorRequest: _find_coordinator,
    m.MetadataRequest: _metadata,
    m.DeleteTopicsRequest: _delete_topics,
    m.CreateTopicsRequest: _create_topics,
    m.CreateAclsRequest: _acls(
        m.CreateAclsResponse, "results", m.CreateAclsResponse.AclCreationResult, "creations"
    ),
    m.DeleteAclsRequest: _acls(
        m.DeleteAclsResponse,
        "filter_results",
        m.DeleteAclsResponse.DeleteAclsFilterResult,
        "filters",
    ),
    m.CreatePartitionsRequest: _create_partitions,
    m.DescribeGroupsRequest: _describe_groups,
    m.DeleteGroupsRequest: _delete_groups,
    m.DescribeConfigsRequest: _describe_configs,
    m.AddPartitionsToTxnRequest: _add_partitions_to_txn,
    m.WriteTxnMarkersRequest: _write_txn_markers,
    m.DescribeProducersRequest: _describe_producers,
    m.DescribeTransactionsRequest: _describe_transactions,
    m.ConsumerGroupDescribeRequest: _consumer_group_describe,
    m.ShareGroupDescribeRequest: _share_group_describe,
    m.DescribeShareGroupOffsetsRequest: _describe_share_group_offsets,
    m.InitializeShareGroupStateRequest: _share_states("InitializeStateResult"),
    m.ReadShareGroupStateRequest: _share_states("ReadStateResult"),
    m.WriteShareGroupStateRequest: _share_states("WriteStateResult"),
    m.DeleteShareGroupStateRequest: _share_states("DeleteStateResult"),
    m.ReadShareGroupStateSummaryRequest: _share_states("ReadStateSummaryResult"),
    m.AlterConfigsRequest: _alter(
        m.AlterConfigsResponse, m.AlterConfigsResponse.AlterConfigsResourceResponse
    ),
    m.AlterUserScramCredentialsRequest: _alter_scram,
    m.AlterReplicaLogDirsRequest: _alter_replica_log_dirs,
    m.IncrementalAlterConfigsRequest: _alter(
        m.IncrementalAlterConfigsResponse,
        m.IncrementalAlterConfigsResponse.AlterConfigsResourceResponse,
    ),
}
