"""The bytes of the embedded protocol, compared with the bytes that other clients write."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from kohort.coordinator_client.assignors import Assignment, Subscription
from kohort.coordinator_client.classic._embedded_protocol import (
    read_assignment,
    read_subscription,
    write_assignment,
    write_subscription,
)
from kohort.errors import MessageDecodeError
from kohort.types import TopicPartition

VECTORS: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[2] / "data" / "consumer_protocol.json").read_text()
)
SUBSCRIPTIONS = [vector for vector in VECTORS if vector["kind"] == "subscription"]
ASSIGNMENTS = [vector for vector in VECTORS if vector["kind"] == "assignment"]


def _user_data(vector: dict[str, Any]) -> bytes | None:
    text = vector["user_data"]
    return None if text is None else base64.b64decode(text)


def _label(vector: dict[str, Any]) -> str:
    return f"{vector['client']}-v{vector['version']}"


def _partitions(pairs: list[tuple[str, int]]) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(topic, number) for topic, number in pairs)


def test_all_vectors_are_covered() -> None:
    assert len(SUBSCRIPTIONS) + len(ASSIGNMENTS) == 79


@pytest.mark.parametrize("vector", SUBSCRIPTIONS, ids=_label)
def test_subscriptions_read_and_write_byte_for_byte(vector: dict[str, Any]) -> None:
    data = base64.b64decode(vector["bytes"])
    subscription = read_subscription(data)
    version, client = vector["version"], vector["client"]
    owned = _partitions(vector["owned"]) if version >= 1 else ()
    assert subscription == Subscription(
        topics=tuple(vector["topics"]),
        user_data=_user_data(vector),
        owned=tuple(sorted(owned)),  # Java sorts, the vectors of others are sorted
        generation=vector["generation"] if version >= 2 else -1,
        # librdkafka writes an empty rack if there is none
        rack=("" if client == "ck" else vector["rack"]) if version >= 3 else None,
    )
    assert write_subscription(subscription, version) == data


@pytest.mark.parametrize("vector", ASSIGNMENTS, ids=_label)
def test_assignments_read_and_write_byte_for_byte(vector: dict[str, Any]) -> None:
    data = base64.b64decode(vector["bytes"])
    assignment = read_assignment(data)
    assert assignment == Assignment(_partitions(vector["partitions"]), _user_data(vector))
    assert write_assignment(assignment, vector["version"]) == data


def test_a_newer_version_is_read_as_the_newest_known() -> None:
    subscription = Subscription(topics=("a",), generation=4, rack="r")
    data = write_subscription(subscription)
    assert read_subscription(b"\x00\x09" + data[2:] + b"what version 9 adds") == subscription
    assignment = Assignment((TopicPartition("a", 1),))
    blob = write_assignment(assignment)
    assert read_assignment(b"\x00\x09" + blob[2:] + b"more") == assignment


def test_subscriptions_are_written_as_version_3() -> None:
    assert write_subscription(Subscription(topics=("a",)))[:2] == b"\x00\x03"


def test_what_an_old_version_lacks_is_left_out() -> None:
    full = Subscription(("a",), b"x", (TopicPartition("a", 0),), 7, "rack")
    assert read_subscription(write_subscription(full, 0)) == Subscription(("a",), b"x")
    assert read_subscription(write_subscription(full, 1)).owned == full.owned
    assert read_subscription(write_subscription(full, 2)).generation == 7


def test_no_bytes_at_all_are_an_empty_assignment() -> None:
    assert read_assignment(b"") == Assignment(())


@pytest.mark.parametrize(
    "data",
    [b"\x00", b"\xff\xff", b"\x00\x00\x7f\xff\xff\xff", b"\x00\x03\x00\x00\x00\x01\x00\x05ab"],
)
def test_broken_blobs_are_typed_errors(data: bytes) -> None:
    with pytest.raises(MessageDecodeError):
        read_subscription(data)
    with pytest.raises(MessageDecodeError):
        read_assignment(data)
