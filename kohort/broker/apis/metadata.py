"""Metadata (API 3), versions 0-13.

- Version 0 requests all topics with an empty list, later versions with null.
- Version 4 lets the client forbid the creation of topics.
- Version 10 returns topic ids, and version 12 accepts them.
- Versions 8-10 return the authorized operations of the cluster.
"""

from __future__ import annotations

from collections.abc import Iterable

from kohort.broker.apis._registry import Context, serves
from kohort.broker.cluster._topics import Topic
from kohort.broker.configs._topic_settings import is_legal_name
from kohort.broker.security import AclOperation, ResourceType
from kohort.errors import ErrorCode
from kohort.protocol import ZERO_UUID
from kohort.protocol.messages import MetadataRequest, MetadataResponse

NOT_REQUESTED = -2147483648


@serves(MetadataRequest, (0, 13))
async def metadata(ctx: Context, request: MetadataRequest) -> MetadataResponse:
    cluster = ctx.broker.cluster
    wanted = request.topics
    if ctx.version < 12 and any(
        requested.name is None or requested.topic_id != ZERO_UUID for requested in wanted or ()
    ):
        return _refused(wanted or (), ErrorCode.INVALID_REQUEST)
    if any(
        requested.name is None and requested.topic_id == ZERO_UUID for requested in wanted or ()
    ):
        return _refused(wanted or (), ErrorCode.UNKNOWN_SERVER_ERROR)
    if wanted is None or (ctx.version == 0 and not wanted):
        topics = [
            _topic(ctx, request, topic) for topic in cluster.topics if is_visible(ctx, topic.name)
        ]
    else:
        once = {(requested.name, bytes(requested.topic_id)): requested for requested in wanted}
        topics = [_find(ctx, request, requested) for requested in once.values()]
    return MetadataResponse(
        brokers=[
            MetadataResponse.MetadataResponseBroker(
                node_id=node.id, host=node.host, port=ctx.port_of(node), rack=node.rack
            )
            for node in cluster.nodes
        ],
        cluster_id=cluster.cluster_id,
        controller_id=cluster.controller_id,
        topics=topics,
        cluster_authorized_operations=(
            cluster_operations(ctx)
            if request.include_cluster_authorized_operations
            else NOT_REQUESTED
        ),
    )


def is_visible(ctx: Context, topic: str) -> bool:
    """True if the principal may describe a topic, which need not exist."""
    return ctx.allows(AclOperation.DESCRIBE, ResourceType.TOPIC, topic)


def cluster_operations(ctx: Context) -> int:
    """Return the operations on the cluster as bits, 0 if the principal may not describe it."""
    if not ctx.allows(AclOperation.DESCRIBE, ResourceType.CLUSTER):
        return 0
    return ctx.operations(ResourceType.CLUSTER)


def _find(
    ctx: Context,
    request: MetadataRequest,
    requested: MetadataRequest.MetadataRequestTopic,
) -> MetadataResponse.MetadataResponseTopic:
    cluster = ctx.broker.cluster
    topic_id = bytes(requested.topic_id)
    if topic_id != ZERO_UUID:
        found = cluster.topics.by_id(topic_id)
        if found is not None and is_visible(ctx, found.name):
            return _topic(ctx, request, found)
        unknown = found is None
        return MetadataResponse.MetadataResponseTopic(
            error_code=(
                ErrorCode.UNKNOWN_TOPIC_ID if unknown else ErrorCode.TOPIC_AUTHORIZATION_FAILED
            ),
            name=None if ctx.version >= 12 else "",
            topic_id=topic_id,
        )
    name = requested.name or ""
    if not is_visible(ctx, name):
        return _unknown(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    found = cluster.topics.get(name)
    if found is None:
        creates = cluster.config.auto_create_topics and request.allow_auto_topic_creation
        if creates and not may_create(ctx, name):
            return _unknown(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        if not is_legal_name(name):
            return _unknown(name, ErrorCode.INVALID_TOPIC_EXCEPTION)
        if not creates:
            return _unknown(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        # As in Kafka, the topic is created after the response, and the client has to retry.
        cluster.create_topic(name)
        return _unknown(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return _topic(ctx, request, found)


def may_create(ctx: Context, topic: str) -> bool:
    """True if the principal may create a topic of this name."""
    return ctx.allows(AclOperation.CREATE, ResourceType.CLUSTER) or ctx.allows(
        AclOperation.CREATE, ResourceType.TOPIC, topic
    )


def _refused(
    wanted: Iterable[MetadataRequest.MetadataRequestTopic], error: ErrorCode
) -> MetadataResponse:
    """Return the response to a request that Kafka refuses as a whole.

    Versions 10 and 11 have topic ids in their requests, but only names are accepted.
    """
    return MetadataResponse(
        error_code=error,
        topics=[
            MetadataResponse.MetadataResponseTopic(
                error_code=error,
                name=requested.name or "",
                topic_id=requested.topic_id,
            )
            for requested in wanted
        ],
    )


def _unknown(name: str, error: ErrorCode) -> MetadataResponse.MetadataResponseTopic:
    return MetadataResponse.MetadataResponseTopic(error_code=error, name=name)


def _topic(
    ctx: Context, request: MetadataRequest, topic: Topic
) -> MetadataResponse.MetadataResponseTopic:
    return MetadataResponse.MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.is_internal,
        partitions=[
            MetadataResponse.MetadataResponsePartition(
                error_code=(
                    ErrorCode.LEADER_NOT_AVAILABLE if partition.leader < 0 else ErrorCode.NONE
                ),
                partition_index=partition.index,
                leader_id=partition.leader,
                leader_epoch=partition.leader_epoch,
                replica_nodes=partition.replicas,
                isr_nodes=partition.isr,
                offline_replicas=ctx.broker.cluster.offline_replicas(partition),
            )
            for partition in topic.partitions
        ],
        topic_authorized_operations=(
            ctx.operations(ResourceType.TOPIC, topic.name)
            if request.include_topic_authorized_operations
            else NOT_REQUESTED
        ),
    )
