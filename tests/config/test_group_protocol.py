"""Options of the group protocols, and those that only one protocol has."""

from __future__ import annotations

import pytest

from kohort.config import ConsumerConfig, GroupConfig
from kohort.errors import InvalidOptionError

CLASSIC_ONLY = [
    ("session_timeout_ms", 45_000),
    ("session_timeout_ms", 10_000),
    ("heartbeat_interval_ms", 1_000),
    ("partition_assignment_strategy", "range"),
]


@pytest.mark.parametrize("protocol", ["classic", "consumer", "auto"])
def test_group_protocol_is_accepted_in_any_case(protocol: str) -> None:
    for given in (protocol, protocol.upper()):
        assert ConsumerConfig.from_kwargs(group_protocol=given).group.group_protocol == protocol
        properties = {"group.protocol": given}
        assert ConsumerConfig.from_properties(properties).group.group_protocol == protocol


def test_group_protocol_is_auto_by_default() -> None:
    assert GroupConfig().group_protocol == "auto"
    assert ConsumerConfig.from_properties({}).group.group_protocol == "auto"


def test_unknown_group_protocol_raises() -> None:
    with pytest.raises(InvalidOptionError, match="group_protocol='streams': expected one of"):
        GroupConfig(group_protocol="streams")


@pytest.mark.parametrize(("name", "value"), CLASSIC_ONLY)
def test_classic_option_raises_with_the_consumer_protocol(name: str, value: object) -> None:
    with pytest.raises(InvalidOptionError, match=f'^{name}=.*group_protocol="consumer"'):
        ConsumerConfig.from_kwargs(group_protocol="consumer", **{name: value})
    dotted = name.replace("_", ".")
    with pytest.raises(InvalidOptionError, match=f"^{dotted}="):
        ConsumerConfig.from_properties({"group.protocol": "consumer", dotted: str(value)})


@pytest.mark.parametrize(("name", "value"), CLASSIC_ONLY)
def test_classic_option_is_noted_with_auto(name: str, value: object) -> None:
    config = ConsumerConfig.from_kwargs(group_protocol="auto", **{name: value})
    assert config.group.classic_only_options == (name,)
    assert ConsumerConfig.from_kwargs(group_protocol="auto").group.classic_only_options == ()


def test_remote_assignor_raises_with_the_classic_protocol() -> None:
    for protocol in ("consumer", "auto"):
        config = GroupConfig(group_protocol=protocol, group_remote_assignor="range")
        assert config.group_remote_assignor == "range"
    with pytest.raises(InvalidOptionError, match='no value with group_protocol="classic"'):
        GroupConfig(group_protocol="classic", group_remote_assignor="range")


def test_equal_options_are_equal_however_they_were_given() -> None:
    assert GroupConfig(session_timeout_ms=45_000) == GroupConfig()
    assert hash(GroupConfig(session_timeout_ms=45_000)) == hash(GroupConfig())
