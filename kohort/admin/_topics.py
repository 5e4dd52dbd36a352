"""The requests for topics, settings and brokers.

Changes of topics go to the controller, because brokers before Kafka 3.3 do not forward them. The
settings of a broker are requested from it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Literal, TypeAlias, TypeVar

from kohort.admin._requests import AdminRequests, group_error
from kohort.admin._results import AdminResults
from kohort.coordinator_client import RequestForm, send_supported
from kohort.errors import (
    ErrorCode,
    KafkaError,
    LeaderNotAvailableError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
    broker_error,
    error_name,
)
from kohort.protocol import Request, Response
from kohort.protocol.messages import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from kohort.transport import TopicMetadata, escaped
from kohort.types import LazyModule, NamedTuple

if TYPE_CHECKING:
    import uuid

    from kohort.consumer.engine._engine import Engine
else:
    uuid = LazyModule("uuid")

R = TypeVar("R", bound=Response)
V = TypeVar("V")
ConfigResult = TypeVar(
    "ConfigResult",
    DescribeConfigsResponse.DescribeConfigsResult,
    IncrementalAlterConfigsResponse.AlterConfigsResourceResponse,
)

ResourceKind: TypeAlias = Literal["topic", "broker", "group"]
_KINDS: Mapping[str, int] = {"topic": 2, "broker": 4, "group": 32}
_SOURCES = {
    1: "topic",
    2: "broker",
    3: "all brokers",
    4: "broker file",
    5: "default",
    8: "group",
}
_SET, _DELETE = 0, 1
_BY_STATE = 6
"""First version of DeleteTopics with a structure for each topic."""
_CREATE_WITH_DEFAULTS = 4
"""First version of CreateTopics with the brokers' numbers of partitions and replicas."""
BROKERS_DEFAULT = -1


class BrokerDescription(NamedTuple):
    """Broker of a cluster."""

    id: int
    host: str
    port: int
    rack: str | None


class ClusterDescription(NamedTuple):
    """Id and brokers of a cluster."""

    cluster_id: str | None
    controller: int
    """Id of the broker for requests to the controller, or -1 without one."""
    brokers: tuple[BrokerDescription, ...]


class PartitionDescription(NamedTuple):
    """Partition with its leader and replicas, by ids of brokers."""

    partition: int
    leader: int | None
    """Leader, or None without one."""
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    """Replicas in sync."""


class TopicDescription(NamedTuple):
    """Topic with its partitions."""

    name: str
    topic_id: uuid.UUID | None
    """Id of the topic, or None for brokers before Kafka 2.8."""
    is_internal: bool
    partitions: tuple[PartitionDescription, ...]


class NewTopic(NamedTuple):
    """Topic to create. The defaults are those of the brokers."""

    num_partitions: int = BROKERS_DEFAULT
    replication_factor: int = BROKERS_DEFAULT
    configs: Mapping[str, str] | None = None
    """Settings such as ``{"retention.ms": "3600000"}``."""
    assignments: Mapping[int, Sequence[int]] | None = None
    """Brokers of each partition, in place of both numbers."""


class ConfigResource(NamedTuple):
    """Topic, broker or group that has settings. The name of a broker is its id."""

    type: ResourceKind
    name: str


class ConfigEntry(NamedTuple):
    """Value of a setting."""

    value: str | None
    """None for a secret, or for a setting without a value."""
    source: str
    """``topic``, ``broker``, ``all brokers``, ``broker file``, ``group`` or ``default``."""
    is_sensitive: bool
    is_read_only: bool


# -- the cluster and its topics ---------------------------------------------------------------


async def describe_cluster(engine: Engine, seconds: float) -> ClusterDescription:
    requests = await AdminRequests.begin(engine, seconds)

    async def attempt(_: Sequence[str]) -> Mapping[str, ClusterDescription | KafkaError]:
        found = await requests.cluster.fetch_topics((), may_create=False)
        brokers = tuple(BrokerDescription(*each) for each in found.brokers.values())
        return {"": ClusterDescription(found.cluster_id, found.controller, tuple(sorted(brokers)))}

    return (await requests.each([""], attempt, "the description of the cluster"))[""]


async def list_topics(engine: Engine, include_internal: bool, seconds: float) -> list[str]:
    found = await describe_topics(engine, None, seconds)
    return sorted(each.name for each in found.values() if include_internal or not each.is_internal)


async def describe_topics(
    engine: Engine, topics: list[str] | None, seconds: float
) -> AdminResults[str, TopicDescription]:
    requests = await AdminRequests.begin(engine, seconds)
    if topics is None:
        with requests.time_limit("the list of topics was not received"):
            metadata = await requests.cluster.fetch_topics(None)
        topics = sorted(metadata.topics)
    return await topics_by_name(requests, topics)


async def topics_by_name(
    requests: AdminRequests, topics: Iterable[str]
) -> AdminResults[str, TopicDescription]:
    """Return the topics by new metadata."""

    async def attempt(
        remaining: Sequence[str],
    ) -> Mapping[str, TopicDescription | KafkaError]:
        metadata = await requests.cluster.fetch_topics(remaining, may_create=False)
        return {name: _description(name, metadata.topics.get(name)) for name in remaining}

    return await requests.each(topics, attempt, "the description of topics")


async def wait_for_topics(engine: Engine, topics: list[str], seconds: float) -> None:
    requests = await AdminRequests.begin(engine, seconds)

    async def attempt(remaining: Sequence[str]) -> Mapping[str, KafkaError | None]:
        metadata = await requests.cluster.fetch_topics(remaining, may_create=False)
        return {
            name: _not_ready(_description(name, metadata.topics.get(name))) for name in remaining
        }

    (await requests.each(topics, attempt, "the wait for topics", looks=math.inf)).raise_errors()


def _not_ready(found: TopicDescription | KafkaError) -> KafkaError | None:
    if isinstance(found, KafkaError):
        return found
    for each in found.partitions:
        if each.leader is None:
            where = f"{escaped(found.name)}-{each.partition}"
            return LeaderNotAvailableError(f"{where} has no leader at present")
    return None


def _description(name: str, known: TopicMetadata | None) -> TopicDescription | KafkaError:
    if known is None or known.error:
        code = UnknownTopicOrPartitionError.code if known is None else known.error
        return topic_error("the description", name, code, "DESCRIBE")
    import uuid

    return TopicDescription(
        name,
        uuid.UUID(bytes=known.topic_id) if any(known.topic_id) else None,
        known.is_internal,
        tuple(
            PartitionDescription(
                number, None if each.leader < 0 else each.leader, each.replicas, each.isr
            )
            for number, each in sorted(known.partitions.items())
        ),
    )


def topic_error(
    what: str, name: str, code: int, operation: str, message: str | None = None
) -> KafkaError:
    if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return broker_error(code, f"topic {escaped(name)!r} does not exist")
    if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        return TopicAuthorizationFailedError(
            f"{what} failed with {error_name(code)}: this client needs {operation} on topic "
            f"{name!r}. Grant it",
            topics={name},
            operation=operation,
        )
    said = f" The broker's message is: {escaped(message)}" if message else ""
    return broker_error(code, f"{what} of topic {name!r} failed: {broker_error(code)}{said}")


async def _each_topic(
    requests: AdminRequests,
    topics: Iterable[str],
    send: Callable[[Sequence[str]], Iterable[RequestForm[R]]],
    results: Callable[[R], Iterable[tuple[str | None, int, str | None]]],
    what: str,
    operation: str,
) -> AdminResults[str, None]:
    """Send a change of topics to the controller. ``results`` has name, code and message."""

    async def attempt(remaining: Sequence[str]) -> Mapping[str, KafkaError | None]:
        metadata = requests.cluster.metadata
        node = metadata.controller if metadata.controller in metadata.brokers else None

        response = await send_supported(
            list(send(remaining)),
            partial(requests.cluster.request, node=node),
            requests.milliseconds / 1000,
        )
        found: dict[str, KafkaError | None] = {}
        for name, code, message in results(response):
            if name is not None and name in remaining:
                found[name] = topic_error(what, name, code, operation, message) if code else None
        if any(isinstance(each, KafkaError) for each in found.values()):
            requests.cluster.request_refresh()  # the controller may be another one
        return found

    return await requests.each(topics, attempt, what)


async def create_topics(
    engine: Engine, topics: Mapping[str, NewTopic], validate_only: bool, seconds: float
) -> AdminResults[str, None]:
    requests = await AdminRequests.begin(engine, seconds)

    def send(names: Sequence[str]) -> Iterable[RequestForm[CreateTopicsResponse]]:
        new = [_new_topic(name, topics[name]) for name in names]
        uses_defaults = any(
            BROKERS_DEFAULT in (each.num_partitions, each.replication_factor)
            and not each.assignments
            for each in new
        )
        yield RequestForm(
            CreateTopicsRequest(
                topics=new, timeout_ms=requests.milliseconds, validate_only=validate_only
            ),
            min_version=_CREATE_WITH_DEFAULTS if uses_defaults else None,
        )

    return await _each_topic(
        requests,
        topics,
        send,
        lambda response: (
            (each.name, each.error_code, each.error_message) for each in response.topics
        ),
        "the creation",
        "CREATE",
    )


def _new_topic(name: str, new: NewTopic) -> CreateTopicsRequest.CreatableTopic:
    return CreateTopicsRequest.CreatableTopic(
        name=name,
        num_partitions=BROKERS_DEFAULT if new.assignments else new.num_partitions,
        replication_factor=BROKERS_DEFAULT if new.assignments else new.replication_factor,
        assignments=[
            CreateTopicsRequest.CreatableReplicaAssignment(
                partition_index=number, broker_ids=list(brokers)
            )
            for number, brokers in (new.assignments or {}).items()
        ],
        configs=[
            CreateTopicsRequest.CreatableTopicConfig(name=key, value=value)
            for key, value in (new.configs or {}).items()
        ],
    )


async def delete_topics(
    engine: Engine, topics: list[str], seconds: float
) -> AdminResults[str, None]:
    requests = await AdminRequests.begin(engine, seconds)

    def send(names: Sequence[str]) -> Iterable[RequestForm[DeleteTopicsResponse]]:
        states = [DeleteTopicsRequest.DeleteTopicState(name=name) for name in names]
        limit = requests.milliseconds
        yield RequestForm(
            DeleteTopicsRequest(topics=states, timeout_ms=limit), min_version=_BY_STATE
        )
        yield RequestForm(
            DeleteTopicsRequest(topic_names=list(names), timeout_ms=limit),
            max_version=_BY_STATE - 1,
        )

    return await _each_topic(
        requests,
        topics,
        send,
        lambda response: (
            (each.name, each.error_code, each.error_message) for each in response.responses
        ),
        "the deletion",
        "DELETE",
    )


async def create_partitions(
    engine: Engine, counts: Mapping[str, int], validate_only: bool, seconds: float
) -> AdminResults[str, None]:
    requests = await AdminRequests.begin(engine, seconds)

    def send(names: Sequence[str]) -> Iterable[RequestForm[CreatePartitionsResponse]]:
        yield RequestForm(
            CreatePartitionsRequest(
                topics=[
                    CreatePartitionsRequest.CreatePartitionsTopic(
                        name=name, count=counts[name], assignments=None
                    )
                    for name in names
                ],
                timeout_ms=requests.milliseconds,
                validate_only=validate_only,
            )
        )

    return await _each_topic(
        requests,
        counts,
        send,
        lambda response: (
            (each.name, each.error_code, each.error_message) for each in response.results
        ),
        "the creation of partitions",
        "ALTER",
    )


# -- settings ---------------------------------------------------------------------------------


async def _each_resource(
    requests: AdminRequests,
    resources: Iterable[ConfigResource],
    send: Callable[[Sequence[ConfigResource]], Request[R]],
    results: Callable[[R], Iterable[ConfigResult]],
    read: Callable[[ConfigResource, ConfigResult], V | KafkaError],
    what: str,
) -> AdminResults[ConfigResource, V]:
    """Send a request about resources to the brokers that know their settings."""

    async def attempt(
        remaining: Sequence[ConfigResource],
    ) -> Mapping[ConfigResource, V | KafkaError]:
        found: dict[ConfigResource, V | KafkaError] = {}
        for node, chosen in _by_node(remaining).items():
            try:
                response = await requests.cluster.request(
                    send(chosen), node=node, timeout_ms=requests.milliseconds
                )
            except KafkaError as error:
                found |= dict.fromkeys(chosen, error)
                continue
            by_key = {(each.resource_type, each.resource_name): each for each in results(response)}
            for each in chosen:
                result = by_key.get((_KINDS[each.type], each.name))
                if result is not None:
                    found[each] = read(each, result)
        return found

    return await requests.each(resources, attempt, what)


async def describe_configs(
    engine: Engine, resources: list[ConfigResource], seconds: float
) -> AdminResults[ConfigResource, dict[str, ConfigEntry]]:
    requests = await AdminRequests.begin(engine, seconds)

    def send(chosen: Sequence[ConfigResource]) -> DescribeConfigsRequest:
        return DescribeConfigsRequest(
            resources=[
                DescribeConfigsRequest.DescribeConfigsResource(
                    resource_type=_KINDS[each.type],
                    resource_name=each.name,
                    configuration_keys=None,
                )
                for each in chosen
            ]
        )

    return await _each_resource(
        requests,
        resources,
        send,
        lambda response: response.results,
        _entries,
        "the description of settings",
    )


def _entries(
    resource: ConfigResource, result: DescribeConfigsResponse.DescribeConfigsResult
) -> dict[str, ConfigEntry] | KafkaError:
    if result.error_code:
        return _config_error(
            "the description", resource, result.error_code, "DESCRIBE_CONFIGS", result.error_message
        )
    return {
        each.name: ConfigEntry(
            each.value,
            _SOURCES.get(each.config_source, "unknown"),
            each.is_sensitive,
            each.read_only,
        )
        for each in result.configs
    }


async def alter_configs(
    engine: Engine,
    changes: Mapping[ConfigResource, Mapping[str, str | None]],
    validate_only: bool,
    seconds: float,
) -> AdminResults[ConfigResource, None]:
    """Set settings, or remove those whose value is None. Other settings stay (KIP-339)."""
    requests = await AdminRequests.begin(engine, seconds)

    def send(chosen: Sequence[ConfigResource]) -> IncrementalAlterConfigsRequest:
        return IncrementalAlterConfigsRequest(
            resources=[_alteration(each, changes[each]) for each in chosen],
            validate_only=validate_only,
        )

    def read(
        resource: ConfigResource,
        result: IncrementalAlterConfigsResponse.AlterConfigsResourceResponse,
    ) -> KafkaError | None:
        code, said = result.error_code, result.error_message
        return _config_error("the change", resource, code, "ALTER_CONFIGS", said) if code else None

    return await _each_resource(
        requests,
        changes,
        send,
        lambda response: response.responses,
        read,
        "the change of settings",
    )


def _alteration(
    resource: ConfigResource, changes: Mapping[str, str | None]
) -> IncrementalAlterConfigsRequest.AlterConfigsResource:
    return IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=_KINDS[resource.type],
        resource_name=resource.name,
        configs=[
            IncrementalAlterConfigsRequest.AlterableConfig(
                name=name, config_operation=_DELETE if value is None else _SET, value=value
            )
            for name, value in changes.items()
        ],
    )


def _by_node(resources: Iterable[ConfigResource]) -> dict[int | None, list[ConfigResource]]:
    """Return resources by the broker to ask. None stands for any broker."""
    found: dict[int | None, list[ConfigResource]] = {}
    for each in resources:
        is_broker = each.type == "broker" and each.name.isdecimal()
        found.setdefault(int(each.name) if is_broker else None, []).append(each)
    return found


def _config_error(
    what: str, resource: ConfigResource, code: int, operation: str, message: str | None
) -> KafkaError:
    if resource.type == "topic":
        return topic_error(f"{what} of settings", resource.name, code, operation, message)
    if resource.type == "group" and code == ErrorCode.GROUP_AUTHORIZATION_FAILED:
        return group_error(f"{what} of settings", resource.name, code, operation)
    if code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        return broker_error(
            code,
            f"{what} of settings of {resource.type} {resource.name!r} failed with "
            f"{error_name(code)}: this client needs {operation} on the cluster. Grant it",
        )
    said = f" The broker's message is: {escaped(message)}" if message else ""
    if resource.type == "group" and resource.name and code == ErrorCode.INVALID_REQUEST:
        return broker_error(
            ErrorCode.UNSUPPORTED_VERSION,
            f"{what} of settings of group {escaped(resource.name)!r} failed: the brokers have no "
            f"settings of groups. They need Kafka 4.0.{said}",
        )
    return broker_error(
        code,
        f"{what} of settings of {resource.type} {resource.name!r} failed: "
        f"{broker_error(code)}{said}",
    )
