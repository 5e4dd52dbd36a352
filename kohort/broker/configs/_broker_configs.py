"""Configs of the cluster's brokers: the source of each value, and changes by requests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import TYPE_CHECKING

from kohort.broker.configs._broker_settings import (
    FALLBACKS,
    HIDDEN,
    QUOTAS,
    BrokerSetting,
    broker_settings,
)
from kohort.broker.configs._config_types import ConfigSource, ConfigType, SourcedValue
from kohort.broker.configs._given_configs import static_configs
from kohort.broker.configs._group_configs import GroupConfigs
from kohort.broker.configs._topic_settings import TOPIC_SETTINGS

if TYPE_CHECKING:
    from kohort.broker._broker_node import BrokerNode
    from kohort.broker.configs._cluster_config import ClusterConfig

LOG_FOLDER = "/memory"
"""The only log directory of each broker."""

MIN_ISR = "min.insync.replicas"
_RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
_LISTENER = "PLAINTEXT"


class BrokerConfigs:
    """Config values by layer: of one broker, of all brokers, of the file that brokers start with.

    ``cluster_overrides``: values that requests have set for all brokers. ``topic_defaults``: the
    value of each topic setting for topics without a value. It follows every change. ``groups``:
    configs of groups.
    """

    def __init__(self, config: ClusterConfig) -> None:
        self._static = static_configs(config)
        self._racks = config.racks is not None
        # Kafka stores this one for the whole cluster when it is formatted, because leaders use it.
        self.cluster_overrides: dict[str, str] = {MIN_ISR: self._static.pop(MIN_ISR, "1")}
        self._broker_overrides: dict[int, dict[str, str]] = {}
        self.topic_defaults: dict[str, str] = {}
        self.groups: GroupConfigs = GroupConfigs(config.groups, self.origins)
        self._refresh()

    def broker_overrides(self, node_id: int) -> dict[str, str]:
        """Return the configs that requests have changed for one broker."""
        return dict(self._broker_overrides.get(node_id, {}))

    def change(self, node_id: int | None, configs: Mapping[str, str]) -> None:
        """Replace the configs that requests have changed for one broker, None for all brokers."""
        if node_id is None:
            self.cluster_overrides = dict(configs)
        else:
            self._broker_overrides[node_id] = dict(configs)
        self._refresh()

    def names(self, node_id: int) -> list[str]:
        """Return the names of all configs that a broker shows."""
        changed = {**self.cluster_overrides, **self._broker_overrides.get(node_id, {})}
        return [*broker_settings(), *(name for name in changed if name not in broker_settings())]

    def origins(self, name: str, node: BrokerNode) -> tuple[SourcedValue, ...]:
        """Return the values of a config in order of precedence; Kafka's default is the last."""
        given = {**self._static, **self._node_configs(node)}
        layers = (
            (self._broker_overrides.get(node.id, {}), ConfigSource.BROKER),
            (self.cluster_overrides, ConfigSource.DEFAULT_BROKER),
            (given, ConfigSource.STATIC_BROKER),
            (_defaults(), ConfigSource.DEFAULT),
        )
        names = [name, *(fallback for fallback, _ in FALLBACKS.get(name, ()))]
        found = [
            SourcedValue(each, layer[each], source)
            for layer, source in layers
            for each in names
            if each in layer
        ]
        # As in Kafka, a fallback is shown only after a value of the config itself.
        while found and found[0].name != name:
            del found[0]
        if setting_of(name).is_sensitive:
            return tuple(value._replace(value=None) for value in found)
        return tuple(found)

    def _node_configs(self, node: BrokerNode) -> dict[str, str]:
        host = f"[{node.host}]" if ":" in node.host else node.host
        configs = {
            "advertised.listeners": f"{_LISTENER}://{host}:{node.port}",
            "broker.id": str(node.id),
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": _LISTENER,
            "listeners": f"{_LISTENER}://{host}:{node.port}",
            "log.dirs": LOG_FOLDER,
            "node.id": str(node.id),
            "process.roles": "broker,controller",
        }
        if node.rack is not None:
            configs["broker.rack"] = node.rack
        if self._racks:
            configs["replica.selector.class"] = _RACK_AWARE
        return configs

    def _refresh(self) -> None:
        self.groups.brokers_changed()
        layers = (self.cluster_overrides, self._static, _defaults())
        for name, setting in TOPIC_SETTINGS.items():
            value = None if setting.synonym is None else _value(setting.synonym, layers)
            self.topic_defaults[name] = setting.default if value is None else value


def setting_of(name: str) -> BrokerSetting:
    """Return the setting of this name, or one of unknown type."""
    known = broker_settings().get(name) or QUOTAS.get(name) or HIDDEN.get(name)
    return known or BrokerSetting(name, ConfigType.UNKNOWN, None)


def _value(name: str, layers: Iterable[Mapping[str, str]]) -> str | None:
    """Return the effective value, in the unit of ``name``."""
    candidates = ((name, 1), *FALLBACKS.get(name, ()))
    for layer in layers:
        for each, unit in candidates:
            if each in layer:
                return layer[each] if unit == 1 else str(int(layer[each]) * unit)
    return None


@cache
def _defaults() -> Mapping[str, str]:
    return {
        setting.name: setting.default
        for setting in broker_settings().values()
        if setting.default is not None
    }
