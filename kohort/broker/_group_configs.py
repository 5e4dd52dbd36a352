"""Configs of groups: values that requests have set, and the settings that result."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from kohort.broker._broker_node import BrokerNode
from kohort.broker._config_types import ConfigSource, SourcedValue
from kohort.broker._group_settings import (
    ASSIGNMENT_INTERVAL,
    GROUP_SETTINGS,
    HEARTBEAT_INTERVAL,
    SESSION_TIMEOUT,
)
from kohort.broker.groups import GroupLimits

_FIELDS = {
    ASSIGNMENT_INTERVAL: "consumer_assignment_interval_ms",
    HEARTBEAT_INTERVAL: "consumer_heartbeat_interval_ms",
    SESSION_TIMEOUT: "consumer_session_timeout_ms",
}
_DYNAMIC = f"group.{ASSIGNMENT_INTERVAL}"


class GroupConfigs:
    """Config values by group. A group has values before it exists and after it was deleted.

    ``broker_origins`` returns the values of a broker's config, and ``cluster_overrides`` those that
    requests have set for all brokers.
    """

    def __init__(
        self,
        limits: GroupLimits,
        broker_origins: Callable[[str, BrokerNode], tuple[SourcedValue, ...]],
        cluster_overrides: Callable[[], Mapping[str, str]],
    ) -> None:
        self._limits = limits
        self._broker_origins = broker_origins
        self._cluster_overrides = cluster_overrides
        self._values: dict[str, dict[str, str]] = {}

    @property
    def names(self) -> list[str]:
        """Names of the groups with values."""
        return sorted(self._values)

    def of(self, group_id: str) -> dict[str, str]:
        """Return the values that requests have set for a group."""
        return dict(self._values.get(group_id, {}))

    def change(self, group_id: str, configs: Mapping[str, str]) -> None:
        """Replace the values of a group."""
        self._values.pop(group_id, None)
        if configs:
            self._values[group_id] = {name: value.strip() for name, value in configs.items()}

    def origins(self, group_id: str, name: str, node: BrokerNode) -> tuple[SourcedValue, ...]:
        """Return the values of a config in order of precedence; Kafka's default is the last."""
        setting, values = GROUP_SETTINGS[name], self._values.get(group_id, {})
        own = (SourcedValue(name, values[name], ConfigSource.GROUP),) if name in values else ()
        if setting.synonym is None:
            return *own, SourcedValue(name, setting.default, ConfigSource.DEFAULT)
        return *own, *self._broker_origins(setting.synonym, node)

    def limits_of(self, group_id: str) -> GroupLimits:
        """Return the settings of a group: its values over those of the brokers."""
        changes: dict[str, Any] = {}
        if (interval := self._cluster_overrides().get(_DYNAMIC)) is not None:
            changes[_FIELDS[ASSIGNMENT_INTERVAL]] = int(interval)
        for name, value in self._values.get(group_id, {}).items():
            if name in _FIELDS:
                changes[_FIELDS[name]] = int(value)
        return replace(self._limits, **changes) if changes else self._limits
