"""Requests that third-party clients have sent to Apache Kafka, replayed to the cluster."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kohort.broker.apis import SERVED
from kohort.protocol import ZERO_UUID, Request, Struct, api, decode_request, decode_response
from kohort.protocol.messages import (
    CreateTopicsRequest,
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    ProduceRequest,
)
from kohort.testing import Cluster
from tests.broker.raw import Raw, find_coordinator
from tests.conformance.members import commit_request

FRAMES = Path(__file__).parents[1] / "data" / "wire_frames.json"
RECORDED = json.loads(FRAMES.read_text())
SOME_TOPIC = "some-topic"
PARTITIONS = 4


class Frame(NamedTuple):
    """Request without its length. ``label`` names its client."""

    label: str
    key: int
    version: int
    data: bytes


def _frames() -> Iterator[Frame]:
    for number, entry in enumerate(RECORDED["frames"]):
        key, version = entry["key"], entry["ver"]
        label = f"{number}-{entry['client']}-{entry['api']}-{version}"
        yield Frame(label, key, version, base64.b64decode(entry["req"]))


def _is_served(frame: Frame) -> bool:
    return frame.key in SERVED and frame.version in SERVED[frame.key].versions


ALL_FRAMES = list(_frames())
SERVED_FRAMES = [frame for frame in ALL_FRAMES if _is_served(frame)]


def structs(value: Any) -> Iterator[Struct]:
    """Yield every structure in a message, including the message."""
    if isinstance(value, Struct):
        yield value
        for spec in value._fields:
            yield from structs(getattr(value, spec.name))
    elif isinstance(value, list):
        for item in value:
            yield from structs(item)


def named_topics(request: Request[Any]) -> dict[str, int]:
    """Return the topics that have to exist, with their smallest number of partitions."""
    if isinstance(request, CreateTopicsRequest):
        return {}
    topics = dict.fromkeys(getattr(request, "topic_names", []), 1)
    for struct in structs(request):
        kind = type(struct).__name__
        name = getattr(struct, "name", None) or getattr(struct, "topic", None)
        if "Topic" in kind and isinstance(name, str):
            topics[name] = PARTITIONS
    topics.pop("", None)  # requests that name topics by id
    return topics


def named_groups(request: Request[Any]) -> set[str]:
    """Return the groups that have to exist."""
    groups: set[str] = set()
    if isinstance(request, DescribeGroupsRequest):
        groups.update(request.groups)
    elif isinstance(request, DeleteGroupsRequest):
        groups.update(request.groups_names)
    elif isinstance(request, FindCoordinatorRequest) and request.key_type == 0:
        groups.update([request.key, *request.coordinator_keys])
    for struct in structs(request):
        if isinstance(name := getattr(struct, "group_id", None), str):
            groups.add(name)
    return groups - {""}


def topic_ids(request: Request[Any]) -> set[bytes]:
    """Return the topic ids of the recorded cluster."""
    found = {bytes(getattr(struct, "topic_id", b"")) for struct in structs(request)}
    return found - {ZERO_UUID, b""}


@pytest.fixture
def prepared(frame: Frame) -> Iterator[tuple[Raw, bytes]]:
    """Cluster with the topics and groups of the request, and the request with that
    cluster's ids.
    """
    _, request = decode_request(frame.data)
    data = frame.data
    topics = {**named_topics(request), SOME_TOPIC: PARTITIONS}
    with Cluster(topics=topics) as cluster, Raw(cluster) as raw:
        for topic, partitions in topics.items():
            for partition in range(partitions):
                cluster.produce(topic, [b"x"], partition=partition)
        for group in named_groups(request):
            find_coordinator(raw, group)
            raw.ask(commit_request(group, SOME_TOPIC), 8)
            assert cluster.group(group).state == "Empty"
        known = cluster._call(lambda server: server.state.topics._by_name[SOME_TOPIC].id)
        for topic_id in topic_ids(request):
            data = data.replace(topic_id, known)
        yield raw, data


@pytest.mark.parametrize("frame", SERVED_FRAMES, ids=lambda frame: frame.label)
def test_each_is_answered_in_its_version(frame: Frame, prepared: tuple[Raw, bytes]) -> None:
    raw, data = prepared
    header, request = decode_request(data)
    raw.send_frame(data)
    if isinstance(request, ProduceRequest) and request.acks == 0:
        assert not raw.has_answer(0.05)
        return
    answer = raw.receive_frame()
    correlation_id, _ = decode_response(api(frame.key).response, frame.version, answer)
    assert correlation_id == header.correlation_id


@pytest.mark.parametrize("entry", RECORDED["special"], ids=lambda entry: entry["client"])
def test_an_unknown_version_is_answered_with_the_same_bytes(entry: dict[str, Any]) -> None:
    # The frames are of a broker whose last version of ApiVersions was 4. It is 5 now.
    request, response = base64.b64decode(entry["req"]), base64.b64decode(entry["resp"])
    assert request[:4] == b"\x00\x12\x00\x05"
    assert response.endswith(b"\x00\x12\x00\x00\x00\x04")
    with Cluster() as cluster, Raw(cluster) as raw:
        raw.send_frame(b"\x00\x12\x00\x06" + request[4:])
        assert raw.receive_frame() == response[:-1] + b"\x05"


def test_every_frame_is_tested() -> None:
    assert len(ALL_FRAMES) == 261
    assert len({frame.key for frame in ALL_FRAMES}) == 44
    assert len(SERVED_FRAMES) == len(ALL_FRAMES)
