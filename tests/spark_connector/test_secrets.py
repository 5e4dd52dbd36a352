"""Secrets in correct and in wrong options, and the places that must not show them."""

from __future__ import annotations

import contextlib
import io
import logging
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kohort.errors import ConfigurationError
from kohort.testing import Cluster
from tests.spark_connector.reading import source
from tests.spark_connector.starting import started

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PANDAS = pytest.mark.filterwarnings(
    "ignore:PySpark does not yet fully support pandas:FutureWarning"
)
GIVEN = {"kafka.bootstrap.servers": "localhost:9", "subscribe": "orders"}
SECRET = "hunter2-correct-horse"
WRONG = {
    "kafka.sasl.password": SECRET,
    "kafka.sasl.jaas.config": f'PlainLoginModule required username="a" password="{SECRET}";',
    "kafka.ssl.keystore.password": SECRET,
    "kafka.sasl.passwrod": SECRET,
    "sasl.password": SECRET,
    "password": SECRET,
}


@pytest.mark.parametrize("name", WRONG)
def test_a_secret_that_cannot_be_used_is_not_in_the_error(name: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        source(GIVEN | {name: WRONG[name]}).schema()
    assert name.removeprefix("kafka.") in str(caught.value)
    for text in traceback.format_exception(caught.value):
        assert SECRET not in text


@pytest.mark.spark
@PANDAS
@pytest.mark.parametrize(
    ("kind", "name"), [("read", "kafka.sasl.jaas.config"), ("readStream", "sasl.password")]
)
def test_a_secret_that_cannot_be_used_is_not_in_sparks_error(
    spark: SparkSession,
    kind: str,
    name: str,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    from pyspark.errors import PySparkException

    caplog.set_level(logging.DEBUG, "kohort")
    reader = getattr(spark, kind).format("kohort").options(**GIVEN, **{name: WRONG[name]})
    with pytest.raises(PySparkException) as caught:
        reader.load()
    assert name.removeprefix("kafka.") in str(caught.value)
    assert SECRET not in str(caught.value)
    assert SECRET not in caplog.text
    assert SECRET not in "".join(capfd.readouterr())


@pytest.mark.spark
@PANDAS
def test_used_secret_is_in_no_plan_checkpoint_log_or_progress(
    spark: SparkSession,
    cluster: Cluster,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, "kohort")
    cluster.produce("orders", [b"v"] * 30)
    options = {
        "kafka.bootstrap.servers": cluster.bootstrap_servers,
        # Any text is a valid client id, so it stands for a password here.
        "kafka.client.id": SECRET,
        "kafka.group.id": "billing",
        "subscribe": "orders",
        "startingOffsets": "earliest",
    }
    frame = spark.read.format("kohort").options(**options).load()
    assert frame.count() == 30
    plan = io.StringIO()
    with contextlib.redirect_stdout(plan):
        for mode in ("simple", "extended", "codegen", "cost", "formatted"):
            frame.explain(mode=mode)
    query = started(
        spark.readStream.format("kohort")
        .options(**options)
        .load()
        .writeStream.format("noop")
        .trigger(availableNow=True),
        tmp_path,
    )
    assert query.awaitTermination(300)
    with contextlib.redirect_stdout(plan):
        query.explain(extended=True)
    progress = "".join(each.json for each in query.recentProgress)
    kept = b"".join(each.read_bytes() for each in tmp_path.rglob("*") if each.is_file())
    assert b'"orders"' in kept
    assert '"orders"' in progress
    assert "kohort" in plan.getvalue()
    for text in (plan.getvalue(), progress, repr(kept), caplog.text, *capfd.readouterr()):
        assert SECRET not in text
