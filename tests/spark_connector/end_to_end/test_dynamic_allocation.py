"""A query on a standalone Spark cluster whose executors come with its records and go."""

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
from tests.spark_connector.end_to_end.waiting import look_again_later, wait_until

pytestmark = [
    pytest.mark.long,  # a Spark cluster of several processes
    pytest.mark.spark,
    pytest.mark.timeout(1800),
]
PARTITIONS = 6
MOST = 3
TIMES = 2
DYNAMIC = {
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.shuffleTracking.enabled": "true",
    "spark.dynamicAllocation.minExecutors": "1",
    "spark.dynamicAllocation.maxExecutors": str(MOST),
    "spark.dynamicAllocation.executorIdleTimeout": "2s",
    "spark.dynamicAllocation.schedulerBacklogTimeout": "1s",
    "spark.python.worker.reuse": "false",  # so that tasks are slow and others wait for a second
}


def test_query_reads_all_once_while_executors_come_and_go(
    ours: Broker, unique: Callable[[str], str], tmp_path: Path
) -> None:
    topic, group = ours.create_topic(unique("dynamic"), PARTITIONS), unique("dynamic")
    feed = ours.feed(topic, PARTITIONS)
    options = {
        "kafka.bootstrap.servers": ours.bootstrap_servers,
        "kafka.group.id": group,
        "subscribe": topic,
        "startingOffsets": "earliest",
        "executorCores": str(PARTITIONS),
    }
    plan = Plan("dynamic", str(tmp_path / "dynamic"), options, workers=True)

    def write_more() -> None:
        feed.write(5)
        look_again_later()

    with StandaloneCluster(tmp_path / "workers", MOST) as cluster:
        cluster.wait_ready()
        settings = {"spark.master": cluster.master, **SETTINGS, **DYNAMIC}
        with ApplicationProcess(tmp_path, **settings) as application:
            application.start(plan)
            for _ in range(TIMES):
                wait_until(lambda: len(cluster.executors()) == MOST, write_more)
                wait_until(lambda: len(cluster.executors()) == 1, look_again_later)
            feed.write(5)
            wait_until(lambda: ours.committed(group) == feed.ends(), look_again_later)
            application.do("finish", name=plan.name)

    assert all(len(writes) == 1 for writes in plan.ledger.attempts().values())
    account(feed.written, {plan.name: plan.ledger.reads()}).assert_whole()
