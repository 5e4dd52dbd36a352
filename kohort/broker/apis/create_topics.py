"""CreateTopics (API 19), versions 2-7.

- Version 4 accepts -1 for the default partitions and replication factor (KIP-464).
- Version 5 returns the settings (KIP-525).
- Version 7 returns the topic's id.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from kohort.broker.apis._registry import AUTHORIZATION_FAILED, Context, serves
from kohort.broker.apis.metadata import may_create
from kohort.broker.cluster._topics import Topic
from kohort.broker.configs._cluster_config import MAX_PARTITIONS
from kohort.broker.configs._config_types import ConfigSource
from kohort.broker.configs._topic_settings import TOPIC_SETTINGS, config_error, is_legal_name
from kohort.broker.security import AclOperation, ResourceType
from kohort.errors import ErrorCode
from kohort.protocol.messages import CreateTopicsRequest, CreateTopicsResponse

if TYPE_CHECKING:
    from kohort.broker.cluster._cluster_state import ClusterState

_Requested = CreateTopicsRequest.CreatableTopic
_Result = CreateTopicsResponse.CreatableTopicResult


class _RefusedTopic(Exception):
    """Refusal to create a topic."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


@serves(CreateTopicsRequest, (2, 7))
async def create_topics(ctx: Context, request: CreateTopicsRequest) -> CreateTopicsResponse:
    times = Counter(requested.name for requested in request.topics)
    results = []
    for requested in {requested.name: requested for requested in request.topics}.values():
        try:
            if times[requested.name] > 1:
                raise _RefusedTopic(
                    ErrorCode.INVALID_REQUEST, f"Duplicate topic name {requested.name}"
                )
            if not may_create(ctx, requested.name):
                raise _RefusedTopic(ErrorCode.TOPIC_AUTHORIZATION_FAILED, AUTHORIZATION_FAILED)
            results.append(_create(ctx, requested, validate_only=request.validate_only))
        except _RefusedTopic as error:
            results.append(
                _Result(name=requested.name, error_code=error.code, error_message=str(error))
            )
    return CreateTopicsResponse(topics=results)


def _create(ctx: Context, requested: _Requested, *, validate_only: bool) -> _Result:
    cluster, name = ctx.broker.cluster, requested.name
    if not is_legal_name(name):
        raise _RefusedTopic(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {name!r}")
    if cluster.topics.get(name) is not None:
        raise _RefusedTopic(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    alike = name.replace(".", "_")
    if any(topic.name.replace(".", "_") == alike for topic in cluster.topics):
        raise _RefusedTopic(
            ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name!r} differs from a topic in dots only"
        )
    for entry in requested.configs:
        problem = config_error(entry.name, entry.value)
        if problem is not None:
            raise _RefusedTopic(ErrorCode.INVALID_CONFIG, problem)
    configs = {entry.name: entry.value or "" for entry in requested.configs}
    assignments = _assignments(cluster, requested)
    partitions, factor = _sizes(cluster, requested, assignments)
    if validate_only:
        topic_id = cluster.rng.getrandbits(128).to_bytes(16, "big")
        topic = Topic(name, topic_id, configs, defaults=cluster.configs.topic_defaults)
    else:
        topic = cluster.create_topic(name, partitions, factor, configs, assignments)
    if not ctx.allows(AclOperation.DESCRIBE_CONFIGS, ResourceType.TOPIC, name):
        return _Result(
            name=name,
            topic_id=topic.id,
            error_message=None,
            topic_config_error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        )
    return _Result(
        name=name,
        topic_id=topic.id,
        error_message=None,
        num_partitions=partitions,
        replication_factor=factor,
        configs=[
            CreateTopicsResponse.CreatableTopicConfigs(
                name=setting,
                value=topic.config(setting),
                config_source=(ConfigSource.TOPIC if setting in configs else _source(ctx, synonym)),
            )
            for setting, (_, _, _, synonym) in TOPIC_SETTINGS.items()
        ],
    )


def _source(ctx: Context, synonym: str | None) -> ConfigSource:
    """Return the source of the value that applies to a topic without a config."""
    origins = synonym and ctx.broker.cluster.configs.origins(synonym, ctx.broker.node)
    return origins[0].source if origins else ConfigSource.DEFAULT


def _sizes(
    cluster: ClusterState, requested: _Requested, assignments: list[list[int]] | None
) -> tuple[int, int]:
    """Return the number of partitions and the replication factor."""
    partitions, factor = requested.num_partitions, requested.replication_factor
    if assignments is not None:
        if partitions != -1 or factor != -1:
            raise _RefusedTopic(
                ErrorCode.INVALID_REQUEST,
                "Partitions and replication factor must be -1 with a manual assignment.",
            )
        return len(assignments), len(assignments[0])
    if partitions == -1:
        partitions = cluster.config.default_partitions
    if factor == -1:
        factor = cluster.config.default_replication_factor
    if partitions > MAX_PARTITIONS:
        raise _RefusedTopic(
            ErrorCode.POLICY_VIOLATION, f"At most {MAX_PARTITIONS} partitions can be created."
        )
    if partitions < 1:
        raise _RefusedTopic(ErrorCode.INVALID_PARTITIONS, "A topic has at least one partition.")
    if not 0 < factor <= len(cluster.nodes):
        raise _RefusedTopic(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Replication factor {factor} does not fit {len(cluster.nodes)} broker(s).",
        )
    return partitions, factor


def _assignments(cluster: ClusterState, requested: _Requested) -> list[list[int]] | None:
    if not requested.assignments:
        return None
    chosen = {entry.partition_index: list(entry.broker_ids) for entry in requested.assignments}
    nodes = {node.id for node in cluster.nodes}
    whole = sorted(chosen) == list(range(len(requested.assignments)))
    sound = whole and all(
        brokers and len(set(brokers)) == len(brokers) and nodes.issuperset(brokers)
        for brokers in chosen.values()
    )
    if not sound:
        raise _RefusedTopic(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "Partitions must be numbered from 0 and have replicas on different live brokers.",
        )
    return [chosen[index] for index in range(len(chosen))]
