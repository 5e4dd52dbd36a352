"""Recorded lives of groups on Apache Kafka: their requests, responses and records."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from kohort.broker.groups import Append
from kohort.broker.groups.consumer._loading import CONSUMER_RECORDS
from kohort.protocol import (
    Message,
    Request,
    Response,
    decode,
    decode_request,
    decode_response,
    encode,
)
from kohort.protocol.messages import (
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
    ConsumerGroupTargetAssignmentMetadataValue,
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)

_DATA = Path(__file__).parents[3] / "data"
_TYPES: dict[int, tuple[type[Message], type[Message]]] = {
    **CONSUMER_RECORDS,
    1: (OffsetCommitKey, OffsetCommitValue),
    2: (GroupMetadataKey, GroupMetadataValue),
    4: (ConsumerGroupPartitionMetadataKey, ConsumerGroupPartitionMetadataValue),
}

TOPICS = {
    "ka": (4, "CyGqlgIzRiG57RzZiD-fFw"),
    "kb": (2, "8uH5H2u8Sx-0CRjkyRd8HQ"),
    "re-1": (2, "os8DLG9RTp-YHNAVU-BRXw"),
    "re-2": (1, "9SlhVVG0Qba9w1d9nRJL9A"),
}
"""Topic -> its partitions and its id on that broker"""


class Frame(NamedTuple):
    """A request that a client sent, with the broker's response."""

    scenario: str
    note: str
    client_id: str
    version: int
    request: Request[Any]
    response: Response


class Step(NamedTuple):
    """Records that one step of a life appended."""

    name: str
    records: list[Append]


def uuid_bytes(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "==")


def frames(scenario: str = "") -> Iterator[Frame]:
    """Yield the frames of the scenarios with this beginning."""
    data = json.loads((_DATA / "wire_frames_848.json").read_text())
    for frame in data["frames"]:
        if not frame["scenario"].startswith(scenario):
            continue
        header, request = decode_request(base64.b64decode(frame["req"]))
        version = header.request_api_version
        _, response = decode_response(
            type(request).response, version, base64.b64decode(frame["resp"])
        )
        yield Frame(
            frame["scenario"], frame["note"], header.client_id or "", version, request, response
        )


def lives() -> dict[str, list[Step]]:
    """Return the steps of each life by group id.

    They were recorded on Kafka 4.3.1. They have the further records of Kafka 4.4.0.
    """
    data = json.loads((_DATA / "consumer_offsets_848.json").read_text())
    return {
        life["group"]: list(
            _with_empty_targets(
                Step(step["step"], [_record(life["group"], each) for each in step["records"]])
                for step in life["steps"]
            )
        )
        for life in data["lives"]
    }


def _with_empty_targets(steps: Iterable[Step]) -> Iterator[Step]:
    """Add the record that Kafka 4.4.0 writes when the last member leaves (KAFKA-20442).

    It follows the record of the group epoch, and has the same epoch and no time.
    """
    members: set[bytes] = set()
    for step in steps:
        records = []
        for record in step.records:
            records.append(record)
            kind, value = record_type(record), record.value
            if kind == 5:
                (members.discard if value is None else members.add)(record.key)
            if kind == 3 and value is not None and not members:
                epoch = decode(ConsumerGroupMetadataValue, 0, value[2:]).epoch
                target = ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=epoch)
                key = struct.pack(">h", 6) + record.key[2:]
                records.append(Append(record.group_id, key, bytes(2) + encode(target, 0)))
        yield Step(step.name, records)


def _record(group_id: str, record: dict[str, Any]) -> Append:
    value = record["value_hex"]
    key = bytes.fromhex(record["key_hex"])
    return Append(group_id, key, None if value is None else bytes.fromhex(value))


def record_type(record: Append) -> int:
    (kind,) = struct.unpack_from(">h", record.key)
    return int(kind)


def shown(record: Append) -> str:
    """Return a record as text, without times, and with topics in the order of their ids."""
    kind = record_type(record)
    key_class, value_class = _TYPES[kind]
    key = decode(key_class, 0, record.key[2:])
    if record.value is None:
        return f"{key} deleted"
    (version,) = struct.unpack_from(">h", record.value)
    value: Any = decode(value_class, version, record.value[2:])
    for name in ("topic_partitions", "assigned_partitions", "partitions_pending_revocation"):
        if hasattr(value, name):
            setattr(value, name, sorted(getattr(value, name), key=lambda each: each.topic_id))
    for name in ("assignment_timestamp", "timestamp", "current_state_timestamp", "version"):
        if hasattr(value, name):
            # Only a time of 0 means something else.
            setattr(value, name, min(getattr(value, name), 1))
    if isinstance(value, GroupMetadataValue):
        value.members.sort(key=lambda each: each.member_id)
    return f"{key} {_plain(value)}"


def _plain(value: Any) -> Any:
    """Return a message with its bytes as text."""
    if isinstance(value, bytes | memoryview):
        return bytes(value).hex()
    if isinstance(value, list):
        return [_plain(each) for each in value]
    fields = getattr(value, "__slots__", None)
    if not fields:
        return value
    return {name: _plain(getattr(value, name)) for name in fields}
