"""The constructors of the clusters take, check and show the same options."""

from __future__ import annotations

import inspect
import pydoc
from dataclasses import fields
from typing import Any, get_type_hints

import pytest

from kohort.broker.configs._cluster_config import ClusterConfig
from kohort.errors import InvalidOptionError
from kohort.testing import Cluster, ClusterOptions, MemoryCluster, MemoryClusterOptions

NO_OPTIONS = {"brokers", "topics", "first_node_id", "groups", "transactions"}
"""Settings that are positional parameters, configs or made from several options."""
TRANSLATED = {
    "consumer_assignment_interval_ms",
    "consumer_heartbeat_interval_ms",
    "consumer_session_timeout_ms",
    "group_initial_rebalance_delay_ms",
    "group_settings",
    "share_lock_ms",
    "transaction_version",
}
BESIDE = {"schema_registry"}
"""Options of servers that are not brokers."""
SOCKETS = {"advertised_host", "host", "ports"}
CLUSTERS: dict[type[Cluster | MemoryCluster], Any] = {
    Cluster: ClusterOptions,
    MemoryCluster: MemoryClusterOptions,
}


def test_cluster_options_are_the_settings_of_a_cluster() -> None:
    settings = {field.name for field in fields(ClusterConfig)} - NO_OPTIONS
    assert get_type_hints(ClusterOptions).keys() == settings | TRANSLATED | BESIDE
    assert get_type_hints(MemoryClusterOptions).keys() == settings - SOCKETS | TRANSLATED


def test_cluster_options_have_the_types_of_the_settings() -> None:
    hints = get_type_hints(ClusterConfig)
    options = get_type_hints(ClusterOptions)
    differing = {name for name in hints.keys() & options.keys() if hints[name] != options[name]}
    # Values of configs are text in the settings, and any object whose text is right as an option.
    assert differing == {"configs"}


@pytest.mark.parametrize("cluster", CLUSTERS)
def test_cluster_signature_shows_each_option(cluster: type) -> None:
    parameters = inspect.signature(cluster).parameters
    assert [*parameters] == ["brokers", "topics", *get_type_hints(CLUSTERS[cluster])]
    assert [each.default for each in parameters.values()].count(inspect.Parameter.empty) == 0
    shown = pydoc.plain(pydoc.render_doc(cluster))
    assert [name for name in parameters if f"{name}: " not in shown] == []


@pytest.mark.parametrize("cluster", CLUSTERS)
def test_cluster_takes_the_defaults_that_it_shows(cluster: Any) -> None:
    shown = {name: each.default for name, each in inspect.signature(cluster).parameters.items()}
    assert vars(cluster(**shown))["_config"] == vars(cluster())["_config"]


def test_election_waits_in_a_cluster_with_a_thread_alone() -> None:
    default = {
        cluster: inspect.signature(cluster).parameters["broker_session_timeout_ms"].default
        for cluster in CLUSTERS
    }
    assert default == {Cluster: 500, MemoryCluster: 0}


@pytest.mark.parametrize("cluster", CLUSTERS)
def test_cluster_takes_brokers_and_topics_by_position(cluster: Any) -> None:
    config = vars(cluster(2, {"t": 3}, seed=5))["_config"]
    assert (config.brokers, config.topics, config.seed) == (2, {"t": 3}, 5)
    with pytest.raises(TypeError, match="positional"):
        cluster(2, {"t": 3}, 5)


@pytest.mark.parametrize("cluster", CLUSTERS)
def test_cluster_refuses_an_option_that_it_does_not_have(cluster: Any) -> None:
    name = f"{cluster.__name__}.*unexpected keyword argument 'num_partitions'"
    with pytest.raises(TypeError, match=name):
        cluster(num_partitions=3)


@pytest.mark.parametrize("cluster", CLUSTERS)
@pytest.mark.parametrize("name", ["share_lock_ms", "consumer_session_timeout_ms"])
@pytest.mark.parametrize("value", [0, "30000", 1.5])
@pytest.mark.cases(3)
def test_cluster_refuses_a_time_that_is_none(cluster: Any, name: str, value: Any) -> None:
    with pytest.raises(InvalidOptionError, match=f"{name}={value!r}: must be a whole number"):
        cluster(**{name: value})
