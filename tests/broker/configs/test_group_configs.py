"""Configs of groups: set, checked, described, listed and in effect."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from kohort.errors import ErrorCode, InvalidOptionError
from kohort.protocol.messages import (
    AlterConfigsRequest,
    ApiVersionsRequest,
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    IncrementalAlterConfigsRequest,
    ListConfigResourcesRequest,
)
from kohort.testing import Cluster
from tests.broker.raw import Raw, find_coordinator

BROKER, GROUP = 4, 32
SET, DELETE, APPEND = range(3)
SESSION = "consumer.session.timeout.ms"
HEARTBEAT = "consumer.heartbeat.interval.ms"
INTERVAL = "consumer.assignment.interval.ms"
Refusal = tuple[int, str | None]
OK: Refusal = (ErrorCode.NONE, None)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(1) as cluster:
        yield cluster


@pytest.fixture
def raw(cluster: Cluster) -> Iterator[Raw]:
    with Raw(cluster) as raw:
        yield raw


def alter(
    raw: Raw,
    group: str,
    *changes: tuple[str, str | None],
    operation: int = SET,
    kind: int = GROUP,
    validate_only: bool = False,
) -> Refusal:
    """Change configs by IncrementalAlterConfigs and return error code and message."""
    cls = IncrementalAlterConfigsRequest
    entries = [
        cls.AlterableConfig(name=name, config_operation=operation, value=value)
        for name, value in changes
    ]
    asked = cls.AlterConfigsResource(resource_type=kind, resource_name=group, configs=entries)
    (done,) = raw.ask(cls(resources=[asked], validate_only=validate_only), 1).responses
    return done.error_code, done.error_message


def replace(raw: Raw, group: str, *configs: tuple[str, str | None]) -> Refusal:
    """Replace all configs by AlterConfigs and return error code and message."""
    cls = AlterConfigsRequest
    entries = [cls.AlterableConfig(name=name, value=value) for name, value in configs]
    asked = cls.AlterConfigsResource(resource_type=GROUP, resource_name=group, configs=entries)
    (done,) = raw.ask(cls(resources=[asked]), 2).responses
    return done.error_code, done.error_message


def describe(
    raw: Raw, group: str, keys: Sequence[str] | None = None
) -> DescribeConfigsResponse.DescribeConfigsResult:
    """Return the described configs of a group."""
    cls = DescribeConfigsRequest
    asked = cls.DescribeConfigsResource(
        resource_type=GROUP,
        resource_name=group,
        configuration_keys=None if keys is None else list(keys),
    )
    (result,) = raw.ask(cls(resources=[asked], include_synonyms=True), 4).results
    return result


def origins(raw: Raw, group: str, name: str) -> list[tuple[str, str | None, int]]:
    """Return the values of a config with name and source, the effective one first."""
    (config,) = describe(raw, group, [name]).configs
    shown = [(each.name, each.value, each.source) for each in config.synonyms]
    assert (config.value, config.config_source) == shown[0][1:]
    return shown


def listed(raw: Raw) -> list[str]:
    """Return the names of all groups with configs."""
    answer = raw.ask(ListConfigResourcesRequest(resource_types=[GROUP]), 1)
    return [resource.resource_name for resource in answer.config_resources]


def heartbeat_interval(raw: Raw, group: str) -> int:
    """Join and return the heartbeat interval that the coordinator wants."""
    find_coordinator(raw, group)
    request = ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id="m",
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=[],
        topic_partitions=[],
    )
    answer = raw.ask(request, 1)
    assert answer.error_code == ErrorCode.NONE
    return answer.heartbeat_interval_ms


def test_group_without_configs_shows_those_of_the_broker(raw: Raw) -> None:
    configs = {config.name: config for config in describe(raw, "plain").configs}
    assert len(configs) == 21
    assert [configs[name].value for name in (SESSION, HEARTBEAT, INTERVAL)] == [
        "45000",
        "5000",
        "1000",
    ]
    assert not any(config.read_only or config.is_sensitive for config in configs.values())
    assert origins(raw, "plain", SESSION) == [(f"group.{SESSION}", "45000", 5)]
    assert origins(raw, "plain", "share.isolation.level") == [
        ("share.isolation.level", "read_uncommitted", 5)
    ]


def test_config_of_a_group_overrides_that_of_the_broker(raw: Raw) -> None:
    assert alter(raw, "own", (SESSION, "50000"), (HEARTBEAT, " 6000 ")) == OK
    assert origins(raw, "own", SESSION) == [
        (SESSION, "50000", 8),
        (f"group.{SESSION}", "45000", 5),
    ]
    assert origins(raw, "own", HEARTBEAT)[0] == (HEARTBEAT, "6000", 8)
    assert "own" in listed(raw)
    assert heartbeat_interval(raw, "own") == 6_000
    assert heartbeat_interval(raw, "another") == 5_000
    assert alter(raw, "own", (SESSION, None), (HEARTBEAT, None), operation=DELETE) == OK
    assert "own" not in listed(raw)
    assert heartbeat_interval(raw, "own") == 5_000


def test_replacing_configs_removes_the_others(raw: Raw) -> None:
    assert alter(raw, "replaced", (SESSION, "50000")) == OK
    assert replace(raw, "replaced", (INTERVAL, "0")) == OK
    assert origins(raw, "replaced", SESSION)[0][1] == "45000"
    assert origins(raw, "replaced", INTERVAL)[0][1] == "0"
    assert replace(raw, "replaced") == OK
    assert listed(raw) == []


def test_validation_alone_changes_nothing(raw: Raw) -> None:
    assert alter(raw, "checked", (SESSION, "50000"), validate_only=True) == OK
    assert alter(raw, "checked", (SESSION, "1"), validate_only=True)[0] == ErrorCode.INVALID_CONFIG
    assert listed(raw) == []


NUMBER = "Invalid value {1} for configuration {0}: Not a number of type INT"
LOW = "{0} must be greater than or equal to group.consumer.min.{2}"
HIGH = "{0} must be less than or equal to group.consumer.max.{2}"
REFUSED = [
    (SESSION, "44999", LOW),
    (SESSION, "60001", HIGH),
    (SESSION, "0", "Invalid value {1} for configuration {0}: Value must be at least 1"),
    (SESSION, "abc", NUMBER),
    (SESSION, "", NUMBER),
    (SESSION, "99999999999", NUMBER),
    (HEARTBEAT, "4999", LOW),
    (HEARTBEAT, "15001", HIGH),
    (INTERVAL, "15001", HIGH),
    (INTERVAL, "-1", "Invalid value {1} for configuration {0}: Value must be at least 0"),
    ("foo", "1", "Unknown group config name: foo"),
    ("", "1", "Unknown group config name: "),
    (
        "share.isolation.level",
        "x",
        "Invalid value x for configuration share.isolation.level: String must be one of: "
        "read_committed, read_uncommitted",
    ),
    (
        "share.session.timeout.ms",
        "44999",
        "share.session.timeout.ms must be in the range 45000 to 60000 inclusive.",
    ),
    (
        "share.delivery.count.limit",
        "300",
        "share.delivery.count.limit must be in the range 2 to 10 inclusive.",
    ),
    (
        "share.delivery.count.limit",
        "1",
        "Invalid value {1} for configuration {0}: Value must be at least 2",
    ),
    ("errors.deadletterqueue.topic.name", "__x", "{0}: DLQ topic name must not start with '__'"),
    (
        "streams.num.standby.replicas",
        "9",
        "streams.num.standby.replicas must be less than or equal to "
        "group.streams.max.standby.replicas",
    ),
]
"""Configs with the words of Apache Kafka 4.4.0."""


@pytest.mark.parametrize(("name", "value", "words"), REFUSED)
def test_wrong_config_is_refused_in_kafkas_words(
    raw: Raw, name: str, value: str, words: str
) -> None:
    said = words.format(name, value, name.removeprefix("consumer."))
    assert alter(raw, "wrong", (name, value)) == (ErrorCode.INVALID_CONFIG, said)
    assert replace(raw, "wrong", (name, value)) == (ErrorCode.INVALID_CONFIG, said)
    assert listed(raw) == []


@pytest.mark.parametrize("value", ["earliest", "latest", "by_duration:PT1H", "by_duration:P1DT1S"])
def test_reset_of_share_groups_takes_a_duration(raw: Raw, value: str) -> None:
    name = "share.auto.offset.reset"
    assert alter(raw, "share", (name, value), validate_only=True) == OK
    for wrong in ("nearest", "by_duration:P", "by_duration:1H"):
        assert alter(raw, "share", (name, wrong))[0] == ErrorCode.INVALID_CONFIG


def test_wrong_requests_for_groups_are_refused(raw: Raw) -> None:
    no_default = "Default group resources are not allowed."
    assert alter(raw, "", (SESSION, "50000")) == (ErrorCode.INVALID_REQUEST, no_default)
    assert replace(raw, "", (SESSION, "50000")) == (ErrorCode.INVALID_REQUEST, no_default)
    null = f"Null value not supported for : {SESSION}"
    assert alter(raw, "g", (SESSION, None)) == (ErrorCode.INVALID_REQUEST, null)
    assert replace(raw, "g", (SESSION, None)) == (ErrorCode.INVALID_REQUEST, null)
    twice = (ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    assert alter(raw, "g", (SESSION, "50000"), (SESSION, "50000")) == twice
    not_a_list = f"Can't APPEND to key {SESSION} because its type is not LIST."
    found = alter(raw, "g", (SESSION, "1"), operation=APPEND)
    assert found == (ErrorCode.INVALID_CONFIG, not_a_list)
    nameless = describe(raw, "")
    assert nameless.error_code == ErrorCode.INVALID_REQUEST
    assert nameless.error_message == "Group name must not be empty"


def test_assignment_interval_of_brokers_changes_while_they_run(raw: Raw) -> None:
    name = f"group.{INTERVAL}"
    assert alter(raw, "", (name, "500"), kind=BROKER) == OK
    assert origins(raw, "any", INTERVAL) == [(name, "500", 3), (name, "1000", 5)]
    too_long = f"{name} must be less than or equal to group.consumer.max.assignment.interval.ms"
    found = alter(raw, "", (name, "15001"), kind=BROKER)
    assert found == (ErrorCode.INVALID_REQUEST, too_long)
    assert alter(raw, "", (name, None), operation=DELETE, kind=BROKER) == OK


def waits_for_the_interval(raw: Raw, group: str) -> bool:
    """True if a second member has to wait for the next target assignment."""
    find_coordinator(raw, group)
    for name in "ab":
        joined = ConsumerGroupHeartbeatRequest(
            group_id=group,
            member_id=name,
            rebalance_timeout_ms=10_000,
            subscribed_topic_names=["any"],
            topic_partitions=[],
        )
        assert raw.ask(joined, 1).error_code == 0
    described = raw.ask(ConsumerGroupDescribeRequest(group_ids=[group]), 1).groups[0]
    return described.group_state == "Assigning"


def test_assignment_interval_of_one_broker_takes_precedence(raw: Raw) -> None:
    name = f"group.{INTERVAL}"
    assert waits_for_the_interval(raw, "before")
    assert alter(raw, "1", (name, "0"), kind=BROKER) == OK
    assert not waits_for_the_interval(raw, "of one")
    assert alter(raw, "", (name, "2000"), kind=BROKER) == OK
    assert not waits_for_the_interval(raw, "of all")
    assert alter(raw, "1", (name, None), operation=DELETE, kind=BROKER) == OK
    assert waits_for_the_interval(raw, "not of one")
    assert alter(raw, "", (name, None), operation=DELETE, kind=BROKER) == OK


def test_hidden_config_of_brokers_cannot_change(raw: Raw) -> None:
    name = "group.consumer.regex.refresh.interval.ms"
    code, _ = alter(raw, "", (name, "1000"), kind=BROKER)
    assert code == ErrorCode.INVALID_REQUEST


def test_session_must_be_longer_than_the_heartbeat_interval() -> None:
    configs = {
        "group.consumer.min.session.timeout.ms": 1_000,
        "group.consumer.min.heartbeat.interval.ms": 100,
    }
    with Cluster(1, configs=configs) as cluster, Raw(cluster) as raw:
        words = f"{SESSION} must be greater than {HEARTBEAT}"
        found = alter(raw, "g", (SESSION, "5000"))
        assert found == (ErrorCode.INVALID_CONFIG, words)
        assert alter(raw, "g", (SESSION, "1000"), (HEARTBEAT, "999")) == OK
        assert heartbeat_interval(raw, "g") == 999


def test_option_below_the_brokers_minimum_lowers_it() -> None:
    cluster = Cluster(
        1,
        consumer_session_timeout_ms=1_000,
        consumer_heartbeat_interval_ms=100,
        consumer_assignment_interval_ms=0,
    )
    with cluster, Raw(cluster) as raw:
        assert origins(raw, "g", SESSION)[0][1:] == ("1000", 4)
        assert origins(raw, "g", INTERVAL)[0][1:] == ("0", 4)
        assert heartbeat_interval(raw, "g") == 100
        assert alter(raw, "g", (HEARTBEAT, "100")) == OK
        assert alter(raw, "g", (HEARTBEAT, "99"))[0] == ErrorCode.INVALID_CONFIG


@pytest.mark.parametrize(
    ("configs", "complaint"),
    [
        ({f"group.{SESSION}": 1_000}, "must be from 45000 to 60000"),
        ({f"group.{HEARTBEAT}": 20_000}, "must be from 5000 to 15000"),
        ({"group.consumer.assignors": "sticky"}, "choose from"),
        ({"group.consumer.migration.policy": "sideways"}, "choose from bidirectional, upgrade"),
        (
            {
                "group.consumer.min.session.timeout.ms": 1_000,
                f"group.{SESSION}": 5_000,
            },
            "must be more than consumer_heartbeat_interval_ms=5000",
        ),
    ],
)
def test_broker_configs_of_consumer_groups_are_checked(
    configs: dict[str, object], complaint: str
) -> None:
    with pytest.raises(InvalidOptionError, match=complaint):
        Cluster(1, configs=configs)


def test_group_version_must_be_0_or_1() -> None:
    with pytest.raises(InvalidOptionError, match="group_version=2: must be 0 or 1"):
        Cluster(1, group_version=2)


@pytest.mark.parametrize(
    ("options", "level"),
    [
        ({"group_version": 0}, None),
        ({"configs": {"group.coordinator.rebalance.protocols": "classic"}}, 1),
    ],
)
def test_consumer_protocol_can_be_switched_off(
    options: dict[str, object], level: int | None
) -> None:
    with Cluster(1, **options) as cluster, Raw(cluster) as raw:  # type: ignore[arg-type]
        shown = raw.ask(
            ApiVersionsRequest(client_software_name="a", client_software_version="1"), 4
        )
        levels = {each.name: each.max_version_level for each in shown.finalized_features}
        assert levels.get("group.version") == level
        assert {each.api_key for each in shown.api_keys} >= {68, 69}
        joined = raw.ask(ConsumerGroupHeartbeatRequest(group_id="", member_id=""), 1)
        assert joined.error_code == ErrorCode.UNSUPPORTED_VERSION
        (group,) = raw.ask(ConsumerGroupDescribeRequest(group_ids=["g"]), 1).groups
        assert (group.group_id, group.error_code) == ("g", ErrorCode.UNSUPPORTED_VERSION)
        assert len(describe(raw, "g").configs) == 21
        assert alter(raw, "g", (SESSION, "50000")) == OK
