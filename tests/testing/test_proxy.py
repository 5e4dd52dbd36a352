"""A proxy before a cluster: addresses, rules, and the connections of clients."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kohort import KafkaAdminClient, KafkaConsumer, ShareConsumer
from kohort.cli import main
from kohort.errors import ErrorCode, InvalidOptionError
from kohort.testing import Action, Call, Cluster, Proxy
from tests.support.kafka_server import KafkaServer

PARTITIONS = 6


@pytest.fixture
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    first_id = getattr(request, "param", 11)
    with Cluster(3, {"orders": PARTITIONS}, configs={"node.id": str(first_id)}) as cluster:
        cluster.produce("orders", [str(number) for number in range(30)])
        yield cluster


@pytest.fixture
def proxy(cluster: Cluster) -> Iterator[Proxy]:
    with Proxy(cluster.bootstrap_servers.partition(",")[0]) as proxy:
        yield proxy


def read_all(servers: str, topic: str, group: str, count: int, protocol: str) -> list[bytes]:
    """Read a topic in a group, commit, and return the values in order."""
    found: list[bytes] = []
    options: Any = {"group_protocol": protocol}
    with KafkaConsumer(
        topic,
        bootstrap_servers=servers,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        **options,
    ) as consumer:
        while len(found) < count:
            for records in consumer.poll(timeout_ms=1_000).values():
                found += [record.value or b"" for record in records]
        consumer.commit()
    return sorted(found)


@pytest.mark.parametrize(
    ("cluster", "first_id", "protocol"),
    [(11, 11, "classic"), (11, 11, "consumer"), (0, 0, "classic")],
    indirect=["cluster"],
)
def test_group_reads_and_commits_through_the_listeners_alone(
    cluster: Cluster, proxy: Proxy, first_id: int, protocol: str
) -> None:
    before = len(cluster.requests)  # that of the proxy itself
    found = read_all(proxy.bootstrap_servers, "orders", "g", 30, protocol)
    assert found == sorted(str(number).encode() for number in range(30))
    assert cluster.wait_until(  # the last fetch may still be on its way
        lambda: (
            Counter(each.api for each in cluster.requests[before:])
            == Counter(each.api for each in proxy.requests)
        )
    )
    with KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers) as admin:
        committed = admin.list_group_offsets("g")["g"]
    assert sum(each.offset for each in committed.values()) == 30
    through = [each for each in proxy.requests if each.api != "ApiVersions"]
    ids = {first_id + number for number in range(3)}  # the ids of the cluster's brokers
    assert {each.node_id for each in through} == ids


def test_addresses_in_responses_are_those_of_the_listeners(cluster: Cluster, proxy: Proxy) -> None:
    theirs = set(cluster.bootstrap_servers.split(","))
    ours = set(proxy.bootstrap_servers.split(","))
    named: set[str] = set()

    async def note(call: Call) -> None:
        response = await call.proceed()
        brokers = [*getattr(response, "brokers", ()), *getattr(response, "coordinators", ())]
        named.update(f"{each.host}:{each.port}" for each in brokers)

    proxy.on("Metadata", note)
    proxy.on("FindCoordinator", note)
    read_all(proxy.bootstrap_servers, "orders", "g", 30, "classic")
    assert named == ours
    assert not named & theirs


def test_rules_fail_and_drop_requests_before_the_cluster_gets_them(
    cluster: Cluster, proxy: Proxy
) -> None:
    failed = proxy.fail("JoinGroup", ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, times=2)
    dropped = 0

    def drop(call: Call) -> Action | None:
        nonlocal dropped
        dropped += 1
        return Action.DROP if dropped <= 3 else None

    proxy.on("Fetch", drop)
    delayed = proxy.delay("OffsetCommit", 0.01, times=1)
    assert len(read_all(proxy.bootstrap_servers, "orders", "g", 30, "classic")) == 30
    assert failed.hits == 2 and delayed.hits == 1 and dropped > 3
    joins = [each for each in cluster.requests if each.api == "JoinGroup"]
    assert len([each for each in proxy.requests if each.api == "JoinGroup"]) == len(joins) + 2


def test_failed_fetches_have_the_error_for_each_partition(cluster: Cluster, proxy: Proxy) -> None:
    errors: list[set[int]] = []

    async def note(call: Call) -> None:
        response = await call.proceed()
        assert response.session_id == 0  # the cluster has no session that the fault leaves behind
        if response.error_code:
            errors.append({response.error_code})
        codes = {part.error_code for topic in response.responses for part in topic.partitions}
        if codes > {0} or (codes and 0 not in codes):
            errors.append(codes)

    proxy.on("Fetch", note)
    fault = proxy.fail("Fetch", ErrorCode.NOT_LEADER_OR_FOLLOWER, times=4)
    assert len(read_all(proxy.bootstrap_servers, "orders", "g", 30, "classic")) == 30
    assert fault.hits == 4
    assert errors == [{ErrorCode.NOT_LEADER_OR_FOLLOWER}] * 4


def test_failing_metadata_is_refused(proxy: Proxy) -> None:
    with pytest.raises(InvalidOptionError, match="set the errors in the response"):
        proxy.fail("metadata", ErrorCode.LEADER_NOT_AVAILABLE)


def write(servers: str, topic: str, folder: Path) -> list[bytes]:
    """Produce 50 records, and return their values in order."""
    values = sorted(str(number) for number in range(50))
    lines = folder / "lines"
    lines.write_text("\n".join(values))
    assert main(["produce", topic, str(lines), "--bootstrap-servers", servers]) == 0
    return [value.encode() for value in values]


def test_records_are_written_and_topics_changed_through_a_proxy(
    cluster: Cluster, proxy: Proxy, tmp_path: Path
) -> None:
    with KafkaAdminClient(bootstrap_servers=proxy.bootstrap_servers) as admin:
        assert set(admin.create_topics({"fresh": 2})) == {"fresh"}
        admin.wait_for_topics(["fresh"])
        written = write(proxy.bootstrap_servers, "fresh", tmp_path)
        assert sorted(record.value or b"" for record in cluster.records("fresh")) == written
        assert admin.delete_topics(["fresh"]).errors == {}


def test_acquired_records_go_to_others_when_a_connection_is_dropped(
    cluster: Cluster, proxy: Proxy
) -> None:
    cluster.create_topic("jobs", 1)
    cluster.produce("jobs", ["a", "b"])
    options: Any = {"group_id": "workers", "start": "earliest", "acknowledgement": "explicit"}
    values: list[bytes | None] = []
    with ShareConsumer("jobs", bootstrap_servers=proxy.bootstrap_servers, **options) as first:
        while not first.poll(timeout_ms=1_000):
            pass
        fault = proxy.disconnect("ShareAcknowledge", times=None)
        proxy.disconnect("ShareFetch", times=None)
        with ShareConsumer(
            "jobs", bootstrap_servers=cluster.bootstrap_servers, **options
        ) as second:
            first.close()
            while len(values) < 2:
                for records in second.poll(timeout_ms=1_000).values():
                    values += [record.value for record in records]
                    second.accept(*records)
            second.commit()
        assert fault.hits
    assert sorted(value or b"" for value in values) == [b"a", b"b"]


@pytest.mark.parametrize("to", ["localhost", ":9092", "localhost:http", "localhost:70000"])
@pytest.mark.cases(2)
def test_wrong_address_is_an_error(to: str) -> None:
    with pytest.raises(InvalidOptionError, match="is not HOST:PORT"):
        Proxy(to)


def test_command_names_a_cluster_that_cannot_be_reached(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["proxy", "--to", "127.0.0.1:1"]) == 1
    assert capsys.readouterr().err == "kohort proxy: 127.0.0.1:1: Connection refused\n"


@pytest.mark.real_kafka
@pytest.mark.long  # Apache Kafka behind the proxy
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_faults_before_apache_kafka_lose_no_record(
    kafka: KafkaServer, unique: Callable[[str], str], tmp_path: Path, protocol: str
) -> None:
    topic = kafka.create_topic(unique("orders"), 2)
    with Proxy(kafka.bootstrap_servers, seed=1) as proxy:
        proxy.disconnect(times=None, chance=0.05)
        proxy.fail("Fetch", ErrorCode.NOT_LEADER_OR_FOLLOWER, times=3)
        written = write(proxy.bootstrap_servers, topic, tmp_path)
        found = read_all(proxy.bootstrap_servers, topic, unique("g"), len(written), protocol)
    assert found == written
