"""Tasks that fail, and slow tasks of which Spark runs a second attempt."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.interop.brokers import Broker
from tests.spark_connector.end_to_end.applications import ApplicationProcess
from tests.spark_connector.end_to_end.ledgers import account
from tests.spark_connector.end_to_end.queries import Plan
from tests.spark_connector.end_to_end.standalone import StandaloneCluster
from tests.spark_connector.end_to_end.test_standalone import SETTINGS
from tests.spark_connector.end_to_end.waiting import wait_until

pytestmark = [
    pytest.mark.long,  # a Spark cluster of several processes
    pytest.mark.spark,
    pytest.mark.timeout(900),
]
PARTITIONS = 6
TIMES = 3
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.minTaskRuntime": "100ms",
}


def troubles(plan: Plan) -> dict[str, int]:
    """Return the number of failed and of slow tasks. Not each batch has both."""
    return {kind: len(list(Path(plan.folder).glob(f"{kind}-*"))) for kind in ("failed", "slow")}


def test_failed_and_slow_tasks_write_nothing_twice(
    ours: Broker, unique: Callable[[str], str], tmp_path: Path
) -> None:
    topic = ours.create_topic(unique("repeated"), PARTITIONS)
    feed = ours.feed(topic, PARTITIONS)
    options = {
        "kafka.bootstrap.servers": ours.bootstrap_servers,
        "subscribe": topic,
        "startingOffsets": "earliest",
        "executorCores": "3",
    }
    plan = Plan("repeated", str(tmp_path / "repeated"), options, troubled=True)
    with StandaloneCluster(tmp_path / "workers", 3) as cluster:
        cluster.wait_ready()
        settings = {"spark.master": cluster.master, **SETTINGS, **SPECULATION}
        with ApplicationProcess(tmp_path, **settings) as application:
            feed.write(100)
            application.start(plan)
            batches = 0
            while min(troubles(plan).values()) < TIMES:
                wait_until(lambda: len(plan.ledger.attempts()) > batches)  # noqa: B023
                batches = len(plan.ledger.attempts())
                feed.write(100)
            wait_until(lambda: not account(feed.written, {"": plan.ledger.reads()}).missing)
            application.do("stop", name=plan.name)

    assert all(len(writes) == 1 for writes in plan.ledger.attempts().values())
    account(feed.written, {plan.name: plan.ledger.reads()}).assert_whole()
