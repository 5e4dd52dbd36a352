"""Versions, headers and frames: responses, and reasons to end the connection."""

from __future__ import annotations

import struct

from kohort.protocol import ApiKey, encode, encode_request
from kohort.protocol.messages import (
    ApiVersionsRequest,
    FetchRequest,
    FindCoordinatorRequest,
    HeartbeatRequest,
    MetadataRequest,
    OffsetDeleteRequest,
    RequestHeader,
)
from tests.conformance.probe import Observations, probe
from tests.conformance.session import Session, batch, produce_request
from tests.conformance.wire import FAR_MS

SOFTWARE_NAMES = ("", "-x", "x-", "a b", "a_b", "ä", ".x", "x.")
GOOD_SOFTWARE_NAMES = ("a", "apache-kafka-java", "a.b-c.1", "1")


def _header(key: int, version: int, header_version: int = 1, client_id: str | None = "p") -> bytes:
    header = RequestHeader(
        request_api_key=key,
        request_api_version=version,
        correlation_id=7,
        client_id=client_id,
    )
    return encode(header, header_version)


def _closed(session: Session, key: int, version: int, body: bytes = b"") -> bytes | str:
    connection = session.connect()
    connection.send_frame(_header(key, version) + body)
    return connection.outcome()


@probe("2.1a")
def api_versions_of_an_unknown_version(session: Session) -> Observations:
    """Send ApiVersions 6, 99 and -1: version 0, error 35 and the range of ApiVersions."""
    for version in (6, 99, 32767, -1):
        connection = session.connect()
        connection.send_frame(_header(18, version, 2) + b"\x02x\x02y\x00")
        yield f"version {version}", connection.outcome()


@probe("2.1a")
def api_versions_again_after_an_unknown_version(session: Session) -> Observations:
    """Send ApiVersions again after an unknown version. The connection stays open."""
    connection = session.connect()
    connection.send_frame(_header(18, 6, 2) + b"\x02x\x02y\x00")
    yield "first", connection.outcome()
    answer = connection.ask(
        ApiVersionsRequest(client_software_name="probe", client_software_version="1"), 4
    )
    yield "second", answer.error_code


@probe("2.1b")
def unknown_versions_close(session: Session) -> Observations:
    """Send any other API in a version too high or too low, which ends the connection."""
    for key in (
        ApiKey.METADATA,
        ApiKey.FETCH,
        ApiKey.JOIN_GROUP,
        ApiKey.OFFSET_COMMIT,
        ApiKey.CREATE_TOPICS,
        ApiKey.OFFSET_DELETE,
    ):
        yield f"{key.name} 99", _closed(session, key, 99)
        yield f"{key.name} -1", _closed(session, key, -1)
    for key, version in (
        (ApiKey.FETCH, 3),
        (ApiKey.LIST_OFFSETS, 0),
        (ApiKey.OFFSET_COMMIT, 1),
        (ApiKey.OFFSET_FETCH, 0),
        (ApiKey.CREATE_TOPICS, 1),
        (ApiKey.DELETE_TOPICS, 0),
        (ApiKey.DESCRIBE_CONFIGS, 0),
        (ApiKey.OFFSET_FOR_LEADER_EPOCH, 1),
    ):
        yield f"{key.name} {version}", _closed(session, key, version)


@probe("2.1b")
def unknown_keys_close(session: Session) -> Observations:
    """Send an unknown API key, which ends the connection. The next one works."""
    for key in (999, -1, 63, 95, 32767):
        yield f"key {key}", _closed(session, key, 0)
    connection = session.connect()
    yield "afterwards", connection.ask(ApiVersionsRequest(), 0).error_code


@probe("2.1b")
def keys_of_controllers_close(session: Session) -> Observations:
    """Send APIs of controllers and older brokers, which end the connection."""
    for key in (4, 5, 6, 7, 52, 53, 54, 56, 58, 59, 62, 63, 67, 70, 73, 82):
        yield f"key {key}", _closed(session, key, 0)


@probe("2.1b")
def produce_below_version_3_closes(session: Session) -> Observations:
    """Produce below version 3. It is advertised from 0 on for old librdkafka, and not served."""
    topic = session.topic()
    body = struct.pack(">hii", -1, 1000, 1) + encode_name(topic) + struct.pack(">iii", 1, 0, 0)
    for version in (0, 1, 2):
        yield f"version {version}", _closed(session, 0, version, body)


def encode_name(name: str) -> bytes:
    """Encode a string of a version that is not flexible."""
    return struct.pack(">h", len(name)) + name.encode()


@probe("2.1c")
def advertised_versions(session: Session) -> Observations:
    """Read the range of each API in ApiVersions."""
    for version in range(6):
        request = ApiVersionsRequest(client_software_name="p", client_software_version="1")
        answer = session.ask(request, version)
        yield (
            f"version {version}",
            {
                "error": answer.error_code,
                "apis": {
                    str(entry.api_key): [entry.min_version, entry.max_version]
                    for entry in answer.api_keys
                },
            },
        )


@probe("6.9a")
def features(session: Session) -> Observations:
    """Read the features in ApiVersions."""
    for version in (2, 3, 4, 5):
        request = ApiVersionsRequest(client_software_name="p", client_software_version="1")
        answer = session.ask(request, version)
        yield (
            f"version {version}",
            {
                "supported": {
                    found.name: [found.min_version, found.max_version]
                    for found in answer.supported_features
                },
                "finalized": {
                    found.name: [found.min_version_level, found.max_version_level]
                    for found in answer.finalized_features
                },
                "epoch known": answer.finalized_features_epoch >= 0,
            },
        )


@probe("2.1c")
def order_of_the_advertised_apis(session: Session) -> Observations:
    """Read the order of the APIs, which is that of their keys."""
    keys = [entry.api_key for entry in session.ask(ApiVersionsRequest(), 0).api_keys]
    yield "sorted", keys == sorted(keys)


@probe("2.1d")
def api_versions_for_an_expected_node(session: Session) -> Observations:
    """Send ApiVersions 5 with the right and with wrong ids of the cluster and the node."""
    metadata = session.ask(MetadataRequest(topics=[]), 12)
    known, node = metadata.cluster_id, metadata.brokers[0].node_id
    for label, cluster_id, node_id in (
        ("both", known, node),
        ("none", None, -1),
        ("another cluster", "another", node),
        ("another node", known, node + 1),
        ("cluster alone", known, -1),
        ("node alone", None, node),
        ("empty cluster", "", node),
    ):
        request = ApiVersionsRequest(
            client_software_name="p",
            client_software_version="1",
            cluster_id=cluster_id,
            node_id=node_id,
        )
        answer = session.ask(request, 5)
        yield label, (answer.error_code, bool(answer.api_keys))


@probe("2.2a")
def header_of_the_api_versions_answer(session: Session) -> Observations:
    """Read the header of ApiVersions, version 0 always: the error follows the correlation id."""
    for version in range(6):
        connection = session.connect()
        body = b"\x02x\x021\x00" if version >= 3 else b""
        if version >= 5:
            body = b"\x02x\x021\x00\xff\xff\xff\xff\x00"
        connection.send_frame(_header(18, version, 2 if version >= 3 else 1) + body)
        frame = connection.receive_frame()
        yield f"version {version}", frame[:6]


@probe("2.2b")
def bad_software_names(session: Session) -> Observations:
    """Send invalid names of client software: error 42 without a reason."""
    for version in (3, 4):
        for name in SOFTWARE_NAMES:
            for named in ((name, "1"), ("p", name)):
                request = ApiVersionsRequest(
                    client_software_name=named[0], client_software_version=named[1]
                )
                yield f"{named} {version}", session.ask(request, version)


@probe("2.2b")
def good_software_names(session: Session) -> Observations:
    """Send names of client software with letters, digits, dashes and dots."""
    for name in GOOD_SOFTWARE_NAMES:
        request = ApiVersionsRequest(client_software_name=name, client_software_version=name)
        yield name, session.ask(request, 3).error_code


@probe("2.3a")
def client_ids(session: Session) -> Observations:
    """Send client ids, an int16 string also before flexible bodies. Null is valid."""
    for client_id in ("p", "", None, "é" * 40, "a b\n"):
        connection = session.connect()
        for version in (1, 4):
            frame = encode_request(HeartbeatRequest(group_id="x"), version, 3, client_id)
            connection.send_bytes(b"".join(frame))
            yield f"{client_id!r} {version}", connection.outcome()


@probe("2.3b")
def offset_delete_is_never_flexible(session: Session) -> Observations:
    """Send OffsetDelete, which has the old encodings of header and body."""
    connection = session.connect()
    connection.send_frame(_header(47, 0) + encode_name("no-such-group") + struct.pack(">i", 0))
    yield "by hand", connection.outcome()
    yield "decoded", session.ask(OffsetDeleteRequest(group_id="no-such-group"), 0)


@probe("2.3b")
def sasl_handshake_without_sasl(session: Session) -> Observations:
    """Send SaslHandshake to a listener without SASL."""
    for version in (0, 1):
        yield f"version {version}", _closed(session, 17, version, encode_name("PLAIN"))


@probe("2.3c")
def produce_with_acks_0_has_no_answer(session: Session) -> Observations:
    """Produce with acks=0, which has no response. The next response is for the next request."""
    topic = session.topic()
    connection = session.connect()
    for version, values in ((3, b"a"), (9, b"b"), (12, b"c")):
        frame = encode_request(produce_request(topic, batch(values), acks=0), version, 50, "p")
        connection.send_bytes(b"".join(frame))
        yield f"version {version}", connection.ask(ApiVersionsRequest(), 0).error_code
    yield "stored", session.end_offsets(topic, 1)


@probe("2.3c")
def produce_with_acks_0_and_an_error_closes(session: Session) -> Observations:
    """Produce with acks=0 and an error, which ends the connection."""
    name = session.name("none")
    for version in (3, 9, 12):
        connection = session.connect()
        frame = encode_request(produce_request(name, batch(b"a"), acks=0), version, 50, "p")
        connection.send_bytes(b"".join(frame))
        yield f"version {version}", connection.outcome()


@probe("2.4a")
def unknown_tagged_fields(session: Session) -> Observations:
    """Send unknown tagged fields in headers and bodies, which are skipped."""
    tag = b"\x01\xc8\x01\x03abc"  # one field, tag 200, three bytes
    plain = encode(RequestHeader(request_api_key=18, request_api_version=3, correlation_id=9), 1)
    connection = session.connect()
    connection.send_frame(plain + tag + b"\x02x\x021" + tag)
    frame = connection.receive_frame()
    yield "ApiVersions", frame[:6]
    body = encode(FindCoordinatorRequest(coordinator_keys=["k"]), 4)
    header = encode(RequestHeader(request_api_key=10, request_api_version=4, correlation_id=9), 1)
    connection.send_frame(header + tag + body[:-1] + tag)
    frame = connection.receive_frame()
    yield "FindCoordinator", frame.replace(struct.pack(">i", session.target.port), b"port")


@probe("2.4a")
def defaults_of_tagged_fields_are_not_written(session: Session) -> Observations:
    """Count the bytes of tagged fields in responses, which have none at its default."""
    group = session.group()
    topic = session.topic()
    heartbeat = encode_request(HeartbeatRequest(group_id=group), 4, 5, "p")
    session.main.send_bytes(b"".join(heartbeat))
    yield "Heartbeat 4", session.main.outcome()
    session.main.send_bytes(
        b"".join(encode_request(produce_request(topic, batch(b"a")), 12, 5, ""))
    )
    yield "Produce 12", session.main.outcome()
    partition = FetchRequest.FetchPartition(partition=0, partition_max_bytes=1)
    fetch = FetchRequest(
        max_wait_ms=0, topics=[FetchRequest.FetchTopic(topic=topic, partitions=[partition])]
    )
    session.main.send_bytes(b"".join(encode_request(fetch, 12, 5, "p")))
    yield "Fetch 12", session.main.outcome()


@probe("2.5a")
def pipelined_requests_are_answered_in_order(session: Session) -> Observations:
    """Send ten requests before reading. Their responses come in the same order."""
    connection = session.connect()
    for index in range(10):
        if index % 3:
            connection.send(MetadataRequest(topics=[]), 9)
        else:
            connection.send(ApiVersionsRequest(), 0)
    yield "answers", [type(connection.receive()).__name__ for _ in range(10)]


@probe("2.5a", "2.5b")
def a_long_poll_holds_up_its_own_connection_only(session: Session) -> Observations:
    """Send a request after a waiting fetch, which waits too. Another connection is served."""
    topic = session.topic()
    partition = FetchRequest.FetchPartition(partition=0, partition_max_bytes=1000)
    fetch = FetchRequest(
        max_wait_ms=FAR_MS,
        min_bytes=1,
        topics=[FetchRequest.FetchTopic(topic=topic, partitions=[partition])],
    )
    waiting = session.connect()
    waiting.send(fetch, 9)
    waiting.send(ApiVersionsRequest(), 0)
    yield "both wait", waiting.is_parked()
    yield "another one", session.connect().ask(ApiVersionsRequest(), 0).error_code
    yield "still", waiting.is_parked()
    session.produce(topic, batch(b"x"))
    yield "in order", [type(waiting.receive()).__name__ for _ in range(2)]


@probe("2.5c")
def frames_that_cannot_be_read_close(session: Session) -> Observations:
    """Send a truncated request, an empty one, and an invalid length."""
    metadata = _header(3, 9, 2) + encode(MetadataRequest(topics=[]), 9)
    for label, frame in (
        ("cut short", metadata[:-1]),
        ("empty", b""),
        ("half a header", metadata[:6]),
        ("a count that lies", _header(3, 1) + struct.pack(">i", 1_000_000)),
        ("a negative count", _header(3, 1) + struct.pack(">i", -5)),
        ("no UTF-8", _header(3, 1) + struct.pack(">ih", 1, 2) + b"\xff\xfe"),
    ):
        connection = session.connect()
        connection.send_frame(frame)
        yield label, connection.fate()
    for size in (-1, -(2**31), 2**31 - 1, 104_857_601):
        connection = session.connect()
        connection.send_bytes(struct.pack(">i", size) + b"1234")
        yield f"length {size}", connection.fate()


@probe("2.5c")
def bytes_behind_a_request(session: Session) -> Observations:
    """Send a frame that is longer than its request."""
    connection = session.connect()
    connection.send_frame(_header(12, 1) + encode(HeartbeatRequest(group_id="x"), 1) + b"more")
    yield "Heartbeat 1", connection.outcome()
    connection = session.connect()
    connection.send_frame(_header(12, 4, 2) + encode(HeartbeatRequest(group_id="x"), 4) + b"more")
    yield "Heartbeat 4", connection.outcome()


@probe("2.5c")
def a_connection_needs_no_api_versions(session: Session) -> Observations:
    """Send any API as the first one on a connection."""
    yield "Metadata", session.connect().ask(MetadataRequest(topics=[]), 5).brokers
    yield "Heartbeat", session.connect().ask(HeartbeatRequest(group_id="x"), 3)
