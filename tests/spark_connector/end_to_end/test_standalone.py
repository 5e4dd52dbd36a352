"""A query on a standalone Spark cluster of two workers, one of which is killed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.interop.brokers import Broker
from tests.interop.waiting import look_again_soon
from tests.spark_connector.end_to_end.applications import ApplicationProcess
from tests.spark_connector.end_to_end.choosing import plainly_on
from tests.spark_connector.end_to_end.ledgers import account
from tests.spark_connector.end_to_end.queries import Plan
from tests.spark_connector.end_to_end.standalone import StandaloneCluster
from tests.spark_connector.end_to_end.waiting import wait_until

pytestmark = [
    pytest.mark.long,  # a Spark cluster of several processes
    pytest.mark.spark,
    pytest.mark.timeout(280),
]
PARTITIONS = 6
SETTINGS = {
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


@plainly_on("cluster")
def test_two_executors_share_the_work_and_one_is_killed(
    broker: Broker, unique: Callable[[str], str], tmp_path: Path
) -> None:
    topic, group = broker.create_topic(unique("standalone"), PARTITIONS), unique("standalone")
    feed = broker.feed(topic, PARTITIONS)
    options = {
        "kafka.bootstrap.servers": broker.bootstrap_servers,
        "kafka.group.id": group,
        "subscribe": topic,
        "startingOffsets": "earliest",
        "minPartitions": "4",
    }
    plan = Plan("shared", str(tmp_path / "shared"), options, workers=True)

    def rows() -> int:
        return len(plan.ledger.rows())

    def meanwhile() -> None:
        feed.start()
        look_again_soon()

    with StandaloneCluster(tmp_path / "workers") as cluster:
        cluster.wait_ready()
        with ApplicationProcess(tmp_path, **{"spark.master": cluster.master}, **SETTINGS) as app:
            wait_until(lambda: len(app.do("executors")) == 2)
            feed.write(500)
            app.start(plan)
            wait_until(lambda: len(executors_of(plan)) == 2, meanwhile)
            first, second = sorted(app.do("executors"))
            cluster.kill_worker(first)
            before = rows()
            feed.write(500)
            wait_until(lambda: rows() > before + 500, meanwhile)
            feed.write(100)
            wait_until(lambda: broker.committed(group) == feed.ends())
            tasks = app.do("executors")
            app.do("stop", name=plan.name)

    assert min(tasks.values()) > 0, tasks
    assert executors_of(plan) >= {first, second}
    plan.ledger.assert_replays_are_exact()
    account(feed.written, {plan.name: plan.ledger.reads()}).assert_whole()


def executors_of(plan: Plan) -> set[str]:
    """Return the executors that have processed rows, by the names of their folders."""
    return {Path(row.worker).name for row in plan.ledger.rows()}
