"""schemas.md: the notebook."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kohort.schemas import SchemaRegistry
from kohort.testing import Cluster
from tests.schemas.framed import avro, framed
from tests.support.snippets import ROOT, replaced, run_elsewhere, run_python

for module in ("duckdb", "fastavro", "pandas", "polars", "pyarrow"):
    pytest.importorskip(module)

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "item", "type": "string"}, {"name": "price", "type": "int"}],
}
CHECKS = """
assert frame["item"].to_list() == ["tea", "milk"]
assert total == [(5,)]
assert pandas["value"][1] == {"item": "milk", "price": 2}
prefixed = pl.DataFrame(orders).unnest("value", separator="_")
assert prefixed["value_item"].to_list() == ["tea", "milk"]
assert orders.flatten().to_pandas()["value.price"].to_list() == [3, 2]
"""


def test_notebook_reads_the_last_hour_in_twelve_lines(tmp_path: Path) -> None:
    [code] = [each for each in run_elsewhere(ROOT / "docs" / "schemas.md") if "duckdb" in each]
    assert len(code.splitlines()[1:]) <= 12
    with Cluster(topics={"orders": 1}, schema_registry=True) as cluster:
        registry = SchemaRegistry(cluster.schema_registry_url)
        number = registry.register("orders-value", json.dumps(ORDER))
        orders = [{"item": "tea", "price": 3}, {"item": "milk", "price": 2}]
        cluster.produce("orders", [framed(number, avro(ORDER, order)) for order in orders])
        addresses = {
            "http://localhost:8081": cluster.schema_registry_url,
            "localhost:9092": cluster.bootstrap_servers,
        }
        run_python(replaced(code, addresses) + CHECKS, tmp_path)
