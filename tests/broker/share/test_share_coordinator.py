"""The share coordinator: epochs, merged batches, snapshots, and the records of Apache Kafka."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

from kohort.broker.share import (
    STATE_PARTITIONS,
    ShareCoordinator,
    ShareCoordinatorEnvironment,
    ShareKey,
    ShareState,
    StateBatch,
    state_key,
)
from kohort.broker.share._coordinator import load_states
from kohort.broker.share._state_batches import joined, merged
from kohort.errors import ErrorCode
from kohort.protocol import decode, encode
from kohort.protocol import messages as m

RECORDS: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[2] / "data" / "share_group_state.json").read_text()
)["records"]
KEY = ShareKey("g", bytes(range(16)), 0)
Stored = list[tuple[bytes, bytes | None]]


def coordinator(updates: int = 500) -> tuple[ShareCoordinator, Stored]:
    """Return a coordinator of all partitions, and the list of its records."""
    records: Stored = []
    env = ShareCoordinatorEnvironment(
        lambda _, added: records.extend(added), lambda: 1_700_000_000_000, updates
    )
    made = ShareCoordinator(env)
    for partition in range(STATE_PARTITIONS):
        made.load(partition, [])
    return made, records


def test_records_of_apache_kafka_encode_to_the_same_bytes() -> None:
    assert len(RECORDS) == 393
    for record in RECORDS:
        key_class, value_class = (
            (m.ShareSnapshotKey, m.ShareSnapshotValue),
            (m.ShareUpdateKey, m.ShareUpdateValue),
        )[int(record["type"])]
        raw = bytes.fromhex(record["key_hex"])
        assert struct.unpack_from(">h", raw) == (record["type"],)
        assert encode(decode(key_class, 0, raw[2:]), 0) == raw[2:]
        if record["value_hex"] is not None:
            raw = bytes.fromhex(record["value_hex"])
            assert raw[:2] == bytes(2)
            assert encode(decode(value_class, 0, raw[2:]), 0) == raw[2:]


def test_a_coordinator_writes_what_apache_kafka_wrote() -> None:
    """The group ``scgx`` was written by hand, with overlaps, snapshots and new epochs."""
    theirs = [
        (bytes.fromhex(each["key_hex"]), each["value_hex"])
        for each in RECORDS
        if each["group"] == "scgx"
    ]
    raw = theirs[0][0]
    named = decode(m.ShareSnapshotKey, 0, raw[2:])
    key = ShareKey(named.group_id, bytes(named.topic_id), named.partition)
    ours, records = coordinator(25)
    assert ours.initialize(key, 3, -1) is ErrorCode.NONE
    assert isinstance(ours.read(key, 2), ShareState)
    assert ours.write(key, 3, 2, 0, 0, []) is ErrorCode.NONE
    batches = [
        StateBatch(10, 19, 0, 1),
        StateBatch(12, 13, 2, 1),
        StateBatch(15, 17, 4, 2),
    ]
    assert ours.write(key, 3, 2, 10, 4, batches) is ErrorCode.NONE
    assert ours.write(key, 3, 2, 12, -1, [StateBatch(14, 14, 2, 2)]) is ErrorCode.NONE
    assert isinstance(ours.read(key, 3), ShareState)
    assert ours.initialize(key, 9, 5) is ErrorCode.NONE
    for offset in range(6, 36):
        batch = StateBatch(offset, offset, 2, 1)
        assert ours.write(key, 9, 0, offset - 1, 1, [batch]) is ErrorCode.NONE
    assert ours.delete(key) is ErrorCode.NONE
    assert [raw for raw, _ in records] == [raw for raw, _ in theirs]
    for (_, mine), (raw, text) in zip(records, theirs, strict=True):
        if text is None or mine is None:
            assert text is mine is None
            continue
        cls: Any = (m.ShareSnapshotValue, m.ShareUpdateValue)[raw[1]]
        found, wanted = (decode(cls, 0, value[2:]) for value in (mine, bytes.fromhex(text)))
        for value in (found, wanted):
            if isinstance(value, m.ShareSnapshotValue):
                value.create_timestamp = value.write_timestamp = 0
        assert found == wanted


def test_records_give_the_state_back() -> None:
    ours, records = coordinator(3)
    ours.initialize(KEY, 2, 0)
    for offset in range(8):
        ours.write(KEY, 2, 1, offset, 1, [StateBatch(offset + 1, offset + 1, 4, 5)])
        (loaded,) = load_states(records).values()
        assert loaded == ours.states[KEY]


def test_epochs_fence_writers() -> None:
    ours, records = coordinator()
    assert ours.read(KEY, 0) is ErrorCode.INVALID_REQUEST
    assert ours.write(KEY, 0, 0, 0, 0, []) is ErrorCode.INVALID_REQUEST
    assert ours.initialize(KEY, 5, -1) is ErrorCode.NONE
    assert ours.initialize(KEY, 4, -1) is ErrorCode.FENCED_STATE_EPOCH
    assert isinstance(ours.read(KEY, 3), ShareState)
    before = len(records)
    assert ours.read(KEY, 2) is ErrorCode.FENCED_LEADER_EPOCH
    assert ours.write(KEY, 5, 2, 0, 0, []) is ErrorCode.FENCED_LEADER_EPOCH
    assert ours.write(KEY, 4, 3, 0, 0, []) is ErrorCode.FENCED_STATE_EPOCH
    assert len(records) == before
    assert ours.write(KEY, 6, 3, 4, 0, []) is ErrorCode.NONE
    summary = ours.summary(KEY, -1)
    assert isinstance(summary, ShareState)
    assert (summary.start, summary.state_epoch) == (4, 5)
    assert ours.delete(KEY) is ours.delete(KEY) is ErrorCode.NONE
    ours.unload(0)
    assert ours.states == {}


def test_the_start_never_falls() -> None:
    ours, _ = coordinator()
    ours.initialize(KEY, 2, 0)
    ours.write(KEY, 2, 0, 7, 0, [StateBatch(3, 9, 2, 1)])
    ours.write(KEY, 2, 0, 4, 0, [])
    state = ours.states[KEY]
    assert (state.start, state.batches) == (7, [StateBatch(7, 9, 2, 1)])


def test_batches_merge_by_count_and_state() -> None:
    present = [StateBatch(0, 9, 0, 1)]
    found = merged(present, [StateBatch(2, 3, 2, 1), StateBatch(5, 12, 0, 2)], 1)
    assert found == [
        StateBatch(1, 1, 0, 1),
        StateBatch(2, 3, 2, 1),
        StateBatch(4, 4, 0, 1),
        StateBatch(5, 12, 0, 2),
    ]
    # A lower count does not override, and a huge range costs no more than a small one.
    assert merged(found, [StateBatch(0, 1 << 60, 0, 1)], 0)[-1] == StateBatch(13, 1 << 60, 0, 1)
    assert joined([StateBatch(1, 1, 4, 2), StateBatch(0, 0, 4, 2)]) == [StateBatch(0, 1, 4, 2)]


def test_the_key_of_a_share_partition_names_the_topic_by_its_id() -> None:
    assert state_key(KEY) == "g:AAECAwQFBgcICQoLDA0ODw:0"
