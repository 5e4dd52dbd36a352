"""Real runs of the six walks through the code, on the in-process cluster.

Each run warms up first, so that imports, codecs and connections are not part of the walk.
"""

from __future__ import annotations

import itertools
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from kohort import ConsumerRebalanceListener, KafkaConsumer, TopicPartition
from kohort.protocol.messages import ProduceRequest
from kohort.records import NewRecord, encode_batch
from kohort.testing import Cluster, ProducerRecord
from tests.house.walks._trace import Entry, Trace
from tests.spark_connector import reading
from tests.testing.raw import Raw

SERVER = ("testing/", "broker/")
UNDISTURBED: dict[str, Any] = {"fetch_max_wait_ms": 60_000, "request_timeout_ms": 90_000}
"""Options that keep other fetches out of the trace."""


@dataclass(frozen=True)
class Walk:
    """One path through the code that a reader may follow."""

    run: Callable[[Cluster], Sequence[Entry]]
    without: tuple[str, ...] = ()
    """Folders that do not count."""
    every_function: bool = False


def _wait(is_done: Callable[[], object], seconds: float = 10) -> None:
    end = time.monotonic() + seconds
    while not is_done():
        assert time.monotonic() < end
        time.sleep(0.005)


def _consumer(cluster: Cluster, *topics: str, **options: Any) -> KafkaConsumer:
    return KafkaConsumer(*topics, bootstrap_servers=cluster.bootstrap_servers, **options)


def record(cluster: Cluster) -> list[Entry]:
    """Trace a record from the socket to the return of poll(), without a group.

    In the consumer thread only the step of the event loop that received the record counts.
    """
    trace = Trace()
    consumer = _consumer(cluster, auto_offset_reset="earliest", **UNDISTURBED)
    consumer.assign([TopicPartition("records", 0)])
    trace.watch_threads_of(lambda: consumer.poll(10))
    for value in range(20):
        cluster.produce("records", [b"%d" % value])
        _wait(lambda: consumer.poll(100))
    time.sleep(0.3)
    trace.is_on = True
    cluster.produce("records", [b"x"])
    time.sleep(0.2)
    trace.watch_this_thread()
    records = consumer.poll(0)
    trace.is_on = False
    sys.setprofile(None)
    assert records
    consumer.close()
    mine = threading.get_ident()
    received = [each for each in trace.entries if each.thread != mine]
    received = list(itertools.takewhile(lambda each: each.task == received[0].task, received))
    return received + [each for each in trace.entries if each.thread == mine]


class _Listener(ConsumerRebalanceListener):
    def __init__(self) -> None:
        self.calls: list[str] = []

    def on_partitions_revoked(self, revoked: object) -> None:
        self.calls.append("revoked")

    def on_partitions_assigned(self, assigned: object) -> None:
        self.calls.append("assigned")


def rebalance(cluster: Cluster) -> list[Entry]:
    """Trace a follower from REBALANCE_IN_PROGRESS to STABLE.

    The protocol is eager, the follower has a listener and commits automatically.
    """
    trace, listener = Trace(), _Listener()
    options: dict[str, Any] = {
        "group_id": "walk",
        "heartbeat_interval_ms": 200,
        "fetch_max_wait_ms": 30_000,
        "request_timeout_ms": 60_000,
        "partition_assignment_strategy": ("range",),
        "auto_commit_interval_ms": 600_000,
    }
    leader = _consumer(cluster, "two", client_id="leader", **options)
    has_ended, is_wanted = threading.Event(), threading.Event()

    def lead() -> None:
        while not has_ended.is_set():
            leader.poll(20)
            if is_wanted.is_set():
                is_wanted.clear()
                leader.enforce_rebalance("walk")

    thread = threading.Thread(target=lead)
    thread.start()
    _wait(leader.assignment)
    follower = _consumer(cluster, client_id="follower", **options)
    follower.subscribe(["two"], listener=listener)
    trace.watch_threads_of(lambda: follower.poll(10))
    trace.watch_this_thread()
    while not follower.assignment():
        follower.poll(50)
    follower.poll(1000)
    for is_warm in (False, True):
        listener.calls.clear()
        cluster.produce("two", [b"k%d" % each for each in range(4)])
        follower.poll(300)
        follower.poll(300)
        trace.is_on = is_warm
        is_wanted.set()
        while listener.calls != ["revoked", "assigned"]:
            follower.poll(50)
        trace.is_on = False
        follower.poll(500)
    sys.setprofile(None)
    has_ended.set()
    thread.join()
    follower.close()
    leader.close()
    return trace.entries


def commit(cluster: Cluster) -> list[Entry]:
    """Trace commit() of the consumed positions."""
    trace = Trace()
    consumer = _consumer(
        cluster,
        "records",
        group_id="commits",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        **UNDISTURBED,
    )
    trace.watch_threads_of(lambda: consumer.poll(10))
    for is_warm in (False, True):
        cluster.produce("records", [b"y"])
        _wait(lambda: consumer.poll(100))
        time.sleep(0.2)
        trace.watch_this_thread()
        trace.is_on = is_warm
        consumer.commit()
        trace.is_on = False
        sys.setprofile(None)
    consumer.close()
    return trace.entries


def option(cluster: Cluster) -> list[Entry]:
    """Trace the functions that hold max_poll_interval_ms, from the constructor to the check."""
    trace = Trace({271_829, 271.829})
    trace.is_on = True
    trace.watch_this_thread()
    consumer = trace.watch_threads_of(
        lambda: _consumer(
            cluster,
            "two",
            group_id="options",
            max_poll_interval_ms=271_829,
            heartbeat_interval_ms=100,
        )
    )
    end = time.monotonic() + 2
    while time.monotonic() < end:
        trace.watch_threads_of(lambda: consumer.poll(50))
    trace.is_on = False
    sys.setprofile(None)
    consumer.close()
    return [
        Entry(0, 0, file, function, None)
        for file, function in trace.holders
        if "locals" not in function
    ]


def produce(cluster: Cluster) -> list[Entry]:
    """Trace a Produce request at the in-process cluster, from the socket to the response."""
    trace = Trace()
    partition = ProduceRequest.PartitionProduceData(
        index=0,
        records=encode_batch([NewRecord(key=b"k", value=b"v", timestamp=1)], base_offset=0),
    )
    topic = ProduceRequest.TopicProduceData(name="t", partition_data=[partition])
    request = ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[topic])
    server = Cluster(topics={"t": 1})
    trace.watch_threads_of(server.start)
    try:
        raw = Raw(server)
        for _ in range(3):
            raw.ask(request, 9)
        time.sleep(0.2)
        trace.is_on = True
        response = raw.ask(request, 9)
        trace.is_on = False
        assert not response.responses[0].partition_responses[0].error_code
        raw.socket.close()
    finally:
        server.stop()
    return trace.entries


def spark(cluster: Cluster) -> list[Entry]:
    """Trace a micro-batch of the Spark source in a group. Python makes Spark's calls."""
    trace = Trace()
    given = reading.options(
        cluster, startingOffsets="earliest", kafka_group_id="spark", subscribe="two"
    )
    query = reading.Query(dict(given))
    trace.watch_this_thread()
    try:
        trace.watch_threads_of(query.start)
        for _ in range(2):
            cluster.produce("two", [ProducerRecord(b"v", partition=0)])
            _wait(lambda: trace.watch_threads_of(query.trigger), 20)
        cluster.produce("two", [ProducerRecord(b"v", partition=0)])
        time.sleep(0.3)
        trace.is_on = True
        trace.watch_threads_of(query.trigger)
        trace.is_on = False
    finally:
        sys.setprofile(None)
        query.stop()
    return trace.entries


CLIENT = (
    "config/",
    "consumer/",
    "coordinator_client/",
    "errors/",
    "fetcher/",
    "listeners/",
    "protocol/",
    "records/",
    "security/",
    "subscription/",
    "transport/",
)
WALKS = {
    "record": Walk(record, SERVER),
    "rebalance": Walk(rebalance, ("fetcher/", "records/", *SERVER)),
    "commit": Walk(commit, SERVER),
    "option": Walk(option, SERVER, every_function=True),
    "produce": Walk(produce),
    "spark": Walk(spark, (*CLIENT, *SERVER)),
}
