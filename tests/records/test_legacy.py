"""Messages of the formats 0 and 1, as the producers of other libraries build them."""

from __future__ import annotations

import json
import random
import struct
import time
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import aiokafka.record.legacy_records
import kafka.record.legacy_records
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kohort.errors import CorruptBatchError, DecompressionBudgetError, UnsupportedCodecError
from kohort.records import (
    Compression,
    NewRecord,
    Record,
    RecordSet,
    TablePlan,
    compress,
    encode_batch,
    split_batches,
    to_arrow,
    to_columns,
)

_FILE = Path(__file__).parent.parent / "data" / "old_messages.json"
LOGS: list[dict[str, Any]] = json.loads(_FILE.read_text())["logs"]
BUILDERS = {
    "aiokafka": aiokafka.record.legacy_records.LegacyRecordBatchBuilder,
    "kafka-python": kafka.record.legacy_records.LegacyRecordBatchBuilder,
}
CODECS = [Compression.NONE, Compression.GZIP, Compression.SNAPPY, Compression.LZ4]
CASES = [
    (builder, magic, codec)
    for builder in BUILDERS
    for magic in (0, 1)
    for codec in CODECS
    # Neither builder writes lz4 in format 0, and kafka-python writes no snappy. Both need more
    # packages.
    if (magic, codec) != (0, Compression.LZ4)
    and (builder, codec) != ("kafka-python", Compression.SNAPPY)
]
PAIRS: list[tuple[bytes | None, bytes | None]] = [
    (b"key", b"value"),
    (None, b"v"),
    (b"k", None),
    (b"", b""),
    (None, None),
    (b"k" * 300, b"v" * 70_000),
]


def message(
    offset: int,
    value: bytes | None,
    *,
    magic: int = 1,
    attributes: int = 0,
    timestamp: int = 1000,
    key: bytes | None = None,
    crc: int | None = None,
) -> bytes:
    """Return one message as the protocol guide defines it."""
    body = struct.pack(">bb", magic, attributes)
    body += struct.pack(">q", timestamp) if magic else b""
    for data in (key, value):
        body += struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data
    crc = zlib.crc32(body) if crc is None else crc
    return struct.pack(">qiI", offset, len(body) + 4, crc) + body


def wrapper(
    offset: int, inner: bytes, codec: int = Compression.GZIP, *, flags: int = 0, **of: Any
) -> bytes:
    """Return a compressed message around others."""
    return message(offset, compress(codec, inner), attributes=codec | flags, **of)


def built(
    builder: str, magic: int, codec: int, pairs: Sequence[tuple[bytes | None, bytes | None]]
) -> bytes:
    """Return the messages of another client, with the offsets from 100 on that a broker assigns."""
    made = BUILDERS[builder](magic, codec, 1 << 20)
    for number, (key, value) in enumerate(pairs):
        offset = number if codec and magic else 100 + number
        made.append(offset, timestamp=5000 + number if magic else None, key=key, value=value)
    data = bytearray(made.build())
    if codec:
        struct.pack_into(">q", data, 0, 100 + len(pairs) - 1)
    return bytes(data)


def read(data: bytes, offset: int = 0, enough: int = 1 << 30, **options: Any) -> list[Record]:
    found = RecordSet(data, offset, topic="t", partition=3, **options)
    records: list[Record] = []
    while not found.done:
        found.read(enough)
        records += found.records
    return records


def refused(data: bytes, error: type[CorruptBatchError] = CorruptBatchError) -> CorruptBatchError:
    with pytest.raises(error) as caught:
        read(data)
    assert type(caught.value) is error
    assert caught.value.topic_partition is None
    return caught.value


@pytest.mark.parametrize(("builder", "magic", "codec"), CASES)
def test_what_other_clients_wrote_is_read(builder: str, magic: int, codec: Compression) -> None:
    records = read(built(builder, magic, codec, PAIRS))
    assert [(record.key, record.value) for record in records] == PAIRS
    assert [record.offset for record in records] == [*range(100, 106)]
    times = [5000 + number for number in range(6)] if magic else [-1] * 6
    assert [record.timestamp for record in records] == times
    for record in records:
        assert (record.topic, record.partition, record.leader_epoch) == ("t", 3, -1)
        assert record.timestamp_type == (0 if magic else -1)
        assert record.headers == ()
        assert record.serialized_header_size == -1
        assert record.serialized_key_size == (-1 if record.key is None else len(record.key))


@pytest.mark.parametrize(
    "log", LOGS, ids=lambda log: f"{log['magic']}-{log['codec']}-{log['timestamp_type']}"
)
def test_what_apache_kafka_2_8_2_stored_is_read(log: dict[str, Any]) -> None:
    def data(text: str | None) -> bytes | None:
        return None if text is None else bytes.fromhex(text)

    raw = bytes.fromhex(log["raw"])
    found = [(r.offset, r.timestamp_type, r.timestamp, r.key, r.value) for r in read(raw)]
    assert found == [
        (r["offset"], r["timestamp_type"], r["timestamp"], data(r["key"]), data(r["value"]))
        for r in log["records"]
    ]
    assert RecordSet(raw).next_offset == 6
    if log["magic"] == 0 and log["codec"] == "lz4":
        packed = raw[raw.index(b"\x04\x22\x4d\x18") :]
        assert packed[6] != 0x82  # the correct checksum of these flags (KIP-57)


@pytest.mark.parametrize("magic", [0, 1])
def test_the_checksum_is_that_of_the_message(magic: int) -> None:
    plain = message(7, b"v", magic=magic)
    [record] = read(plain)
    assert record.checksum == struct.unpack_from(">I", plain, 12)[0]
    [record] = read(wrapper(7, message(0 if magic else 7, b"v", magic=magic), magic=magic))
    assert record.checksum == struct.unpack_from(">I", plain, 12)[0]


@given(
    pairs=st.lists(
        st.tuples(
            st.none() | st.binary(max_size=200),
            st.none() | st.binary(max_size=3000),
        ),
        min_size=1,
        max_size=30,
    ),
    case=st.sampled_from(CASES),
    start=st.integers(90, 140),
    enough=st.integers(1, 40),
)
@settings(deadline=None, max_examples=150)
def test_any_messages_come_back_from_any_offset_on(
    pairs: list[tuple[bytes | None, bytes | None]],
    case: tuple[str, int, Compression],
    start: int,
    enough: int,
) -> None:
    data = built(*case, pairs)
    records = read(data, start, enough)
    expected = [(100 + number, *pair) for number, pair in enumerate(pairs)]
    assert [(r.offset, r.key, r.value) for r in records] == [e for e in expected if e[0] >= start]
    found = RecordSet(data, start)
    assert found.next_offset == max(start, 100 + len(pairs))


def test_log_append_time_of_compressed_message_is_of_all_in_it() -> None:
    inner = message(0, b"a", timestamp=5) + message(1, b"b", timestamp=6)
    records = read(wrapper(11, inner, flags=8, timestamp=777))
    assert [(r.offset, r.timestamp, r.timestamp_type) for r in records] == [
        (10, 777, 1),
        (11, 777, 1),
    ]
    records = read(wrapper(11, inner, timestamp=777))
    assert [(r.timestamp, r.timestamp_type) for r in records] == [(5, 0), (6, 0)]
    [record] = read(message(3, b"x", attributes=8, timestamp=9))
    assert (record.timestamp, record.timestamp_type) == (9, 1)


def test_compaction_leaves_gaps_in_a_compressed_message() -> None:
    relative = message(2, b"a") + message(7, b"b")
    assert [r.offset for r in read(wrapper(107, relative))] == [102, 107]
    absolute = message(102, b"a", magic=0) + message(105, b"b", magic=0)
    assert [r.offset for r in read(wrapper(107, absolute, magic=0))] == [102, 105]


def test_a_log_changes_its_format_in_the_midst_of_a_fetch() -> None:
    news = [NewRecord(1, b"k", b"v") for _ in range(3)]
    data = (
        message(0, b"v", magic=0)
        + wrapper(2, message(0, b"v") + message(1, b"v"))
        + encode_batch(news, base_offset=3, leader_epoch=4)
        + message(6, b"v", magic=1)
        + encode_batch(news, base_offset=7, leader_epoch=5, compression=Compression.LZ4)
    )
    found = RecordSet(data)
    assert (found.scan.batches, found.scan.size, found.next_offset) == (5, len(data), 10)
    assert found.scan.leader_epoch == 5
    for enough in (1, 2, 3, 100):
        records = read(data, 0, enough)
        assert [record.offset for record in records] == [*range(10)]
        assert [record.leader_epoch for record in records] == [-1, -1, -1, 4, 4, 4, -1, 5, 5, 5]
    assert [record.offset for record in read(data, 5)] == [5, 6, 7, 8, 9]
    assert RecordSet(data[: -len(news)]).scan.leader_epoch == -1


@pytest.mark.parametrize("rows", [1, 2, 3, 7, 1000])
def test_a_table_of_old_messages_is_as_their_records(rows: int) -> None:
    inner = message(0, b"c", timestamp=5) + message(1, b"d", key=b"k", timestamp=6)
    data = (
        message(0, b"a", magic=0)
        + message(1, None, attributes=8, timestamp=3)
        + message(2, b"b", attributes=8, timestamp=4)
        + wrapper(4, inner)
        + encode_batch([NewRecord(7, b"k", b"e"), NewRecord(8, None, b"f")], base_offset=5)
        + wrapper(8, inner, flags=8, timestamp=9)
    )
    found = RecordSet(data, 0, topic="t", partition=3)
    offsets: list[int] = []
    times: list[int] = []
    types: list[int] = []
    values = b""
    while not found.done:
        plan = TablePlan(rows)
        count = found.add_rows_to(plan)
        assert 0 < count <= rows
        table = plan.build()
        offsets += table.buffers["offset"][: 8 * count].cast("q")
        times += table.buffers["timestamp"][: 8 * count].cast("q")
        types += table.buffers["timestamp_type"][: 4 * count].cast("i")
        values += table.buffers["value"]
    records = read(data)
    assert offsets == [record.offset for record in records] == [*range(9)]
    assert times == [record.timestamp for record in records] == [-1, 3, 4, 5, 6, 7, 8, 9, 9]
    assert types == [record.timestamp_type for record in records] == [-1, 1, 1, 0, 0, 0, 0, 1, 1]
    assert values == b"abcdefcd"


def test_every_output_says_that_format_0_has_no_timestamps() -> None:
    plan = TablePlan()
    assert RecordSet(message(0, b"a", magic=0), topic="t", partition=3).add_rows_to(plan) == 1
    [row] = to_arrow(plan).to_pylist()
    [columns] = to_columns(plan)
    [record] = columns
    assert (row["timestampType"], row["timestamp"]) == (-1, None)
    assert ([*columns.timestampType], [*columns.timestamp]) == ([-1], [-1])
    assert (record.timestamp_type, record.timestamp) == (-1, -1)


def test_what_comes_twice_is_read_once() -> None:
    data = (
        encode_batch([NewRecord(1, None, b"new")] * 3)
        + wrapper(
            4, message(0, b"old") + message(2, b"old") + message(3, b"old") + message(4, b"old")
        )
        + encode_batch([NewRecord(1, None, b"new")] * 4, base_offset=3)
        + encode_batch(
            [NewRecord(1, None, b"new")] * 4, base_offset=5, compression=Compression.GZIP
        )
        + encode_batch([NewRecord(1, None, b"new")] * 2, base_offset=1)
    )
    expected = [(offset, b"old" if offset in (3, 4) else b"new") for offset in range(9)]
    for start in (0, 1, 4, 6, 8):
        for enough in (1, 3, 100):
            records = read(data, start, enough)
            assert [(r.offset, r.value) for r in records] == expected[start:]
            found = RecordSet(data, start)
            assert found.next_offset == 9
            rows: list[tuple[int, bytes | None]] = []
            while not found.done:
                found.add_rows_to(plan := TablePlan(enough))
                for columns in to_columns(plan):
                    rows += [(record.offset, record.value) for record in columns]
            assert rows == expected[start:]


def test_table_takes_offsets_that_are_far_apart_or_go_back() -> None:
    data = b"".join(message(offset, b"v") for offset in (1, 2, 1 << 40, 7, 8))
    found = RecordSet(data)
    plan = TablePlan()
    assert found.add_rows_to(plan) == 3  # the rest continues after 1 << 40
    table = plan.build()
    assert list(table.buffers["offset"][:24].cast("q")) == [1, 2, 1 << 40]


def test_a_bad_old_message_comes_behind_the_rows_before_it() -> None:
    found = RecordSet(message(1, b"a") + message(2, b"b", crc=1))
    assert found.add_rows_to(TablePlan()) == 1
    for _ in range(2):
        with pytest.raises(CorruptBatchError) as caught:
            found.add_rows_to(TablePlan())
        assert caught.value.offset == 2


@pytest.mark.parametrize("magic", [0, 1])
def test_a_message_that_is_cut_off_is_no_error(magic: int) -> None:
    first, second = message(4, b"value", magic=magic), message(5, b"other", magic=magic)
    for size in range(1, len(second)):
        found = RecordSet(first + second[:size])
        assert found.scan.tail_size == size
        assert found.scan.tail_needs == (len(second) if size >= 12 else None)
        assert found.next_offset == 5
        found.read(10)
        assert [record.offset for record in found.records] == [4]
        assert found.done
        alone = RecordSet(second[:size])
        assert (alone.scan.batches, alone.scan.tail_size) == (0, size)


def test_a_wrong_crc_names_both_sums_and_the_place() -> None:
    bad = message(42, b"value", crc=1)
    error = refused(bad)
    assert "CRC is 0x00000001" in str(error)
    assert (error.offset, error.next_offset, error.raw) == (42, 43, bad)
    assert [record.offset for record in read(bad, check_crcs=False)] == [42]
    inner = message(0, b"a") + message(1, b"b", crc=1)
    assert "CRC is 0x00000001" in str(refused(wrapper(9, inner)))


def test_what_is_before_a_bad_message_comes_out_first() -> None:
    data = message(1, b"a") + message(2, b"b") + message(3, b"c", crc=1) + message(4, b"d")
    found = RecordSet(data)
    found.read(100)
    assert [record.offset for record in found.records] == [1, 2]
    assert found.passed == 3
    for _ in range(2):
        with pytest.raises(CorruptBatchError) as caught:
            found.read(100)
        assert (caught.value.offset, caught.value.next_offset) == (3, 4)
    assert [record.offset for record in read(data, 4)] == [4]


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("at", ["key", "value"])
@pytest.mark.parametrize("size", [-2, -(2**31), 2**31 - 1, 100, 6])
def test_sizes_that_cannot_be_are_refused(magic: int, at: str, size: int) -> None:
    data = bytearray(message(3, b"value", key=b"key", magic=magic))
    where = 18 + 8 * magic + (7 if at == "value" else 0)
    struct.pack_into(">i", data, where, size)
    struct.pack_into(">I", data, 12, zlib.crc32(data[16:]))
    error = refused(bytes(data))
    assert (error.offset, error.next_offset, error.raw) == (3, 4, bytes(data))


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("size", [-1, -(2**31), 0, 13])
def test_a_size_less_than_the_header_ends_what_can_be_read(magic: int, size: int) -> None:
    data = bytearray(message(3, b"value", magic=magic))
    struct.pack_into(">i", data, 8, size)
    error = refused(bytes(data))
    assert (error.offset, error.next_offset) == (3, None)
    assert [r.offset for r in RecordSet(message(2, b"v") + data).records] == []


@pytest.mark.parametrize(
    ("inner", "what"),
    [
        (b"", "offsets up to -1"),
        (message(0, b"a")[:-1], "cannot have"),
        (message(0, b"a") + b"\0" * 11, "ends too early"),
        (message(0, b"a") + message(0, b"b"), "does not follow"),
        (message(5, b"a") + message(3, b"b"), "does not follow"),
        (message(0, b"a") + message(21, b"b"), "offsets up to 21, it has 20"),
        (message(-1, b"a"), "does not follow"),
        (message(0, b"a", magic=0), "format 0 is in one of format 1"),
        (encode_batch([NewRecord(0)]), "format 2"),
        (wrapper(0, message(0, b"a")), "compressed message is in a compressed message"),
    ],
)
def test_what_cannot_be_in_a_compressed_message_is_refused(inner: bytes, what: str) -> None:
    data = wrapper(20, inner)
    error = refused(data)
    assert what in str(error)
    assert (error.offset, error.next_offset, error.raw) == (0, 21, data)


def test_offsets_in_format_0_compressed_message_end_with_its_own() -> None:
    data = wrapper(20, message(19, b"a", magic=0) + message(21, b"b", magic=0), magic=0)
    assert "offsets up to 21, it has 20" in str(refused(data))


def test_compressed_message_without_value_or_known_codec_fails() -> None:
    assert "no value" in str(refused(message(0, None, attributes=1)))
    error = refused(message(0, b"abc", attributes=5), UnsupportedCodecError)
    assert "cannot be read here: compression codec 5 is unknown" in str(error)
    refused(message(0, b"not gzip at all", attributes=1))


def test_the_budget_holds_for_old_messages() -> None:
    data = wrapper(0, message(0, bytes(100_000)))
    assert len(read(data, budget=101_000)) == 1
    with pytest.raises(DecompressionBudgetError) as caught:
        read(data, budget=99_000)
    assert caught.value.raw == data


def test_lz4_header_checksum_is_checked_in_format_1_and_not_in_0() -> None:
    packed = bytearray(compress(Compression.LZ4, message(0, b"a", magic=0)))
    packed[6] ^= 0x55
    assert len(read(message(0, bytes(packed), magic=0, attributes=3))) == 1
    packed = bytearray(compress(Compression.LZ4, message(0, b"a", magic=1)))
    packed[6] ^= 0x55
    assert "header has a wrong checksum" in str(
        refused(message(0, bytes(packed), magic=1, attributes=3))
    )


def test_producers_of_today_send_no_old_messages() -> None:
    with pytest.raises(CorruptBatchError, match="message of format 1, from before"):
        next(split_batches(message(0, b"v")))


def test_mutated_messages_raise_nothing_else() -> None:
    rng = random.Random(8)
    started = time.thread_time()
    sets = [built(*case, PAIRS[:5]) for case in CASES]
    sets.append(message(1, b"a") + encode_batch([NewRecord(0)], base_offset=2) + message(3, b"c"))
    for _ in range(6000):
        data = bytearray(rng.choice(sets))
        for _ in range(rng.choice((1, 2, 8))):
            data[rng.randrange(len(data))] = rng.randrange(256)
        if rng.random() < 0.2:
            del data[rng.randrange(len(data)) :]
        found = RecordSet(data, check_crcs=rng.random() < 0.3, budget=1 << 20)
        try:
            while not found.done:
                if rng.random() < 0.5:
                    found.read(3)
                else:
                    plan = TablePlan(4)
                    found.add_rows_to(plan)
                    plan.build()
        except CorruptBatchError as error:
            assert error.raw
    assert time.thread_time() - started < 25
