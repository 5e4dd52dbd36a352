"""Configs of topics, brokers and groups, and further APIs of administrators."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from kohort.protocol.messages import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    CreateTopicsRequest,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribeLogDirsRequest,
    DescribeQuorumRequest,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    ListConfigResourcesRequest,
)
from kohort.records import Compression
from tests.conformance.members import Member, stable
from tests.conformance.probe import Observations, probe
from tests.conformance.probes.fetching import fetch, partition
from tests.conformance.session import READY_S, T0, Session, batch

TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)


def describe(
    session: Session,
    name: str,
    keys: Sequence[str] | None = None,
    kind: int = TOPIC,
    version: int = 4,
    **other: bool,
) -> DescribeConfigsResponse:
    asked = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=kind,
        resource_name=name,
        configuration_keys=None if keys is None else list(keys),
    )
    return session.ask(DescribeConfigsRequest(resources=[asked], **other), version)


def alter(
    session: Session,
    name: str,
    values: Mapping[str, str | None],
    kind: int = TOPIC,
    version: int = 2,
    validate_only: bool = False,
) -> AlterConfigsResponse:
    asked = AlterConfigsRequest.AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[
            AlterConfigsRequest.AlterableConfig(name=key, value=value)
            for key, value in values.items()
        ],
    )
    return session.ask(AlterConfigsRequest(resources=[asked], validate_only=validate_only), version)


def change(
    session: Session,
    name: str,
    *changes: tuple[int, str, str | None],
    kind: int = TOPIC,
    version: int = 1,
    validate_only: bool = False,
) -> IncrementalAlterConfigsResponse:
    asked = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[
            IncrementalAlterConfigsRequest.AlterableConfig(
                name=key, config_operation=operation, value=value
            )
            for operation, key, value in changes
        ],
    )
    return session.ask(
        IncrementalAlterConfigsRequest(resources=[asked], validate_only=validate_only), version
    )


def _own(session: Session, name: str) -> dict[str, str | None]:
    """Return the configs that a topic sets itself."""
    configs = describe(session, name).results[0].configs
    return {config.name: config.value for config in configs if config.config_source == 1}


def _wait_for(session: Session, name: str, wanted: Mapping[str, str]) -> dict[str, str | None]:
    """Return the final configs. The broker applies a change a little later."""
    deadline = time.monotonic() + READY_S
    while (found := _own(session, name)) != wanted and time.monotonic() < deadline:
        time.sleep(0.005)
    return found


@probe("3")
def settings_of_a_topic(session: Session) -> Observations:
    """Describe all configs of a topic that sets some, in every version."""
    name = session.topic(configs={"retention.ms": "1000", "cleanup.policy": "compact"})
    for version in range(1, 5):
        for synonyms in (False, True):
            answer = describe(session, name, version=version, include_synonyms=synonyms)
            yield f"version {version}, synonyms {synonyms}", answer


@probe("3")
def some_settings_of_a_topic(session: Session) -> Observations:
    """Describe configs by name, with unknown ones, and none."""
    name = session.topic(configs={"segment.bytes": "1048576"})
    for keys in (["retention.bytes", "segment.bytes"], ["no.such.thing"], []):
        yield f"{keys}", describe(session, name, keys, include_synonyms=True)


@probe("3")
def settings_of_what_is_not_there(session: Session) -> Observations:
    """Describe unknown topics, brokers and resource types."""
    for label, kind, name in (
        ("topic", TOPIC, session.name("none")),
        ("invalid topic", TOPIC, "bad topic!"),
        ("empty topic", TOPIC, ""),
        ("broker", BROKER, "99"),
        ("no number", BROKER, "one"),
        ("kind", 77, "x"),
        ("kind 0", 0, "x"),
    ):
        for version in (1, 4):
            yield f"{label} {version}", describe(session, name, ["x"], kind, version)


@probe("3")
def settings_in_create_topics(session: Session) -> Observations:
    """Create topics, with all configs in the response from version 5 on."""
    for version in (4, 5, 7):
        topic = CreateTopicsRequest.CreatableTopic(
            name=session.name(f"v{version}"),
            num_partitions=1,
            replication_factor=1,
            configs=[CreateTopicsRequest.CreatableTopicConfig(name="retention.ms", value="1000")],
        )
        answer = session.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), version)
        configs = answer.topics[0].configs or []
        yield (
            f"version {version}",
            sorted(
                [config.name, config.value, config.config_source, config.read_only]
                for config in configs
            ),
        )


@probe("3")
def alter_settings(session: Session) -> Observations:
    """Replace all configs that a topic sets, with AlterConfigs."""
    name = session.topic(configs={"retention.ms": "1000", "segment.bytes": "1048576"})
    for version, value in ((0, "2000"), (1, "3000"), (2, "4000")):
        yield f"version {version}", alter(session, name, {"retention.ms": value}, version=version)
        yield f"found {version}", _wait_for(session, name, {"retention.ms": value})
    yield "looked at only", alter(session, name, {"retention.ms": "5"}, validate_only=True)
    yield "nothing", alter(session, name, {})
    yield "left", _wait_for(session, name, {})


@probe("3")
def alter_settings_that_cannot_be(session: Session) -> Observations:
    """Alter unknown topics, configs and values. No config changes then."""
    name = session.topic(configs={"retention.ms": "1000"})
    for label, topic, values in (
        ("unknown topic", session.name("none"), {"retention.ms": "1"}),
        ("unknown setting", name, {"no.such.thing": "1"}),
        ("wrong value", name, {"retention.ms": "soon"}),
        ("one of two", name, {"retention.ms": "5", "cleanup.policy": "burn"}),
        ("null", name, {"retention.ms": None}),
    ):
        yield label, alter(session, topic, values)
    yield "kind", alter(session, "x", {"a": "b"}, 77)
    yield "left", _own(session, name)
    yield "no resources", session.ask(AlterConfigsRequest(), 2)


@probe("3")
def settings_that_are_named_twice(session: Session) -> Observations:
    """Name a config twice for a topic, and a topic twice in a request."""
    name, other = session.topic(), session.topic("other")
    full, part = AlterConfigsRequest, IncrementalAlterConfigsRequest
    old = full.AlterConfigsResource(
        resource_type=TOPIC,
        resource_name=name,
        configs=[full.AlterableConfig(name="flush.ms", value="5")],
    )
    new = part.AlterConfigsResource(
        resource_type=TOPIC,
        resource_name=name,
        configs=[part.AlterableConfig(name="flush.ms", config_operation=SET, value="5")],
    )
    yield "topic", session.ask(part(resources=[new, new]), 1)
    yield "left", _own(session, name)
    old.configs, new.configs = old.configs * 2, new.configs * 2
    yield "setting", session.ask(full(resources=[old]), 2)
    yield "setting, one setting", session.ask(part(resources=[new]), 1)
    yield "left in the end", [_own(session, name), _own(session, other)]


@probe("3")
def settings_of_topics_that_cannot_be(session: Session) -> Observations:
    """Alter configs of names that no topic has."""
    for topic in ("", ".", "..", "bad topic!", "x" * 250):
        label = topic[:10]
        yield f"all {label!r}", alter(session, topic, {"flush.ms": "5"})
        yield f"one {label!r}", change(session, topic, (SET, "flush.ms", "5"))


@probe("3")
def change_settings(session: Session) -> Observations:
    """Set, delete, append and subtract with IncrementalAlterConfigs."""
    name = session.topic(configs={"retention.ms": "1000"})
    for version in (0, 1):
        answer = change(session, name, (SET, "segment.bytes", "1048576"), version=version)
        yield f"set {version}", answer
    yield "deleted", change(session, name, (DELETE, "retention.ms", None))
    wanted = {"segment.bytes": "1048576"}
    yield "found", _wait_for(session, name, wanted)
    yield "deleted what is not set", change(session, name, (DELETE, "flush.ms", None))
    yield "appended", change(session, name, (APPEND, "cleanup.policy", "compact"))
    wanted["cleanup.policy"] = "delete,compact"
    yield "both", _wait_for(session, name, wanted)
    yield "appended again", change(session, name, (APPEND, "cleanup.policy", "compact"))
    yield "taken away", change(session, name, (SUBTRACT, "cleanup.policy", "delete"))
    wanted["cleanup.policy"] = "compact"
    yield "one", _wait_for(session, name, wanted)
    yield "looked at only", change(session, name, (SET, "flush.ms", "1"), validate_only=True)
    yield "left", _own(session, name)


@probe("3")
def change_settings_that_cannot_be(session: Session) -> Observations:
    """Send mistakes of all kinds. No config changes then."""
    name = session.topic(configs={"retention.ms": "1000"})
    for label, topic, changes in (
        ("unknown topic", session.name("none"), [(SET, "retention.ms", "1")]),
        ("unknown setting", name, [(SET, "no.such.thing", "1")]),
        ("wrong value", name, [(SET, "retention.ms", "soon")]),
        ("null", name, [(SET, "retention.ms", None)]),
        ("append to no list", name, [(APPEND, "retention.ms", "1")]),
        ("append null", name, [(APPEND, "cleanup.policy", None)]),
        ("subtract from no list", name, [(SUBTRACT, "retention.ms", "1")]),
        ("unknown operation", name, [(9, "retention.ms", "1")]),
        ("twice", name, [(SET, "retention.ms", "1"), (SET, "retention.ms", "2")]),
        ("one of two", name, [(SET, "retention.ms", "5"), (SET, "cleanup.policy", "burn")]),
        ("delete unknown", name, [(DELETE, "no.such.thing", None)]),
    ):
        yield label, change(session, topic, *changes)
    yield "kind", change(session, "x", (SET, "a", "b"), kind=77)
    yield "left", _own(session, name)


@probe("3")
def settings_of_one_topic_twice(session: Session) -> Observations:
    """Describe one topic twice in one request."""
    name = session.topic()
    wanted = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=TOPIC, resource_name=name, configuration_keys=["retention.bytes"]
    )
    yield "describe", session.ask(DescribeConfigsRequest(resources=[wanted, wanted]), 4)


def _until(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + READY_S
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True


@probe("3")
def changed_settings_count(session: Session) -> Observations:
    """Change configs of an existing topic, which apply from then on."""
    name = session.topic()
    session.produce(name, batch(b"a"))
    change(
        session,
        name,
        (SET, "max.message.bytes", "2000"),
        (SET, "compression.type", "gzip"),
        (SET, "message.timestamp.type", "LogAppendTime"),
    )
    _until(lambda: len(_own(session, name)) == 3)
    session.produce(name, batch(b"b" * 100, compression=Compression.LZ4))
    yield "stored", fetch(session, name, partition(0, 1))


@probe("3")
def settings_of_groups(session: Session) -> Observations:
    """Describe and change configs of groups, which do not affect classic groups."""
    group = session.group()
    stable(Member(session, group))
    key = "consumer.session.timeout.ms"
    yield "described", describe(session, group, [key], GROUP)
    yield "changed", change(session, group, (SET, key, "50000"), kind=GROUP)
    yield "unknown", change(session, group, (SET, "no.such.thing", "1"), kind=GROUP)


@probe("3")
def names_of_things_with_settings(session: Session) -> Observations:
    """List config resources of known types, several, all, and unknown ones."""
    name = session.topic()
    for label, kinds, version in (
        ("version 0", [], 0),
        ("topics", [TOPIC], 1),
        ("brokers", [BROKER], 1),
        ("loggers", [LOGGER], 1),
        ("metrics", [CLIENT_METRICS], 1),
        ("topics and brokers", [TOPIC, BROKER], 1),
        ("all", [], 1),
        ("unknown", [77], 1),
    ):
        answer = session.ask(ListConfigResourcesRequest(resource_types=kinds), version)
        answer.config_resources = [
            found
            for found in answer.config_resources
            if found.resource_type not in (TOPIC, GROUP) or found.resource_name == name
        ]
        yield label, answer


@probe("3")
def log_directories(session: Session) -> Observations:
    """Describe the sizes of partitions, of one topic, and of unknown ones."""
    name = session.topic(partitions=2)
    session.produce(name, batch(b"x" * 100, timestamps=(T0,)))
    Asked = DescribeLogDirsRequest.DescribableLogDirTopic
    for version in range(1, 6):
        for label, topics in (
            ("one", [Asked(topic=name, partitions=[0, 1])]),
            ("unknown", [Asked(topic=session.name("none"), partitions=[0])]),
            ("unknown partition", [Asked(topic=name, partitions=[7])]),
            ("none", []),
        ):
            answer = session.ask(DescribeLogDirsRequest(topics=topics), version)
            for found in answer.results:
                found.log_dir = "<folder>"
                found.total_bytes = min(found.total_bytes, 1)
                found.usable_bytes = min(found.usable_bytes, 1)
            yield f"{label} {version}", answer
    everything = session.ask(DescribeLogDirsRequest(topics=None), 4)
    yield "all", [topic for topic in everything.results[0].topics if topic.name == name]


@probe("3")
def the_metadata_quorum(session: Session) -> Observations:
    """Describe the voters of the quorum, and other topics in DescribeQuorum."""
    Topic = DescribeQuorumRequest.TopicData
    for version in range(3):
        for label, topic, index in (
            ("metadata", "__cluster_metadata", 0),
            ("other partition", "__cluster_metadata", 1),
            ("other topic", "t", 0),
        ):
            wanted = DescribeQuorumRequest.PartitionData(partition_index=index)
            request = DescribeQuorumRequest(topics=[Topic(topic_name=topic, partitions=[wanted])])
            answer = session.ask(request, version)
            for found in answer.topics:
                for data in found.partitions:
                    data.high_watermark = min(data.high_watermark, 1)
                    data.leader_epoch = min(data.leader_epoch, 1)
                    for replica in data.current_voters:
                        replica.log_end_offset = min(replica.log_end_offset, 1)
            for node in answer.nodes:
                for listener in node.listeners:
                    listener.port = 1
            yield f"{label} {version}", answer
    yield "nothing", session.ask(DescribeQuorumRequest(), 2)
