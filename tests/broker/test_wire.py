"""Frames, versions, the order of responses, and the ends of connections."""

from __future__ import annotations

import json
import random
import struct
import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest

from kohort.broker.apis import SERVED
from kohort.broker.network._server_connection import RequestFrames
from kohort.protocol import Buffer, decode_response, encode_request
from kohort.protocol.messages import (
    ApiVersionsRequest,
    DescribeGroupsRequest,
    FetchRequest,
    HeartbeatRequest,
    MetadataRequest,
    MetadataResponse,
)
from kohort.testing import Cluster
from tests.broker.partition_requests import produce_request
from tests.broker.raw import Raw, find_coordinator, join, join_request
from tests.support.fuzz import mutated_request

FRAMES: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[1] / "data" / "wire_frames.json").read_text()
)["frames"]


def alive(cluster: Cluster) -> bool:
    with Raw(cluster) as other:
        return other.ask(MetadataRequest(topics=None), 12).error_code == 0


def head(key: int, version: int, correlation_id: int = 5, client: bytes = b"x") -> bytes:
    return struct.pack(">hhih", key, version, correlation_id, len(client)) + client


@pytest.mark.parametrize("version", range(5))
def test_api_versions_tells_what_is_served(raw: Raw, version: int) -> None:
    request = ApiVersionsRequest()
    if version >= 3:
        request = ApiVersionsRequest(client_software_name="raw", client_software_version="1.0")
    response = raw.ask(request, version)
    advertised = {
        entry.api_key: (entry.min_version, entry.max_version) for entry in response.api_keys
    }
    assert advertised[0] == (0, 13), "Produce: more versions than the broker serves"
    assert (advertised[1], advertised[3], advertised[18]) == ((4, 18), (0, 13), (0, 5))
    assert set(advertised) == set(SERVED)


def test_ranges_are_those_of_a_broker() -> None:
    """Every API has the versions that Apache Kafka 4.4.0 has."""
    kafka = next(f for f in FRAMES if f["api"] == "ApiVersions" and f["ver"] == 4)
    theirs = {
        entry["apiKey"]: (entry["minVersion"], entry["maxVersion"])
        for entry in kafka["resp_json"]["apiKeys"]
    }
    theirs |= {18: (0, 5), 28: (0, 6), 42: (0, 3)}  # the frame is of Kafka 4.3.1
    assert {key: tuple(served.advertised) for key, served in SERVED.items()} == {
        key: theirs[key] for key in SERVED
    }


@pytest.mark.parametrize("version", [6, 99, -1])
def test_unknown_api_versions_version_is_answered_in_version_0(raw: Raw, version: int) -> None:
    raw.send_frame(head(18, version, 7) + b"\0\2x\2y\0")
    assert raw.receive_frame() == bytes.fromhex("00000007 0023 00000001 0012 0000 0005")
    assert raw.ask(ApiVersionsRequest(), 0).error_code == 0, "the connection goes on"


@pytest.mark.parametrize(
    ("cluster_id", "node_id", "error"),
    [
        (..., 1, 0),
        (None, -1, 0),
        ("another", 1, 129),
        (..., 2, 129),
        (..., -1, 42),
        (None, 1, 42),
    ],
)
def test_a_wrong_cluster_or_node_is_refused(
    raw: Raw, cluster_id: Any, node_id: int, error: int
) -> None:
    metadata = raw.ask(MetadataRequest(topics=[]), 12)
    request = ApiVersionsRequest(
        client_software_name="raw",
        client_software_version="1",
        cluster_id=metadata.cluster_id if cluster_id is ... else cluster_id,
        node_id=node_id,
    )
    response = raw.ask(request, 5)
    assert (response.error_code, bool(response.api_keys)) == (error, not error)


def test_a_software_name_that_is_none_is_refused(raw: Raw) -> None:
    request = ApiVersionsRequest(client_software_name="-bad-", client_software_version="1")
    assert raw.ask(request, 3).error_code == 42


@pytest.mark.parametrize(
    ("key", "version"), [(999, 0), (-1, 0), (3, 99), (3, -1), (2, 0), (0, 2), (1, 3)]
)
def test_what_is_not_served_ends_the_connection(
    cluster: Cluster, raw: Raw, key: int, version: int
) -> None:
    raw.send_frame(head(key, version))
    assert raw.is_closed()
    assert alive(cluster)


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"\xff\xff\xff\xff",
        b"\x7f\xff\xff\xff",
        b"\0\0\0\0",
        b"\0\0\0\4\0\3\0\0",
        struct.pack(">i", 20) + head(3, 9) + b"\xff" * 9,
        struct.pack(">i", 12) + head(3, 0) + b"x",
    ],
)
def test_garbage_ends_its_connection_and_no_other(cluster: Cluster, raw: Raw, data: bytes) -> None:
    raw.send_bytes(data)
    assert raw.is_closed()
    assert alive(cluster)


def test_oversized_frame_closes_the_connection_before_its_body() -> None:
    with Cluster(max_request_bytes=1000) as cluster, Raw(cluster) as raw:
        raw.send_bytes(struct.pack(">i", 1001))
        assert raw.is_closed()
        assert alive(cluster)


def test_partial_frame_waits_and_is_dropped_with_its_connection(cluster: Cluster, raw: Raw) -> None:
    raw.send_bytes(struct.pack(">i", 100) + head(3, 12))
    assert not raw.has_answer(0.05)
    raw.close()
    assert alive(cluster)


def test_announced_frame_is_not_allocated_before_it_comes() -> None:
    async def held() -> int:
        network = MemoryConnection(struct.pack(">i", 100 << 20))
        tracemalloc.start()
        try:
            assert await RequestFrames(network, 100 << 20).next() is None
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    assert anyio.run(held) < 1 << 20


@pytest.mark.parametrize("size", [1, 16_380, 65_535, 65_536, 65_537, 300_000])
def test_frames_of_any_size_come_whole(size: int) -> None:
    frames = [bytes([number]) * size for number in range(3)]
    data = b"".join(struct.pack(">i", size) + frame for frame in frames)

    async def received() -> list[bytes]:
        source = RequestFrames(MemoryConnection(data), 1 << 20)
        found = []
        while (frame := await source.next()) is not None:
            found.append(bytes(frame))
        return found

    assert anyio.run(received) == frames


class MemoryConnection:
    """Byte connection of a client that sent some bytes and ended."""

    peer_host = "127.0.0.1"

    def __init__(self, data: bytes) -> None:
        self._data = data

    async def recv_into(self, view: memoryview) -> int:
        part = self._data[: min(len(view), 9_999)]
        view[: len(part)] = part
        self._data = self._data[len(part) :]
        return len(part)

    async def send(self, buffers: Sequence[Buffer]) -> None:
        raise NotImplementedError

    async def aclose(self) -> None:
        """Do nothing."""


def test_a_frame_may_come_byte_by_byte_and_many_at_once(raw: Raw) -> None:
    frames = b"".join(b"".join(encode_request(MetadataRequest(), 12, n, "x")) for n in range(50))
    for byte in frames[:200]:
        raw.send_bytes(bytes([byte]))
    raw.send_bytes(frames[200:])
    for n in range(50):
        assert decode_response(MetadataResponse, 12, raw.receive_frame())[0] == n


def test_bytes_behind_a_request_are_left_alone_as_kafka_does(raw: Raw) -> None:
    frame = b"".join(encode_request(MetadataRequest(topics=None), 13, 3, "x"))[4:]
    raw.send_frame(frame + b"\1\0\0")
    assert decode_response(MetadataResponse, 13, raw.receive_frame())[0] == 3


def test_a_null_client_id_is_taken(raw: Raw) -> None:
    assert raw.ask(MetadataRequest(topics=[]), 12, client_id=None).brokers


def test_responses_keep_request_order_after_a_waiting_fetch(raw: Raw) -> None:
    topic_id = raw.ask(MetadataRequest(topics=None), 12).topics[0].topic_id
    wait = FetchRequest(
        max_wait_ms=150,
        min_bytes=1,
        topics=[
            FetchRequest.FetchTopic(
                topic_id=topic_id,
                partitions=[FetchRequest.FetchPartition(partition_max_bytes=1000)],
            )
        ],
    )
    sent = [raw.send(wait, 13), raw.send(MetadataRequest(), 12), raw.send(HeartbeatRequest(), 4)]
    assert [raw.receive()[0] for _ in sent] == sent


def test_a_parked_request_holds_up_no_other_connection(cluster: Cluster, raw: Raw) -> None:
    with Raw(cluster) as other:
        member = join(other).member_id
        raw.send(join_request(), 3)
        assert not raw.has_answer(0.05), "waits for the first one to join again"
        assert other.ask(HeartbeatRequest(group_id="g", generation_id=1, member_id=member), 4)


def test_acks_0_has_no_answer(cluster: Cluster, raw: Raw) -> None:
    raw.send(produce_request("t", 0, acks=0), 9)
    raw._versions.clear()
    assert raw.ask(MetadataRequest(), 12).brokers, "the next answer is the next request's"
    cluster.wait_until(lambda: cluster.records("t"))
    raw.send(produce_request("nosuch", 0, acks=0), 9)
    assert raw.is_closed(), "no response can report the error"


@pytest.mark.parametrize("seed", range(4))
def test_mutated_requests_over_real_sockets_crash_nothing(
    seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    rng = random.Random(seed)
    with Cluster(default_partitions=4) as cluster:
        raw = Raw(cluster)
        for _ in range(250):
            try:
                raw.send_frame(mutated_request(rng))
                # A mutated wait has no response for long, so the next request uses a new
                # connection.
                alone = not raw.has_answer(0.02)
                if not alone:
                    raw.receive_frame()
            except (EOFError, OSError):
                alone = True
            if alone:
                raw.close()
                raw = Raw(cluster)
        raw.close()
        assert alive(cluster)
    failures = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert failures == [], "an unreadable request is no error of the broker"


def test_response_with_an_oversized_string_closes_connection(
    cluster: Cluster, raw: Raw, caplog: pytest.LogCaptureFixture
) -> None:
    find_coordinator(raw)
    raw.send(join_request(), 3, client_id="x" * 32767)
    assert raw.is_closed(), "its member id begins with the client's"
    for version in (4, 6):
        with Raw(cluster) as other:
            other.send(DescribeGroupsRequest(groups=["g"]), version)
            assert other.is_closed()
    assert alive(cluster)
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []
