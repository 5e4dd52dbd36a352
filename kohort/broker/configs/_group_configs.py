"""Configs of groups: values that requests have set, and the settings that result."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from kohort.broker._broker_node import BrokerNode
from kohort.broker.configs._config_types import ConfigSource, SourcedValue, typed_value
from kohort.broker.configs._group_settings import (
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
    **{name: name.replace(".", "_") for name in GROUP_SETTINGS if name.startswith("share.")},
}
"""Config -> attribute of GroupLimits"""
_DYNAMIC = (ASSIGNMENT_INTERVAL, "share.assignment.interval.ms")
"""Configs whose value for all groups requests may change."""


class GroupConfigs:
    """Config values by group. A group has values before it exists and after it was deleted.

    ``broker_origins`` returns the values of a broker's config.
    """

    def __init__(
        self,
        limits: GroupLimits,
        broker_origins: Callable[[str, BrokerNode], tuple[SourcedValue, ...]],
    ) -> None:
        self._limits = limits
        self._broker_origins = broker_origins
        self._values: dict[str, dict[str, str]] = {}
        self._broker_limits: dict[int, GroupLimits] = {}
        self._group_limits: dict[tuple[int, str], GroupLimits] = {}

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
        self._group_limits.clear()

    def brokers_changed(self) -> None:
        """Compute the settings of groups again after a change of brokers' configs."""
        self._broker_limits.clear()
        self._group_limits.clear()

    def origins(self, group_id: str, name: str, node: BrokerNode) -> tuple[SourcedValue, ...]:
        """Return the values of a config in order of precedence; Kafka's default is the last."""
        setting, values = GROUP_SETTINGS[name], self._values.get(group_id, {})
        own = (SourcedValue(name, values[name], ConfigSource.GROUP),) if name in values else ()
        if setting.synonym is None:
            return *own, SourcedValue(name, setting.default, ConfigSource.DEFAULT)
        return *own, *self._broker_origins(setting.synonym, node)

    def limits_of(self, group_id: str, node: BrokerNode) -> GroupLimits:
        """Return the settings of a group: its values over those of the broker."""
        if group_id not in self._values:
            return self._limits_of_broker(node)
        found = self._group_limits.get((node.id, group_id))
        if found is None:
            values = self._values[group_id]
            changes: dict[str, Any] = {
                _FIELDS[name]: typed_value(GROUP_SETTINGS[name].type, value)
                for name, value in values.items()
                if name in _FIELDS
            }
            found = replace(self._limits_of_broker(node), **changes)
            self._group_limits[node.id, group_id] = found
        return found

    def _limits_of_broker(self, node: BrokerNode) -> GroupLimits:
        found = self._broker_limits.get(node.id)
        if found is None:
            changes: dict[str, Any] = {
                _FIELDS[name]: int(self._broker_origins(f"group.{name}", node)[0].value or 0)
                for name in _DYNAMIC
            }
            found = self._broker_limits[node.id] = replace(self._limits, **changes)
        return found
