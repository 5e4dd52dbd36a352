"""A proxy before a cluster: addresses, rules, and the connections of clients."""

from __future__ import annotations

import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from kohort import KafkaAdminClient, KafkaConsumer, ShareConsumer
from kohort.cli import main
from kohort.errors import ErrorCode, IllegalStateError, InvalidOptionError
from kohort.protocol import encode_response
from kohort.protocol.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    DescribeClusterRequest,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    MetadataRequest,
    MetadataResponse,
)
from kohort.testing import Action, Call, Cluster, Proxy
from tests.broker.raw import Raw
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


def test_old_requests_and_descriptions_name_the_listeners(proxy: Proxy) -> None:
    ours = set(proxy.bootstrap_servers.split(","))
    with Raw(proxy.bootstrap_servers) as raw:
        old = raw.ask(FindCoordinatorRequest(key="g"), 3)
        assert f"{old.host}:{old.port}" in ours
        described = raw.ask(DescribeClusterRequest(), 1)
    assert {f"{each.host}:{each.port}" for each in described.brokers} == ours


def test_broker_without_a_listener_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    def respond(key: int, version: int, correlation_id: int) -> bytes:
        found = FindCoordinatorResponse(node_id=8, host="joined-later", port=9092)
        return b"".join(encode_response(found, version, correlation_id))

    with fake_broker(respond) as address, Proxy(address) as proxy:
        with Raw(proxy.bootstrap_servers) as raw:
            for _ in range(2):
                assert raw.ask(FindCoordinatorRequest(key="g"), 3).host == "joined-later"
    found = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    assert len(found) == 1
    assert found[0].startswith("broker 8 at joined-later:9092 has no listener of the proxy")


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
        assert response is not None
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


@pytest.mark.parametrize("to", ["", ":9092", "localhost:http", "localhost:70000"])
@pytest.mark.cases(2)
def test_wrong_address_is_an_error(to: str) -> None:
    with pytest.raises(InvalidOptionError, match="is not HOST:PORT"):
        Proxy(to)


def test_command_names_a_cluster_that_cannot_be_reached(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["proxy", "--to", "127.0.0.1:1"]) == 1
    assert capsys.readouterr().err == "kohort proxy: 127.0.0.1:1: Connection refused\n"


def test_command_names_a_local_port_that_is_taken(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second, *_ = cluster.bootstrap_servers.split(",")
    assert main(["proxy", "--to", first, "--port", second.rpartition(":")[2]]) == 1
    error = capsys.readouterr().err
    assert error == f"kohort proxy: cannot listen on {second}: Address already in use\n"


def test_command_ends_with_2_if_an_option_is_wrong(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["proxy", "--to", cluster.bootstrap_servers, "--delay", "Fetsch=1"])
    assert "no such Kafka API" in capsys.readouterr().err


def test_second_start_is_an_error(proxy: Proxy) -> None:
    with pytest.raises(IllegalStateError, match="already started"):
        proxy.start()


def test_first_server_that_responds_names_the_brokers(cluster: Cluster) -> None:
    with Proxy(f"127.0.0.1:1,{cluster.bootstrap_servers}") as proxy:
        assert len(proxy.bootstrap_servers.split(",")) == 3


Respond = Callable[[int, int, int], bytes]
"""Function that returns the response to an API, version and correlation id as bytes."""


@contextmanager
def fake_broker(
    respond: Respond, ended: threading.Event | None = None, *, closed_after: int = -1
) -> Iterator[str]:
    """Serve connections by a function, and yield the address. Metadata names this broker alone.

    ``ended`` is set when a connection that had another request than Metadata has ended.
    """

    def serve(client: socket.socket) -> None:
        key = MetadataRequest.api_key
        with client, client.makefile("rb") as stream:
            while prefix := stream.read(4):
                start = stream.read(int.from_bytes(prefix, "big"))[:8]
                key, version, correlation_id = struct.unpack(">hhi", start)
                if key == MetadataRequest.api_key:
                    broker = MetadataResponse.MetadataResponseBroker(
                        node_id=7, host="127.0.0.1", port=port
                    )
                    metadata = MetadataResponse(brokers=[broker])
                    found = b"".join(encode_response(metadata, version, correlation_id))
                else:
                    found = respond(key, version, correlation_id)
                client.sendall(found)
                if key == closed_after:
                    break
        if ended is not None and key != MetadataRequest.api_key:
            ended.set()

    def accept() -> None:
        while True:
            try:
                client, _ = listening.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=[client], daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        threading.Thread(target=accept, daemon=True).start()
        yield f"127.0.0.1:{port}"
        listening.shutdown(socket.SHUT_RDWR)


def heartbeat(correlation_id: int) -> bytes:
    return b"".join(encode_response(HeartbeatResponse(), 0, correlation_id))


def test_old_broker_gets_version_0_of_apiversions() -> None:
    def respond(key: int, version: int, correlation_id: int) -> bytes:
        versions = ApiVersionsResponse(
            error_code=ErrorCode.UNSUPPORTED_VERSION if version > 2 else ErrorCode.NONE,
            api_keys=[ApiVersionsResponse.ApiVersion(api_key=18, min_version=0, max_version=2)],
        )
        return b"".join(encode_response(versions, 0, correlation_id))

    with fake_broker(respond) as address, Proxy(address) as proxy:
        with Raw(proxy.bootstrap_servers) as raw:
            request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
            found = raw.ask(request, 3)
    assert found.error_code == ErrorCode.NONE
    assert [(each.api_key, each.max_version) for each in found.api_keys] == [(18, 2)]


def test_request_after_the_broker_closed_an_idle_connection_is_served() -> None:
    ended = threading.Event()
    key = HeartbeatRequest.api_key
    with (
        fake_broker(lambda *call: heartbeat(call[2]), ended, closed_after=key) as address,
        Proxy(address) as proxy,
        Raw(proxy.bootstrap_servers) as raw,
    ):
        for _ in range(3):
            ended.clear()
            assert raw.ask(HeartbeatRequest(), 0).error_code == 0
            assert ended.wait(60)


@pytest.mark.parametrize("data", [b"HTTP/1.1 400 Bad Request\r\n", b"\0\0\0\5hello", b"\0\0\0\5"])
@pytest.mark.cases(2)
def test_server_that_is_no_broker_is_an_error_with_its_address(data: bytes) -> None:
    def respond() -> None:
        client, _ = listening.accept()
        with client, suppress(OSError):  # the proxy may close first
            client.sendall(data)
            client.shutdown(socket.SHUT_WR)
            client.recv(1 << 16)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=respond, daemon=True)
        thread.start()
        port = listening.getsockname()[1]
        with pytest.raises(OSError, match=rf"^127\.0\.0\.1:{port}: "):
            Proxy(f"127.0.0.1:{port}").start()
        thread.join(60)


def test_connection_to_a_broker_that_hangs_ends_with_the_client() -> None:
    received, ended = threading.Event(), threading.Event()

    def respond(key: int, version: int, correlation_id: int) -> bytes:
        received.set()
        return b""  # the next read of this connection returns its end

    with fake_broker(respond, ended) as address, Proxy(address) as proxy:
        with Raw(proxy.bootstrap_servers) as raw:
            raw.send(HeartbeatRequest(), 0)
            assert received.wait(60)
        assert ended.wait(60)


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
