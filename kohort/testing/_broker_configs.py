"""The configs of the cluster's brokers: where each value comes from, and changes of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import TYPE_CHECKING

from kohort.testing._broker_settings import (
    FALLBACKS,
    QUOTAS,
    BrokerSetting,
    broker_settings,
)
from kohort.testing._config_types import ConfigSource, ConfigType, SourcedValue
from kohort.testing._topic_settings import TOPIC_SETTINGS

if TYPE_CHECKING:
    from kohort.testing._broker import BrokerNode
    from kohort.testing._configs import ClusterConfig

LOG_FOLDER = "/memory"
"""The only log directory of each broker."""

MIN_ISR = "min.insync.replicas"
_RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
_LISTENER = "PLAINTEXT"


class BrokerConfigs:
    """Values by layer: of one broker, of all brokers, of the file that they start with.

    ``default``: changed for all brokers by a request; ``topic_defaults``: the value of each
    topic setting that a topic does not have itself, kept up to date.
    """

    def __init__(self, config: ClusterConfig) -> None:
        self._static = config.static_configs()
        self._racks = config.racks is not None
        # Kafka stores this one for the cluster when it is formatted, as leaders depend on it.
        self.cluster_overrides = {MIN_ISR: self._static.pop(MIN_ISR, "1")}
        self._broker_overrides: dict[int, dict[str, str]] = {}
        self.topic_defaults: dict[str, str] = {}
        self._refresh()

    def broker_overrides(self, node_id: int) -> dict[str, str]:
        """Configs that a request has changed for one broker."""
        return dict(self._broker_overrides.get(node_id, {}))

    def change(self, node_id: int | None, configs: Mapping[str, str]) -> None:
        """Replace what requests have changed for one broker, None for all."""
        if node_id is None:
            self.cluster_overrides = dict(configs)
        else:
            self._broker_overrides[node_id] = dict(configs)
        self._refresh()

    def names(self, node_id: int) -> list[str]:
        """All configs that a broker shows."""
        changed = {**self.cluster_overrides, **self._broker_overrides.get(node_id, {})}
        return [*broker_settings(), *(name for name in changed if name not in broker_settings())]

    def origins(self, name: str, node: BrokerNode) -> tuple[SourcedValue, ...]:
        """The values of a config from the one that holds to Kafka's default."""
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
        # A fallback counts only behind a value of the config itself, as in Kafka.
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
        layers = (self.cluster_overrides, self._static, _defaults())
        for name, setting in TOPIC_SETTINGS.items():
            value = None if setting.synonym is None else _value(setting.synonym, layers)
            self.topic_defaults[name] = setting.default if value is None else value


def setting_of(name: str) -> BrokerSetting:
    """The setting of this name; one of an unknown type if there is none."""
    known = broker_settings().get(name) or QUOTAS.get(name)
    return known or BrokerSetting(name, ConfigType.UNKNOWN, None)


def _value(name: str, layers: Iterable[Mapping[str, str]]) -> str | None:
    """The value that holds, in the unit of ``name``."""
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
