"""Configs of groups: Kafka's names, the broker configs that apply without a value, and checks."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from kohort.broker.configs._broker_settings import BrokerSetting, broker_settings
from kohort.broker.configs._config_types import ConfigType, is_valid
from kohort.types import NamedTuple


class GroupSetting(NamedTuple):
    """A config of groups.

    ``synonym``: the broker's config that applies to a group without a value, None if there is none.
    ``lowest`` and ``highest``: broker configs with the bounds, None without a bound.
    """

    name: str
    type: ConfigType
    default: str
    synonym: str | None = None
    lowest: str | None = None
    highest: str | None = None


def _bounded(name: str) -> GroupSetting:
    """Return a config whose default and bounds are broker configs."""
    kind, _, rest = name.partition(".")
    synonym = broker_settings()[f"group.{name}"]
    lowest, highest = f"group.{kind}.min.{rest}", f"group.{kind}.max.{rest}"
    return GroupSetting(
        name,
        synonym.type,
        synonym.default or "",
        synonym.name,
        lowest if lowest in broker_settings() else None,
        highest if highest in broker_settings() else None,
    )


_SESSION, _HEARTBEAT = "session.timeout.ms", "heartbeat.interval.ms"
_KINDS = ("consumer", "share", "streams")
SESSION_TIMEOUT = f"consumer.{_SESSION}"
HEARTBEAT_INTERVAL = f"consumer.{_HEARTBEAT}"
ASSIGNMENT_INTERVAL = "consumer.assignment.interval.ms"
_STANDBY = "streams.num.standby.replicas"
_LETTERS = "errors.deadletterqueue.topic.name"
_SHARE = "share."
_RESET, _ISOLATION = "share.auto.offset.reset", "share.isolation.level"

GROUP_SETTINGS: Mapping[str, GroupSetting] = {
    setting.name: setting
    for setting in (
        _bounded(HEARTBEAT_INTERVAL),
        _bounded(SESSION_TIMEOUT),
        _bounded(ASSIGNMENT_INTERVAL),
        GroupSetting("errors.deadletterqueue.copy.record.enable", ConfigType.BOOLEAN, "false"),
        GroupSetting(_LETTERS, ConfigType.STRING, ""),
        _bounded("share.heartbeat.interval.ms"),
        _bounded("share.session.timeout.ms"),
        _bounded("share.record.lock.duration.ms"),
        _bounded("share.delivery.count.limit"),
        _bounded("share.partition.max.record.locks"),
        _bounded("share.assignment.interval.ms"),
        GroupSetting(_RESET, ConfigType.STRING, "latest"),
        GroupSetting(_ISOLATION, ConfigType.STRING, "read_uncommitted"),
        GroupSetting("share.renew.acknowledge.enable", ConfigType.BOOLEAN, "true"),
        _bounded("streams.heartbeat.interval.ms"),
        _bounded("streams.session.timeout.ms"),
        _bounded("streams.assignment.interval.ms"),
        _bounded("streams.initial.rebalance.delay.ms"),
        _bounded(_STANDBY)._replace(highest="group.streams.max.standby.replicas"),
        GroupSetting(
            "streams.assignor.name", ConfigType.STRING, "sticky", "group.streams.assignors"
        ),
        _bounded("streams.rack.aware.assignment.tags"),
    )
}
_LEVELS = ("read_committed", "read_uncommitted")
_DURATION = re.compile(r"by_duration:P(?!$)(\d+D)?(T(?=\d)(\d+H)?(\d+M)?(\d+(\.\d+)?S)?)?")


def group_configs_problem(
    configs: Mapping[str, str], broker_value: Callable[[str], str]
) -> str | None:
    """Return the reason why configs of a group are not valid, None for valid ones.

    ``broker_value`` returns the value of a broker's config.
    """
    for name in configs:
        if name not in GROUP_SETTINGS:
            return f"Unknown group config name: {name}"
    for name, setting in GROUP_SETTINGS.items():
        if name in configs and (problem := _type_problem(setting, configs[name])):
            return f"Invalid value {configs[name]} for configuration {name}: {problem}"
    for name, setting in GROUP_SETTINGS.items():
        if name not in configs:
            continue
        value = configs[name]
        if name.startswith(_SHARE) and setting.lowest and setting.highest:
            low, high = (int(broker_value(each)) for each in (setting.lowest, setting.highest))
            if not low <= int(value) <= high:
                return f"{name} must be in the range {low} to {high} inclusive."
            continue
        if name == _LETTERS and value.startswith("__"):
            return f"{name}: DLQ topic name must not start with '__'"
        if setting.lowest and int(value) < int(broker_value(setting.lowest)):
            return f"{name} must be greater than or equal to {setting.lowest}"
        if setting.highest and int(value) > int(broker_value(setting.highest)):
            return f"{name} must be less than or equal to {setting.highest}"
    return _session_problem(configs, broker_value)


def _type_problem(setting: GroupSetting, value: str) -> str | None:
    if setting.name == _ISOLATION:
        return None if value in _LEVELS else f"String must be one of: {', '.join(_LEVELS)}"
    if setting.name == _RESET:
        if value in ("earliest", "latest") or _DURATION.fullmatch(value):
            return None
        return (
            f"Invalid value `{value}` for configuration {_RESET}. The value must be either "
            "'earliest', 'latest' or of the format 'by_duration:<PnDTnHnMn.nS>'."
        )
    if setting.type is ConfigType.BOOLEAN:
        valid = is_valid(setting.type, value)
        return None if valid else "Expected value to be either true or false"
    if setting.type in (ConfigType.STRING, ConfigType.LIST):
        return None
    if not is_valid(setting.type, value):
        return "Not a number of type INT"
    limits = broker_settings()[setting.synonym or ""]
    if setting.name.startswith(_SHARE):  # their range is checked later, and its error has both ends
        limits = limits._replace(maximum=None)
    return _limit_problem(limits, int(value))


def _limit_problem(broker: BrokerSetting, number: int) -> str | None:
    if broker.minimum is not None and number < broker.minimum:
        return f"Value must be at least {int(broker.minimum)}"
    if broker.maximum is not None and number > broker.maximum:
        return f"Value must be no more than {int(broker.maximum)}"
    return None


def _session_problem(configs: Mapping[str, str], broker_value: Callable[[str], str]) -> str | None:
    """Return the reason why a session could end between two heartbeats."""
    for kind in _KINDS:
        session, heartbeat = f"{kind}.{_SESSION}", f"{kind}.{_HEARTBEAT}"
        timeout, interval = (
            int(configs.get(name) or broker_value(f"group.{name}")) for name in (session, heartbeat)
        )
        if timeout <= interval:
            return f"{session} must be greater than {heartbeat}"
    return None
