"""The block of docs/schemas.md that decodes Avro on the executors."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from kohort.schemas import SchemaRegistry
from kohort.testing import Cluster
from tests.schemas.framed import avro, framed
from tests.support.snippets import ROOT, replaced, run_elsewhere

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "item", "type": "string"},
        {"name": "price", "type": "int"},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
    ],
}


@pytest.mark.spark
def test_executors_decode_avro_into_columns(
    spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("fastavro")
    pytest.importorskip("polars")
    from kohort.spark_connector import KohortDataSource

    [code] = [each for each in run_elsewhere(ROOT / "docs" / "schemas.md") if "spark" in each]
    spark.dataSource.register(KohortDataSource)
    with Cluster(topics={"orders": 2}, schema_registry=True) as cluster:
        number = SchemaRegistry(cluster.schema_registry_url).register("o", json.dumps(ORDER))
        order = {"item": "tea", "price": 3, "tags": ["hot", "black"]}
        cluster.produce("orders", [framed(number, avro(ORDER, order)), None, b"bad"], partition=0)
        cluster.produce("orders", [framed(number, avro(ORDER, order | {"tags": []}))], partition=1)
        addresses = {
            "http://localhost:8081": cluster.schema_registry_url,
            "localhost:9092": cluster.bootstrap_servers,
        }
        names = {"spark": spark}
        exec(compile(replaced(code, addresses), "schemas.md", "exec"), names)
    shown = capsys.readouterr().out
    assert shown.count("|NULL|") == 2
    assert "| tea|[hot, black]|" in shown
