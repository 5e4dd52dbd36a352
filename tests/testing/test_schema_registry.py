"""The registry of the cluster, by the client of confluent-kafka."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kohort.errors import IllegalStateError
from kohort.testing import Cluster

client_module = pytest.importorskip("confluent_kafka.schema_registry")


def test_cluster_without_a_registry_says_how_to_get_one() -> None:
    with Cluster() as cluster, pytest.raises(IllegalStateError, match="schema_registry=True"):
        _ = cluster.schema_registry_url


def test_client_of_confluent_registers_and_reads_schemas() -> None:
    Schema, Reference = client_module.Schema, client_module.SchemaReference
    with Cluster(schema_registry=True) as cluster:
        assert cluster.bootstrap_servers
        client = client_module.SchemaRegistryClient({"url": cluster.schema_registry_url})
        first = client.register_schema("a-value", Schema('"string"', "AVRO"))
        assert client.register_schema("b/value", Schema('"string"', "AVRO")) == first
        other = Schema("{}", "JSON", [Reference("A", "a-value", 1)])
        second = client.register_schema_full_response("a-value", other)
        assert second.schema_id == first + 1
        fresh = client_module.SchemaRegistryClient({"url": cluster.schema_registry_url})
        assert fresh.get_schema(second.schema_id).references == other.references
        assert fresh.get_schema_by_guid(second.guid).schema_str == "{}"
        assert fresh.get_version("b/value", 1).schema.schema_type == "AVRO"
        assert fresh.get_latest_version("a-value").version == 2
        assert fresh.lookup_schema("a-value", other).version == 2
        assert fresh.get_subjects() == ["a-value", "b/value"]
        assert fresh.get_versions("a-value") == [1, 2]
        wrong_calls: list[Callable[[], object]] = [
            lambda: fresh.get_schema(9),
            lambda: fresh.get_version("a-value", 3),
            lambda: fresh.get_version("c", 1),
            lambda: fresh.lookup_schema("b/value", other),
            lambda: fresh.get_schema_by_guid("00000000-0000-0000-0000-000000000000"),
        ]
        for wrong in wrong_calls:
            with pytest.raises(client_module.SchemaRegistryError, match="not found"):
                wrong()
        with pytest.raises(client_module.SchemaRegistryError, match="Invalid schema"):
            fresh.register_schema("a-value", Schema("{", "AVRO"))
