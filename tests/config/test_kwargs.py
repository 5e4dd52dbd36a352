"""ConsumerConfig from keyword arguments."""

from __future__ import annotations

import dataclasses
import logging
import math
import pickle
import selectors
import socket
from typing import Any

import pytest

from kohort.config import OPTIONS, UNSUPPORTED, ClientConfig, ConsumerConfig, GroupConfig
from kohort.errors import (
    ConfigurationError,
    InvalidOptionError,
    UnknownOptionError,
    UnsupportedOptionError,
)
from tests.support.option_values import (
    MALFORMED_SERVERS,
    SERVERS,
    SPECIAL_VALUES,
    WRONG_VALUES,
)


class Assignor:
    name = "mine"

    def assign(self, cluster: Any, members: Any) -> Any:
        return {}


def test_defaults_are_those_of_kafka() -> None:
    config = ConsumerConfig.from_kwargs()
    assert config == ConsumerConfig()
    assert config.client.bootstrap_servers == (("localhost", 9092),)
    assert config.group.session_timeout_ms == 45_000
    assert config.group.heartbeat_interval_ms == 3_000
    assert config.group.max_poll_interval_ms == 300_000
    assert config.group.rebalance_timeout_ms == 300_000
    assert config.fetch.auto_offset_reset == "latest"
    assert config.fetch.max_poll_records == 500
    assert config.client.reconnect_backoff_ms == 50
    assert config.client.reconnect_backoff_max_ms == 1_000
    assert config.consumer_timeout_ms == math.inf


def test_each_section_gets_its_options() -> None:
    config = ConsumerConfig.from_kwargs(
        client_id="me", group_id="g", fetch_min_bytes=7, consumer_timeout_ms=250
    )
    assert config.client.client_id == "me"
    assert config.group.group_id == "g"
    assert config.fetch.fetch_min_bytes == 7
    assert config.consumer_timeout_ms == 250.0


def test_options_of_requests_reach_every_section() -> None:
    config = ConsumerConfig.from_kwargs(request_timeout_ms=7_000, retry_backoff_ms=5)
    for section in (config.client, config.group, config.fetch):
        assert section.request_timeout_ms == 7_000
        assert section.retry_backoff_ms == 5


def test_configuration_is_frozen() -> None:
    config = ConsumerConfig()
    for section, name in ((config, "metrics_enabled"), (config.client, "client_id")):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(section, name, "x")


def test_sections_are_equal_when_their_options_are() -> None:
    one, other, third = (ConsumerConfig.from_kwargs(client_id=name) for name in ("a", "a", "b"))
    assert one == other
    assert hash(one) == hash(other)
    assert one != third
    assert one.client != one.group
    assert pickle.loads(pickle.dumps(one)) == one
    assert repr(one.client).startswith("ClientConfig(request_timeout_ms=30000, retry_backoff_ms=")
    parts = ", ".join(
        f"{name}={getattr(one, name)!r}" for name in ("client", "group", "fetch", "security")
    )
    assert repr(one).endswith(f"{parts})")


def test_a_section_is_checked_however_it_is_made() -> None:
    with pytest.raises(InvalidOptionError, match="request_timeout_ms=-1"):
        ClientConfig(request_timeout_ms=-1)
    with pytest.raises(InvalidOptionError, match="heartbeat_interval_ms"):
        dataclasses.replace(GroupConfig(), heartbeat_interval_ms=60_000)


@pytest.mark.parametrize(
    ("given", "servers"),
    SERVERS,
)
def test_bootstrap_servers_take_every_usual_form(given: Any, servers: Any) -> None:
    config = ConsumerConfig.from_kwargs(bootstrap_servers=given)
    assert list(config.client.bootstrap_servers) == servers


@pytest.mark.parametrize(
    "given",
    MALFORMED_SERVERS,
)
def test_malformed_bootstrap_servers_are_refused(given: Any) -> None:
    with pytest.raises(InvalidOptionError, match=r"bootstrap_servers=.*expected \"host:port\""):
        ConsumerConfig.from_kwargs(bootstrap_servers=given)


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    WRONG_VALUES,
)
def test_wrong_value_error_names_option_value_and_expectation(
    name: str, value: Any, expected: str
) -> None:
    with pytest.raises(InvalidOptionError) as raised:
        ConsumerConfig.from_kwargs(**{name: value})
    message = str(raised.value)
    assert message.startswith(f"{name}=")
    assert expected in message


def test_a_password_in_an_address_is_not_shown() -> None:
    with pytest.raises(InvalidOptionError) as raised:
        ConsumerConfig.from_kwargs(bootstrap_servers=["a:1", "user:hunter2@host:9092"])
    assert "hunter2" not in str(raised.value)


def test_a_long_wrong_value_is_cut_in_the_message() -> None:
    with pytest.raises(InvalidOptionError) as raised:
        ConsumerConfig.from_kwargs(session_timeout_ms="9" * 10_000)
    assert len(str(raised.value)) < 300


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        (
            {"session_timeout_ms": 3_000},
            r"heartbeat_interval_ms=3000: expected less than session_timeout_ms \(3000\)",
        ),
        ({"fetch_min_bytes": 10, "fetch_max_bytes": 9}, r"fetch_min_bytes=10: .*fetch_max_bytes"),
        (
            {"fetch_max_wait_ms": 5_000, "request_timeout_ms": 5_000},
            r"fetch_max_wait_ms=5000: expected less than request_timeout_ms \(5000\)",
        ),
        ({"group_instance_id": "one"}, r"group_instance_id='one': expected a group_id"),
        (
            {"retry_backoff_ms": 9, "retry_backoff_max_ms": 8},
            r"retry_backoff_ms=9: expected at most retry_backoff_max_ms \(8\)",
        ),
        (
            {"reconnect_backoff_ms": 9, "reconnect_backoff_max_ms": 8},
            r"reconnect_backoff_ms=9: expected at most reconnect_backoff_max_ms \(8\)",
        ),
    ],
)
def test_values_that_contradict_each_other_are_refused(
    kwargs: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidOptionError, match=message):
        ConsumerConfig.from_kwargs(**kwargs)


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "a/b", "ü", "x" * 250])
def test_a_group_instance_id_has_the_characters_kafka_allows(name: str) -> None:
    with pytest.raises(InvalidOptionError, match="group_instance_id"):
        ConsumerConfig.from_kwargs(group_id="g", group_instance_id=name)
    config = ConsumerConfig.from_kwargs(group_id="g", group_instance_id="Pod_1.eu-west")
    assert config.group.group_instance_id == "Pod_1.eu-west"


def test_a_longer_first_pause_alone_raises_the_longest_one() -> None:
    config = ConsumerConfig.from_kwargs(retry_backoff_ms=5_000, reconnect_backoff_ms=2_000)
    assert config.group.retry_backoff_max_ms == 5_000
    assert config.client.reconnect_backoff_max_ms == 2_000


def test_the_frame_bound_has_room_for_the_largest_answer() -> None:
    config = ConsumerConfig.from_kwargs(fetch_max_bytes=200_000_000, max_partition_fetch_bytes=7)
    assert config.client.receive_message_max_bytes == 200_000_007
    assert ConsumerConfig().client.receive_message_max_bytes == 100_000_000


def test_special_values_of_other_clients_have_one_normal_form() -> None:
    config = ConsumerConfig.from_kwargs(**SPECIAL_VALUES)
    assert config.fetch.max_poll_records == 2**31 - 1
    assert config.client.connections_max_idle_ms is None
    assert config.client.receive_buffer_bytes is None
    assert config.consumer_timeout_ms == math.inf
    assert config.fetch.auto_offset_reset == "earliest"
    assert config.group.session_timeout_ms == 6_000
    assert isinstance(config.group.session_timeout_ms, int)


def test_assignors_are_kept_as_they_were_given() -> None:
    instance = Assignor()
    config = ConsumerConfig.from_kwargs(
        partition_assignment_strategy=["RoundRobin", Assignor, instance]
    )
    assert config.group.partition_assignment_strategy == ("roundrobin", Assignor, instance)
    one = ConsumerConfig.from_kwargs(partition_assignment_strategy=Assignor)
    assert one.group.partition_assignment_strategy == (Assignor,)


@pytest.mark.parametrize(
    "path",
    [
        "kafka.coordinator.assignors.roundrobin.RoundRobinPartitionAssignor",
        "kafka.coordinator.assignors.cooperative_sticky.CooperativeStickyAssignor",
        "kafka.coordinator.assignors.sticky.sticky_assignor.StickyPartitionAssignor",
        "aiokafka.coordinator.assignors.roundrobin.RoundRobinPartitionAssignor",
        "aiokafka.coordinator.assignors.sticky.sticky_assignor.StickyPartitionAssignor",
    ],
)
def test_the_assignors_of_other_clients_stand_for_ours(path: str) -> None:
    module, _, name = path.rpartition(".")
    theirs = getattr(pytest.importorskip(module), name)
    config = ConsumerConfig.from_kwargs(partition_assignment_strategy=[theirs])
    (found,) = config.group.partition_assignment_strategy
    assert found == theirs.name
    assert found in ("roundrobin", "sticky", "cooperative-sticky")


def test_socket_options_are_kept_as_tuples() -> None:
    wanted = [[socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1], (1, 2, b"x")]
    config = ConsumerConfig.from_kwargs(socket_options=wanted)
    assert config.client.socket_options == (
        (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
        (1, 2, b"x"),
    )


def test_automatic_commit_needs_a_group() -> None:
    assert not ConsumerConfig.from_kwargs(enable_auto_commit=True).group.auto_commit
    assert ConsumerConfig.from_kwargs(group_id="g").group.auto_commit
    assert not ConsumerConfig.from_kwargs(group_id="g", enable_auto_commit=False).group.auto_commit


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("groupid", "did you mean group_id?"),
        ("auto_ofset_reset", "did you mean auto_offset_reset?"),
        ("security_protocl", "did you mean security_protocol?"),
        ("group.id", "write group_id, or use from_properties()"),
        ("zzz", "see docs/configuration.md"),
    ],
)
def test_an_unknown_name_is_answered_with_the_nearest(name: str, hint: str) -> None:
    with pytest.raises(UnknownOptionError) as raised:
        ConsumerConfig.from_kwargs(**{name: "a secret, perhaps"})
    assert repr(name) in str(raised.value)
    assert hint in str(raised.value)
    assert "secret" not in str(raised.value)
    assert isinstance(raised.value, TypeError)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("metric_reporters", [object]),
        ("selector", selectors.SelectSelector),
        ("kafka_client", object),
        ("loop", object()),
        ("client_dns_lookup", "resolve_canonical_bootstrap_servers_only"),
    ],
)
def test_option_with_effect_elsewhere_is_refused(name: str, value: Any) -> None:
    with pytest.raises(UnsupportedOptionError, match=f"^{name} is not supported: ") as raised:
        ConsumerConfig.from_kwargs(**{name: value})
    assert "hunter2" not in str(raised.value)


def test_unsupported_option_accepts_a_value_without_effect() -> None:
    for name, unsupported in UNSUPPORTED.items():
        for value in (None, *unsupported.harmless):
            assert ConsumerConfig.from_kwargs(**{name: value}) == ConsumerConfig()


@pytest.mark.parametrize(
    ("name", "value"),
    [("api_version", (2, 8)), ("metrics_num_samples", 3), ("metric_group_prefix", "app")],
)
def test_option_without_effect_is_logged_and_ignored(
    name: str, value: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG, "kohort.config"):
        assert ConsumerConfig.from_kwargs(**{name: value}) == ConsumerConfig()
    [line] = caplog.messages
    assert line.startswith(f"{name} has no effect: ")


def test_no_name_is_both_supported_and_not() -> None:
    assert not OPTIONS.keys() & UNSUPPORTED.keys()


def test_all_errors_of_configuration_have_one_root() -> None:
    for name, value in (("x", 1), ("group_id", ""), ("security_protocol", "TLS")):
        with pytest.raises(ConfigurationError):
            ConsumerConfig.from_kwargs(**{name: value})


def test_consumer_timeout_is_unsupported_by_the_async_consumer() -> None:
    ConsumerConfig.from_kwargs().check_async()
    ConsumerConfig.from_kwargs(consumer_timeout_ms=200).check_async()
    with pytest.raises(UnsupportedOptionError, match="poll"):
        ConsumerConfig.from_kwargs(consumer_timeout_ms=1_000).check_async()


@pytest.mark.parametrize(
    ("given", "memory", "answer"),
    [
        ({}, 67_108_864, 52_428_800),
        ({"fetch_max_bytes": 200_000_000}, 200_000_000, 200_000_000),
        ({"fetch_max_bytes": 1000}, 67_108_864, 1000),
        ({"buffer_memory": 1_000_000}, 1_000_000, 1_000_000),
        ({"buffer_memory": 1000, "fetch_max_bytes": 1000}, 1000, 1000),
    ],
)
def test_of_memory_and_answers_the_one_that_is_not_named_follows(
    given: dict[str, int], memory: int, answer: int
) -> None:
    fetch = ConsumerConfig.from_kwargs(**given).fetch
    assert (fetch.buffer_memory, fetch.fetch_max_bytes) == (memory, answer)


def test_memory_for_less_than_an_answer_is_refused() -> None:
    with pytest.raises(InvalidOptionError, match=r"buffer_memory=999: .*fetch_max_bytes \(1000\)"):
        ConsumerConfig.from_kwargs(buffer_memory=999, fetch_max_bytes=1000)


def test_kafka_consumer_refuses_rebalances_at_any_time() -> None:
    for mode in ("idle", "never"):
        ConsumerConfig.from_kwargs(rebalance_without_poll=mode).check_sync()
    with pytest.raises(UnsupportedOptionError, match="rebalance_without_poll='always'"):
        ConsumerConfig.from_kwargs(rebalance_without_poll="always").check_sync()
