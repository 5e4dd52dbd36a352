"""Ends of a query: it is out of its group as soon as its process has ended."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.interop.brokers import Broker
from tests.spark_connector.end_to_end import processes
from tests.spark_connector.end_to_end.applications import ApplicationProcess
from tests.spark_connector.end_to_end.choosing import plainly_on
from tests.spark_connector.end_to_end.groups import Watch
from tests.spark_connector.end_to_end.queries import POISON, Plan, start
from tests.spark_connector.end_to_end.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]
ALLOWED_S = 90.0
SHORT_S, LONG_S = 6.0, 300.0
"""Sessions: of a source that cannot leave, and of one that leaves long before its end."""
PARTITIONS = 3
Unique = Callable[[str], str]
Record = Callable[[str, object], None]


class Ending:
    """A query with its own group, held in its first batch until its process is known."""

    def __init__(
        self,
        broker: Broker,
        unique: Unique,
        folder: Path,
        session_s: float = LONG_S,
        **more: Any,
    ) -> None:
        self.broker = broker
        self.topic = broker.create_topic(unique("end"), PARTITIONS)
        self.group = unique("end")
        self.feed = broker.feed(self.topic, PARTITIONS)
        self.feed.write(10)
        options = {
            "kafka.bootstrap.servers": broker.bootstrap_servers,
            "kafka.group.id": self.group,
            "kafka.heartbeat.interval.ms": "300",
            "kafka.session.timeout.ms": str(int(session_s * 1000)),
            "subscribe": self.topic,
            "startingOffsets": "earliest",
        }
        self.plan = Plan("ending", str(folder / "ending"), options, **more)
        self.plan.ledger.hold.touch()

    def wait_running(self, jvm: int, others: set[int]) -> int:
        """Return the process of its source when it is a member and in its first batch."""
        wait_until(self.plan.ledger.held.exists)
        (source,) = processes.runners(jvm) - others
        assert len(self.broker.describe(self.group).members) == 1
        return source

    def go_on(self) -> None:
        """Let the first batch end."""
        self.plan.ledger.hold.unlink()


@plainly_on("apache")
@pytest.mark.parametrize(
    "how",
    [
        "query.stop()",
        pytest.param("AvailableNow done", marks=pytest.mark.long),
        pytest.param("an executor's exception", marks=pytest.mark.long),
    ],
)
def test_a_query_that_ends_leaves(
    spark: SparkSession,
    broker: Broker,
    unique: Unique,
    tmp_path: Path,
    record_property: Record,
    how: str,
) -> None:
    ending = Ending(broker, unique, tmp_path, available_now=how == "AvailableNow done")

    def act(query: StreamingQuery) -> None:
        if how == "query.stop()":
            wait_until(lambda: broker.committed(ending.group) == ending.feed.ends())
            query.stop()
        elif how == "an executor's exception":
            broker.write(ending.topic, POISON.encode())

    failure, took = end(spark, ending, act)
    assert (failure is not None) == ("exception" in how), failure
    record_property(f"left after {how}, s", round(took, 3))
    assert took < ALLOWED_S


@pytest.mark.long
def test_a_query_whose_source_raises_leaves(
    spark: SparkSession,
    broker: Broker,
    unique: Unique,
    tmp_path: Path,
    record_property: Record,
) -> None:
    ending = Ending(broker, unique, tmp_path)
    failure, took = end(spark, ending, lambda query: broker.delete_topic(ending.topic))
    assert "was deleted" in str(failure)
    record_property("left after the source's exception, s", round(took, 3))
    assert took < ALLOWED_S


def end(
    spark: SparkSession, ending: Ending, act: Callable[[StreamingQuery], object]
) -> tuple[Exception | None, float]:
    """Run the query in this session and end it with ``act``.

    Return its error, and the seconds until it was out of the group.
    """
    gateway: Any = spark._jvm
    jvm = int(gateway.java.lang.ProcessHandle.current().pid())
    others = processes.runners(jvm)
    query = start(spark, ending.plan)
    with Watch(ending.broker, ending.group) as watch:
        source = ending.wait_running(jvm, others)
        watch.process(source)
        ending.go_on()
        act(query)
        wait_until(lambda: not query.isActive)
        took = watch.left_after(source)
    return query.exception(), took


@pytest.mark.long
@pytest.mark.parametrize("query", ["idle", "in a batch"])
def test_a_session_that_ends_leaves(
    broker: Broker, unique: Unique, tmp_path: Path, record_property: Record, query: str
) -> None:
    """An idle query runs no job that could fail, so Spark does not end it with its session."""
    ending = Ending(broker, unique, tmp_path)
    with ApplicationProcess(tmp_path) as application:
        application.start(ending.plan)
        with Watch(broker, ending.group) as watch:
            source = ending.wait_running(application.jvm, set())
            watch.process(source)
            if query == "idle":
                ending.go_on()
                wait_until(lambda: broker.committed(ending.group) == ending.feed.ends())
            application.do("end")
            if query == "in a batch":
                ending.go_on()
            took = watch.left_after(source)
    record_property(f"left after spark.stop(), {query}, s", round(took, 3))
    assert took < ALLOWED_S


@pytest.mark.long
def test_when_the_jvm_is_killed_the_source_leaves(
    broker: Broker, unique: Unique, tmp_path: Path, record_property: Record
) -> None:
    took = kill(broker, unique, tmp_path, with_sources=False)
    record_property("left after SIGKILL of the JVM, s", round(took, 3))
    assert took < ALLOWED_S


@pytest.mark.long
def test_when_all_is_killed_it_is_out_when_its_session_is(
    broker: Broker, unique: Unique, tmp_path: Path, record_property: Record
) -> None:
    took = kill(broker, unique, tmp_path, with_sources=True)
    record_property("left after SIGKILL of all, s", round(took, 3))
    assert took < SHORT_S + ALLOWED_S


def kill(broker: Broker, unique: Unique, tmp_path: Path, *, with_sources: bool) -> float:
    """Run a query in an application and kill that. Return the seconds until the group was empty."""
    ending = Ending(broker, unique, tmp_path, SHORT_S if with_sources else LONG_S)
    with ApplicationProcess(tmp_path) as application:
        application.start(ending.plan)
        with Watch(broker, ending.group) as watch:
            source = ending.wait_running(application.jvm, set())
            watch.process(source)
            application.kill(with_sources=with_sources)
            return watch.left_after(source)
