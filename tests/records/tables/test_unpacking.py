"""LZ4 and zstd, decompressed in C: the same rows as in Python, and no more memory."""

from __future__ import annotations

import json
import random
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from crc32c import crc32c

from kohort.errors import CorruptBatchError, DecompressionBudgetError
from kohort.records import (
    Compression,
    NewRecord,
    RecordSet,
    Scratch,
    TablePlan,
    _record_set,
    compiled_module,
    encode_batch,
)
from kohort.records.codecs import _decompress
from kohort.records.codecs._lz4 import SOURCES
from kohort.records.codecs._zstd import ZstdFunctions, decompressor_addresses
from kohort.records.tables import _table
from tests.records.codecs.lying_frames import BOMBS, LIES, MB
from tests.records.tables.row_tables import table_of
from tests.support.decoders import decoder_named, use_decoder
from tests.support.heap import Taken, environment
from tests.support.snippets import ROOT

cramjam = pytest.importorskip("cramjam")

needs_libzstd = pytest.mark.skipif(
    not decompressor_addresses().decompress, reason="there is no libzstd"
)
RECORDS = [NewRecord(number, b"k%d" % number, b"value " * number) for number in range(60)]
CODECS = [Compression.LZ4, pytest.param(Compression.ZSTD, marks=needs_libzstd)]


def _batch(codec: Compression, packed: bytes) -> bytes:
    """Return a batch with this body and a wrong CRC."""
    whole = bytearray(encode_batch(RECORDS)[:61])
    whole[8:12] = struct.pack(">i", 49 + len(packed))
    whole[21:23] = struct.pack(">h", codec)
    return bytes(whole) + packed


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    use_decoder("compiled", monkeypatch)
    return monkeypatch


def _without_c(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(_table, "decompressor_address", lambda: 0)
    patch.setattr(_table, "decompressor_addresses", ZstdFunctions)


def test_notice_names_the_version_of_lz4(compiled: pytest.MonkeyPatch) -> None:
    module = compiled_module("_lz4_c", "kohort.records.codecs", SOURCES)
    assert f"LZ4 {module.version()}" in (ROOT / "NOTICE").read_text()


@pytest.mark.parametrize("codec", CODECS)
def test_table_needs_no_python_codec_when_c_functions_are_there(
    codec: Compression, compiled: pytest.MonkeyPatch
) -> None:
    data = encode_batch(RECORDS, compression=codec)
    compiled.setattr(_decompress, "decompress_into", None)
    assert table_of(data) == table_of(encode_batch(RECORDS))


def _records_of(data: bytes, **options: Any) -> list[Any]:
    found = RecordSet(data, 0, **options)
    read: list[Any] = []
    while not found.done:
        found.read(1)
        read += found.records
    return [(record.offset, record.timestamp, record.key, record.value) for record in read]


def test_records_need_python_for_the_first_lz4_batch_alone(
    compiled: pytest.MonkeyPatch,
) -> None:
    batches = [
        encode_batch(RECORDS, compression=Compression.LZ4, base_offset=number * len(RECORDS))
        for number in range(5)
    ]
    expected = _records_of(b"".join(batches))
    assert len(expected) == 5 * len(RECORDS)
    calls: list[int] = []
    decompress_into = _decompress.decompress_into

    def counted(codec: int, *args: Any, **options: Any) -> memoryview:
        calls.append(codec)
        return decompress_into(codec, *args, **options)

    compiled.setattr(_decompress, "decompress_into", counted)
    assert _records_of(b"".join(batches)) == expected
    assert calls == [Compression.LZ4]
    decoder_named("compiled").use_lz4(0)
    compiled.setattr(_record_set, "use_lz4", lambda _: None)
    assert _records_of(b"".join(batches)) == expected
    assert len(calls) == 6


def test_records_of_lz4_keep_to_the_budget_in_c(compiled: pytest.MonkeyPatch) -> None:
    small, large = (
        encode_batch([NewRecord(0, b"k", bytes(size))], compression=Compression.LZ4, base_offset=at)
        for at, size in enumerate((100, 100_000))
    )
    scratch = Scratch()
    scratch.take(1_000_000)
    assert len(_records_of(small + large, scratch=scratch)) == 2
    with pytest.raises(DecompressionBudgetError):
        _records_of(small + large, scratch=scratch, budget=50_000)


@pytest.mark.parametrize("codec", CODECS)
def test_table_is_the_same_when_c_functions_are_missing(
    codec: Compression, compiled: pytest.MonkeyPatch
) -> None:
    data = encode_batch(RECORDS, compression=codec)
    expected = table_of(data)
    _without_c(compiled)
    assert table_of(data) == expected
    compiled.setattr(_decompress, "decompress_into", None)
    with pytest.raises(TypeError):
        table_of(data)


@pytest.mark.parametrize("codec", CODECS)
def test_mutated_frames_give_the_same_in_c_and_in_python(
    codec: Compression, compiled: pytest.MonkeyPatch
) -> None:
    rng = random.Random(7)
    good = encode_batch(RECORDS, compression=codec)[61:]
    bodies = [good[:cut] for cut in range(0, len(good), 7)]
    for _ in range(400):
        body = bytearray(good)
        for _ in range(rng.choice((1, 2, 10))):
            body[rng.randrange(rng.choice((12, len(body))))] = rng.randrange(256)
        bodies.append(bytes(body))
    damaged = [_batch(codec, body) for body in bodies]
    in_c = [table_of(data, check_crcs=False) for data in damaged]
    _without_c(compiled)
    for data, expected in zip(damaged, in_c, strict=True):
        assert table_of(data, check_crcs=False) == expected


@needs_libzstd
def test_zstd_frames_of_every_kind_are_read_in_c(compiled: pytest.MonkeyPatch) -> None:
    body = encode_batch(RECORDS)[61:]
    half = len(body) // 2
    skipped = struct.pack("<II", 0x184D2A5F, 3) + b"abc"
    stream = cramjam.zstd.Compressor()
    stream.compress(body)
    frames = [
        skipped + bytes(cramjam.zstd.compress(body)),
        bytes(stream.finish()),
        bytes(cramjam.zstd.compress(body[:half])) + bytes(cramjam.zstd.compress(body[half:])),
        bytes(cramjam.zstd.compress(body)) + skipped,
        b"\x28\xb5\x2f\xfd\x00\x58" + (len(body) << 3 | 1).to_bytes(3, "little") + body,
    ]
    expected = table_of(encode_batch(RECORDS))
    compiled.setattr(_decompress, "decompress_into", None)
    for packed in frames:
        assert table_of(_batch(Compression.ZSTD, packed), check_crcs=False) == expected


@needs_libzstd
def test_zstd_block_larger_than_its_window_is_refused_in_c(
    compiled: pytest.MonkeyPatch,
) -> None:
    stream = cramjam.zstd.Compressor()
    stream.compress(encode_batch(RECORDS)[61:])
    packed = bytearray(stream.finish())
    assert packed[4] & 0x20 == 0, "the frame has a window"
    packed[5] = 0  # a window of 1 KiB
    data = _batch(Compression.ZSTD, bytes(packed))
    in_c = table_of(data, check_crcs=False)
    _without_c(compiled)
    assert in_c == table_of(data, check_crcs=False)
    assert in_c[0] is CorruptBatchError


@pytest.mark.parametrize("codec", CODECS)
def test_table_keeps_to_the_budget_when_the_scratch_is_larger(
    codec: Compression, compiled: pytest.MonkeyPatch
) -> None:
    data = encode_batch([NewRecord(0, b"k", bytes(100_000))], compression=codec)
    scratch = Scratch()
    RecordSet(data, 0, scratch=scratch).add_rows_to(TablePlan())
    assert scratch.size > 100_000
    with pytest.raises(DecompressionBudgetError):
        RecordSet(data, 0, scratch=scratch, budget=50_000).add_rows_to(TablePlan())


_COUNTING = """
import json, sys
from tests.records.tables.row_tables import table_of
from tests.support.heap import Heap
heap, said = Heap(), {}
for _ in range(2):
    for name, data in json.load(open(sys.argv[1])):
        data = bytes.fromhex(data)
        heap.begin()
        table_of(data, check_crcs=False)
        said[name] = heap.end()
print(json.dumps(said))
"""


def test_table_takes_bounded_memory_when_frames_lie_of_sizes(tmp_path: Path) -> None:
    packed = {
        name: each
        for name, each in [*LIES.items(), ("bomb", BOMBS["zstd-blocks"]())]
        if each[0] in (Compression.LZ4, Compression.ZSTD)
    }
    lies = tmp_path / "lies"
    lies.write_text(json.dumps([(name, _batch(*each).hex()) for name, each in packed.items()]))
    child = subprocess.run(
        [sys.executable, "-c", _COUNTING, str(lies)],
        env=environment(tmp_path),
        capture_output=True,
        check=True,
        text=True,
    )
    taken = {name: Taken(*each) for name, each in json.loads(child.stdout).items()}
    assert set(taken) == set(packed)
    assert {name: each for name, each in taken.items() if each.largest > 2 * MB} == {}


@needs_libzstd
def test_records_and_tables_take_the_same_zstd_frames(
    compiled: pytest.MonkeyPatch,
) -> None:
    data = encode_batch(RECORDS, compression=Compression.ZSTD)
    expected = _records_of(data)

    def refuse(*_: Any) -> int:
        raise cramjam.DecompressionError("Data corruption detected")

    compiled.setattr(cramjam.zstd, "decompress_into", refuse)
    assert _records_of(data) == expected == table_of(data)
    with pytest.raises(CorruptBatchError):
        _records_of(_with_crc(data[:-9] + b"garbage!!"))


def _with_crc(batch: bytes) -> bytes:
    """Return the batch with the CRC of its bytes."""
    return batch[:17] + struct.pack(">I", crc32c(batch[21:])) + batch[21:]
