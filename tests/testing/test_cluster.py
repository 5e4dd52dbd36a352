"""The cluster as a test holds it."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import anyio
import pytest

from kohort.errors import (
    IllegalStateError,
    InvalidConfigError,
    InvalidOptionError,
    InvalidPartitionsError,
    InvalidTopicError,
    KafkaTimeoutError,
    ThreadStartError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)
from kohort.records import Compression, key_partition
from kohort.testing import Cluster, Produced, ProducerRecord, _thread
from tests.broker.raw import Raw, join
from tests.support.net import free_ports


def addresses(cluster: Cluster) -> list[tuple[str, int]]:
    pairs = [server.rsplit(":", 1) for server in cluster.bootstrap_servers.split(",")]
    return [(host, int(port)) for host, port in pairs]


def test_each_broker_listens_on_a_port_of_its_own_until_the_end() -> None:
    with Cluster(brokers=3) as cluster:
        places = addresses(cluster)
        assert len(set(places)) == 3
        for place in places:
            socket.create_connection(place).close()
    for place in places:
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(place)


@pytest.mark.anyio
async def test_it_serves_inside_of_an_event_loop_without_holding_it_up() -> None:
    async with Cluster(topics={"t": 1}) as cluster:
        async with await anyio.connect_tcp(*addresses(cluster)[0]):
            pass

        async def produce() -> None:
            await anyio.to_thread.run_sync(cluster.produce, "t", ["x"])

        async with anyio.create_task_group() as group:
            group.start_soon(produce)
            records = await cluster.wait_until_async(lambda: cluster.records("t"))
        assert [record.value for record in records] == [b"x"]
        with pytest.raises(KafkaTimeoutError):
            await cluster.wait_until_async(lambda: False, timeout=0.05)


def test_ports_can_be_chosen() -> None:
    ports = free_ports(2)
    with Cluster(brokers=2, ports=ports) as cluster:
        assert [port for _, port in addresses(cluster)] == ports


def test_a_port_that_is_taken_is_said_at_once() -> None:
    with Cluster() as cluster:
        taken = addresses(cluster)[0][1]
        with pytest.raises(OSError, match="in use"):
            Cluster(ports=taken).start()


def test_clients_are_told_the_advertised_host() -> None:
    with Cluster(host="0.0.0.0", advertised_host="localhost") as cluster:
        assert cluster.bootstrap_servers.startswith("localhost:")


def test_it_cannot_be_started_twice_nor_asked_before_and_after() -> None:
    cluster = Cluster()
    with pytest.raises(IllegalStateError, match="not running"):
        _ = cluster.topics
    with cluster, pytest.raises(IllegalStateError, match="started"):
        cluster.start()
    cluster.stop()
    with pytest.raises(IllegalStateError):
        cluster.records("t")
    with cluster:
        assert cluster.topics == {}, "nothing is left of the first time"


@pytest.mark.parametrize(
    "options",
    [
        {"brokers": 0},
        {"brokers": 2, "ports": [1]},
        {"replication_factor": 2},
        {"topics": {"t": 0}},
        {"default_partitions": 0},
    ],
)
def test_options_that_cannot_be_are_refused_at_once(options: dict[str, object]) -> None:
    with pytest.raises(InvalidOptionError):
        Cluster(**options)  # type: ignore[arg-type]


def test_a_process_that_leaves_it_open_ends_all_the_same() -> None:
    script = "from kohort.testing import Cluster\nCluster().start()\nprint('done')"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    assert (done.stdout, done.stderr) == ("done\n", "")


def test_topics_are_made_grown_and_deleted(cluster: Cluster) -> None:
    cluster.create_topic("a", 3)
    cluster.add_partitions("a", 5)
    assert cluster.topics == {"t": 2, "a": 5}
    cluster.delete_topic("a")
    assert cluster.topics == {"t": 2}
    with pytest.raises(TopicAlreadyExistsError):
        cluster.create_topic("t")
    with pytest.raises(InvalidTopicError):
        cluster.create_topic("a b")
    with pytest.raises(InvalidPartitionsError):
        cluster.create_topic("a", 0)
    with pytest.raises(InvalidPartitionsError):
        cluster.add_partitions("t", 2)
    with pytest.raises(InvalidConfigError):
        cluster.create_topic("a", configs={"no.such": "1"})
    with pytest.raises(UnknownTopicOrPartitionError):
        cluster.delete_topic("a")


def test_records_go_where_kafkas_producer_puts_them(cluster: Cluster) -> None:
    keys = [f"key-{n}".encode() for n in range(20)]
    placed = cluster.produce("t", [(key, b"v") for key in keys])
    assert [p.partition for p in placed] == [key_partition(key, 2) for key in keys]
    for key, place in zip(keys, placed, strict=True):
        (record,) = [r for r in cluster.records("t", place.partition) if r.offset == place.offset]
        assert record.key == key
    spread = cluster.produce("t", [b"x"] * 10)
    assert [p.partition for p in spread] == [0, 1] * 5


def test_a_record_is_a_value_a_pair_or_whole(cluster: Cluster) -> None:
    assert cluster.produce("t", b"bytes", partition=1) == [Produced(1, 0)]
    cluster.produce("t", ["text", None], partition=1, key="k")
    cluster.produce("t", [("k2", "v2")], partition=1)
    whole = ProducerRecord("v3", "k3", [("h", b"1"), ("h", None)], timestamp=77, partition=1)
    cluster.produce("t", [whole])
    records = cluster.records("t", 1)
    assert [(r.key, r.value) for r in records] == [
        (None, b"bytes"),
        (b"k", b"text"),
        (b"k", None),
        (b"k2", b"v2"),
        (b"k3", b"v3"),
    ]
    assert (records[4].timestamp, list(records[4].headers)) == (77, [("h", b"1"), ("h", None)])
    cluster.produce("t", records[4:], partition=0)
    (copied,) = cluster.records("t", 0)
    assert (copied.key, copied.value, copied.timestamp) == (b"k3", b"v3", 77)


@pytest.mark.parametrize("compression", Compression)
def test_much_is_produced_in_batches(cluster: Cluster, compression: Compression) -> None:
    values = [b"%d" % n * 50 for n in range(5_000)]
    placed = cluster.produce("t", values, partition=0, compression=compression)
    assert [p.offset for p in placed] == list(range(5_000))
    assert [record.value for record in cluster.records("t")] == values


def test_records_for_places_that_are_not_there_are_refused(cluster: Cluster) -> None:
    with pytest.raises(UnknownTopicOrPartitionError, match="2 partitions"):
        cluster.produce("t", ["x"], partition=2)
    with Cluster(auto_create_topics=False) as strict:
        with pytest.raises(UnknownTopicOrPartitionError):
            strict.produce("new", ["x"])
        with pytest.raises(UnknownTopicOrPartitionError):
            strict.records("new")
    cluster.produce("new", ["x"])
    assert cluster.topics["new"] == 1


def test_a_group_is_seen_as_its_coordinator_sees_it(cluster: Cluster, raw: Raw) -> None:
    assert cluster.group("g").state == "Dead"
    member = join(raw).member_id
    group = cluster.group("g")
    assert (group.state, group.generation, group.leader) == ("CompletingRebalance", 1, member)
    assert [m.client_id for m in group.members] == ["raw"]
    assert not group.is_stable
    assert group.assignment == {member: frozenset()}


def test_waiting_ends_when_something_changes(cluster: Cluster) -> None:
    threading.Timer(0.05, cluster.produce, ("t", ["x"])).start()
    assert [r.value for r in cluster.wait_until(lambda: cluster.records("t"))] == [b"x"]
    with pytest.raises(KafkaTimeoutError, match=r"0\.05 s"):
        cluster.wait_until(lambda: False, timeout=0.05)


def test_requests_are_remembered(cluster: Cluster, raw: Raw) -> None:
    join(raw)
    seen = [(r.node_id, r.api, r.version, r.client_id, r.client_host) for r in cluster.requests]
    assert seen == [
        (1, "FindCoordinator", 4, "raw", "/127.0.0.1"),
        (1, "JoinGroup", 9, "raw", "/127.0.0.1"),
        (1, "JoinGroup", 9, "raw", "/127.0.0.1"),
    ]


def test_the_same_seed_gives_the_same_ids() -> None:
    members = []
    for _ in range(2):
        with Cluster(topics={"t": 1}, seed=7) as cluster, Raw(cluster) as raw:
            members.append(join(raw).member_id)
    assert members[0] == members[1]


@pytest.mark.parametrize(("seed", "different"), [(None, 2), (0, 1), (7, 1)])
def test_clusters_without_a_seed_have_new_ids(seed: int | None, different: int) -> None:
    clusters, topics = set(), set()
    for _ in range(2):
        with Cluster(topics={"t": 1}, seed=seed) as cluster:
            clusters.add(cluster._read(lambda state: state.cluster_id))
            topics.add(cluster._read(lambda state: next(iter(state.topics)).id))
    assert (len(clusters), len(topics)) == (different, different)


@pytest.mark.parametrize("item", [("k", "v", "h"), ("k",), (), ("k", 1), 7, ["k", "v"]])
def test_what_is_no_record_is_refused(cluster: Cluster, item: Any) -> None:
    with pytest.raises(TypeError, match=r"give a value, a \(key, value\) pair"):
        cluster.produce("orders", [item])


def test_start_raises_and_may_be_repeated_when_no_thread_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    cluster = Cluster(topics={"t": 1})
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        for _ in range(2):
            with pytest.raises(ThreadStartError, match="'kohort-cluster' did not start"):
                cluster.start()
    cluster.stop()
    with cluster:
        cluster.produce("t", [b"a"])


def test_cluster_thread_ends_when_ctrl_c_strikes_in_the_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster, wait = Cluster(), Future.result
    before = set(threading.enumerate())  # of clusters that other tests use

    def interrupted(future: Future[Any], timeout: float | None = None) -> Any:
        wait(future, timeout)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Future, "result", interrupted)
        with pytest.raises(KeyboardInterrupt):
            cluster.start()
    started = set(threading.enumerate()) - before
    assert not [each for each in started if each.name == "kohort-cluster"]


@pytest.mark.parametrize("place", ["begin", "result"])
def test_thread_ends_when_ctrl_c_strikes_before_the_service(
    monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    monkeypatch.setattr(_thread, "STOP_SECONDS", 0.1)
    gate, begin, run = threading.Event(), threading.Thread.start, anyio.run

    async def service(up: Callable[[], None]) -> None:
        up()
        await anyio.sleep_forever()

    def run_later(function: Any) -> None:
        assert gate.wait(60)
        run(function)

    def start(thread: threading.Thread) -> None:
        begin(thread)
        if place == "begin":
            raise KeyboardInterrupt

    def result(future: Future[None]) -> None:
        raise KeyboardInterrupt

    thread = _thread.LoopThread("interrupted", service)
    monkeypatch.setattr(anyio, "run", run_later)
    monkeypatch.setattr(threading.Thread, "start", start)
    monkeypatch.setattr(Future, "result", result)
    with pytest.raises(KeyboardInterrupt):
        thread.start()
    monkeypatch.undo()
    gate.set()
    thread._thread.join(60)
    ended = not thread._thread.is_alive()
    thread.stop()
    assert ended


def test_stop_is_bounded_when_the_cluster_thread_is_blocked(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(_thread, "STOP_SECONDS", 0.2)
    gate, reached = threading.Event(), threading.Event()

    def block() -> None:
        reached.set()
        gate.wait(60)

    cluster = Cluster()
    cluster.start()
    thread = cluster._thread
    assert thread is not None
    thread._token.native_token.call_soon_threadsafe(block)
    assert reached.wait(60)
    cluster.stop()
    gate.set()
    thread._thread.join(60)
    assert "'kohort-cluster' did not end within 0.2 s" in caplog.text
