"""Codecs: kohort reads what each producer writes, under a budget that also stops bombs."""

from __future__ import annotations

import gzip
import json
import random
import struct
import subprocess
import sys
import time
import types
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import lz4.frame
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kohort.errors import CorruptBatchError, DecompressionBudgetError, UnsupportedCodecError
from kohort.records import Compression, Scratch, compress, decompress, decompress_into
from kohort.records.codecs._compression import cramjam as library
from kohort.records.codecs._compression import optional_cramjam, optional_isal
from kohort.records.codecs._snappy import snappy_size
from tests.records.codecs.lying_frames import BOMBS, LIES, MB, NOISE, TEXT, _zstd_rle, _zstd_stream
from tests.support.heap import Taken, environment

cramjam = pytest.importorskip("cramjam")

CODECS = [codec for codec in Compression if codec is not Compression.NONE]


@given(
    data=st.binary(max_size=2000), copies=st.integers(0, 200), codec=st.sampled_from(Compression)
)
@settings(deadline=None)
def test_what_is_compressed_decompresses(data: bytes, copies: int, codec: Compression) -> None:
    plain = data * copies
    assert decompress(codec, compress(codec, plain)) == plain
    assert decompress(codec, memoryview(compress(codec, plain)), budget=len(plain)) == plain


@pytest.mark.parametrize("codec", Compression)
def test_the_budget_is_exact(codec: Compression) -> None:
    packed = compress(codec, TEXT)
    assert decompress(codec, packed, budget=len(TEXT)) == TEXT
    with pytest.raises(DecompressionBudgetError, match=f"budget of {len(TEXT) - 1} bytes"):
        decompress(codec, packed, budget=len(TEXT) - 1)


@pytest.mark.parametrize("codec", CODECS)
def test_a_cut_stream_is_corrupt(codec: Compression) -> None:
    packed = compress(codec, TEXT)
    for end in (0, 1, 5, 9, len(packed) // 2, len(packed) - 1):
        with pytest.raises(CorruptBatchError) as caught:
            decompress(codec, packed[:end])
        assert type(caught.value) is CorruptBatchError


def test_an_unknown_codec_is_named() -> None:
    with pytest.raises(UnsupportedCodecError, match=r"codec 5 is unknown.*4 \(zstd\)"):
        decompress(5, b"")
    with pytest.raises(UnsupportedCodecError):
        compress(9, b"")


def test_snappy_is_read_raw_of_librdkafka_and_framed_of_java() -> None:
    raw = bytes(cramjam.snappy.compress_raw(TEXT))
    framed = compress(Compression.SNAPPY, TEXT)
    assert framed.startswith(b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01")
    assert decompress(Compression.SNAPPY, raw) == decompress(Compression.SNAPPY, framed) == TEXT


def test_bad_gzip_is_corrupt_while_cramjam_is_being_imported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "cramjam", types.ModuleType("cramjam"))
    with pytest.raises(CorruptBatchError, match="gzip"):
        decompress(Compression.GZIP, b"no gzip")


def test_lz4_is_read_with_and_without_a_content_size() -> None:
    for options in ({"store_size": True}, {"store_size": False, "content_checksum": True}):
        assert decompress(Compression.LZ4, lz4.frame.compress(TEXT, **options)) == TEXT


@pytest.mark.parametrize("linked", [False, True])
@pytest.mark.parametrize("sized", [False, True])
@pytest.mark.parametrize("checksum", ["", "content_checksum", "block_checksum"])
@pytest.mark.parametrize("block_size", [4, 7])
def test_lz4_frames_of_every_kind(
    linked: bool, sized: bool, checksum: str, block_size: int
) -> None:
    for plain in (b"", b"short", random.Random(1).randbytes(100_000), TEXT):
        options = {"block_linked": linked, "store_size": sized, "block_size": block_size}
        options |= {checksum: True} if checksum else {}
        packed = lz4.frame.compress(plain, **options)
        assert decompress(Compression.LZ4, packed) == plain
        assert decompress(Compression.LZ4, packed, budget=len(plain)) == plain
        if checksum and plain:
            broken = bytearray(packed)
            broken[-1 if checksum == "content_checksum" else -5] ^= 1
            with pytest.raises(CorruptBatchError, match="Checksum_invalid"):
                decompress(Compression.LZ4, broken)


def test_wrong_lz4_header_checksum_is_read_where_kafka_wrote_it() -> None:
    """Clients before Kafka 0.10 included the frame's magic in the checksum (KIP-57)."""
    for options in ({"store_size": True}, {"store_size": False, "block_linked": False}):
        packed = bytearray(lz4.frame.compress(TEXT, **options))
        at = 14 if options["store_size"] else 6
        packed[at] ^= 0x55
        with pytest.raises(CorruptBatchError, match="header has a wrong checksum"):
            decompress(Compression.LZ4, packed)
        view = decompress_into(Compression.LZ4, packed, Scratch(), any_lz4_header_checksum=True)
        assert view == TEXT


def test_lz4_frames_that_contradict_themselves_are_corrupt() -> None:
    packed = lz4.frame.compress(TEXT, block_linked=False, block_size=4, store_size=True)
    for size in (len(TEXT) - 1, len(TEXT) + 1, len(TEXT) + 65536, 0):
        wrong = bytearray(packed)
        wrong[6:14] = size.to_bytes(8, "little")
        with pytest.raises(CorruptBatchError) as caught:
            decompress_into(Compression.LZ4, wrong, Scratch(), any_lz4_header_checksum=True)
        assert type(caught.value) is CorruptBatchError


def test_very_many_blocks_take_no_more_time_than_their_bytes() -> None:
    empty = bytes(4 * 1_000_000)
    many = (1 << 31 | 1).to_bytes(4, "little") + b"x"
    started = time.thread_time()
    packed = lz4.frame.compress(b"", block_linked=False, store_size=False)[:7]
    assert decompress(Compression.LZ4, packed + many * 200_000 + bytes(4)) == b"x" * 200_000
    stored = (1 << 3).to_bytes(3, "little") + b"x"
    last = (1 << 3 | 1).to_bytes(3, "little") + b"x"
    frame = b"\x28\xb5\x2f\xfd\x00\x58" + stored * 200_000 + last
    assert decompress(Compression.ZSTD, frame) == b"x" * 200_001
    with pytest.raises(CorruptBatchError):
        decompress(Compression.LZ4, packed + empty + b"x")
    assert time.thread_time() - started < 20


def test_gzip_members_may_follow_each_other() -> None:
    assert decompress(Compression.GZIP, gzip.compress(b"one") + gzip.compress(b"two")) == b"onetwo"
    with pytest.raises(CorruptBatchError, match="members"):
        decompress(Compression.GZIP, gzip.compress(b"") * 100)


def _gzip_streams() -> list[bytes]:
    """Return gzip streams that are whole, cut, changed, in members, or with rare headers."""
    packed = gzip.compress(TEXT[:5000], mtime=0)
    rng = random.Random(7)
    streams = [packed + tail for tail in (b"", packed, bytes(8), b"garbage", gzip.compress(b""))]
    streams += [packed[:end] for end in (*range(12), len(packed) - 9, len(packed) - 1)]
    streams += [gzip.compress(b"") * 3 + packed, gzip.compress(b"") * 100, gzip.compress(bytes(MB))]
    for size in (0, 1, 4999, 5001, 400 * MB):  # sizes that are not those of the content
        streams.append(packed[:-4] + size.to_bytes(4, "little"))
    named = bytearray(packed[:10])
    named[3] |= 8
    streams.append(bytes(named) + bytes([65]) * 70_000 + b"\0" + packed[10:])
    for _ in range(300):
        changed = bytearray(packed)
        changed[rng.randrange(rng.choice((12, len(packed))))] = rng.randrange(256)
        streams.append(bytes(changed))
    return streams


def _outcome(packed: bytes, budget: int) -> tuple[type[Exception], str] | bytes:
    try:
        return decompress(Compression.GZIP, packed, budget)
    except CorruptBatchError as error:
        return type(error), str(error)


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Take packages away until the end of the test."""
    cached = (optional_cramjam, optional_isal, library)

    def take(*names: str) -> None:
        for each in cached:
            each.cache_clear()
        for name in names:
            monkeypatch.setitem(sys.modules, name, None)

    yield take
    for each in cached:
        each.cache_clear()


@pytest.mark.parametrize("missing", [["isal.isal_zlib"], ["isal.isal_zlib", "cramjam"]])
@pytest.mark.cases
def test_gzip_has_the_same_result_whatever_is_installed(
    without: Callable[..., None], missing: list[str]
) -> None:
    cases = [(packed, budget) for packed in _gzip_streams() for budget in (5000, 4999, 2 * MB)]
    fast = [_outcome(*case) for case in cases]
    without(*missing)
    assert fast == [_outcome(*case) for case in cases]
    assert TEXT[:5000] in fast


@pytest.mark.parametrize("by", ["isal.isal_zlib", "cramjam"])
@pytest.mark.cases
def test_gzip_of_a_likely_size_is_read_by_a_library_in_less_time(
    without: Callable[..., None], by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip(by)
    without(*{"isal.isal_zlib", "cramjam"} - {by})
    monkeypatch.setattr(zlib, "decompressobj", None)
    assert decompress(Compression.GZIP, gzip.compress(TEXT)) == TEXT


def test_zstd_frames_may_follow_each_other_and_be_skipped() -> None:
    skipped = struct.pack("<II", 0x184D2A53, 5) + b"hello"
    packed = _zstd_stream([b"one"]) + skipped + bytes(cramjam.zstd.compress(b"two"))
    assert decompress(Compression.ZSTD, packed) == b"onetwo"


def test_zstd_budget_counts_content_and_not_possible_block_sizes() -> None:
    """A producer that flushes often writes many small blocks and no content size."""
    parts = [b"part %d " % number for number in range(600)]
    packed = _zstd_stream(parts)
    assert 64 * MB < 600 * 128 * 1024
    assert decompress(Compression.ZSTD, packed) == b"".join(parts)
    whole = len(b"".join(parts))
    assert decompress(Compression.ZSTD, packed, budget=whole) == b"".join(parts)
    with pytest.raises(DecompressionBudgetError):
        decompress(Compression.ZSTD, packed, budget=whole - 1)


def test_zstd_with_the_largest_window_takes_only_what_it_holds() -> None:
    assert decompress(Compression.ZSTD, _zstd_rle(8, window=17 << 3)) == bytes(MB)
    with pytest.raises(CorruptBatchError):
        decompress(Compression.ZSTD, _zstd_rle(8, window=0xFF))


@pytest.mark.parametrize(
    ("codec", "packed"),
    [
        (Compression.SNAPPY, b"\xff\xff\xff\xff\x0f"),
        (Compression.SNAPPY, b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01\x7f\xff\xff\xff\x00"),
        (Compression.SNAPPY, b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01\xff\xff\xff\xff\x00"),
        (Compression.SNAPPY, b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01\x00\x00\x00\x00"),
        (Compression.SNAPPY, b"\x82SNAPPY\x00\x00\x00"),
        (Compression.SNAPPY, b"\x80\x80\x80\x1c" + bytes(100)),
        (Compression.LZ4, b"\x04\x22\x4d\x18\x68\x40" + b"\xff" * 8 + b"\x49" + bytes(8)),
        (Compression.LZ4, lz4.frame.compress(b"abc") + b"more"),
        (Compression.ZSTD, b"\x28\xb5\x2f\xfd\xe0" + b"\xff" * 8 + b"\x01\x00\x00"),
        (Compression.ZSTD, b"\x28\xb5\x2f\xfd\x00\x58\x07\x00\x00"),
        (Compression.ZSTD, b"\x28\xb5\x2f\xfd\x00\x58\xfd\xff\xff"),
        (Compression.ZSTD, struct.pack("<II", 0x184D2A50, 2**32 - 1)),
        (Compression.ZSTD, b"not a frame"),
    ],
)
def test_lengths_that_lie_are_refused_before_they_are_believed(
    codec: Compression, packed: bytes
) -> None:
    with pytest.raises(CorruptBatchError):
        decompress(codec, packed)


@pytest.mark.parametrize("codec", CODECS)
def test_mutated_streams_raise_nothing_else(codec: Compression) -> None:
    rng = random.Random(codec)
    packed = compress(codec, TEXT[:5000])
    for _ in range(1500):
        data = bytearray(packed)
        for _ in range(rng.choice((1, 2, 10))):
            data[rng.randrange(rng.choice((16, len(data))))] = rng.randrange(256)
        try:
            assert len(decompress(codec, data, budget=MB)) <= MB
        except CorruptBatchError:
            pass


_COUNTING = """
import json, sys
from kohort.errors import CorruptBatchError
from kohort.records import compress, decompress
from tests.support.heap import Heap
heap, said = Heap(), {}
for codec in range(1, 5):
    decompress(codec, compress(codec, b"once, so that what is imported does not count"))
for name, codec, packed in json.load(sys.stdin):
    packed = bytes.fromhex(packed)
    heap.begin()
    try:
        decompress(codec, packed)
    except CorruptBatchError:
        pass
    said[name] = heap.end()
print(json.dumps(said))
"""


def test_stream_of_false_size_takes_at_most_8_fold_plus_1_mb(
    tmp_path: Path,
) -> None:
    child = subprocess.run(
        [sys.executable, "-c", _COUNTING],
        input=json.dumps([(name, codec, packed.hex()) for name, (codec, packed) in LIES.items()]),
        env=environment(tmp_path),
        capture_output=True,
        check=True,
        text=True,
    )
    taken = {name: Taken(*each) for name, each in json.loads(child.stdout).items()}
    bounds = {name: 8 * len(packed) + MB for name, (_, packed) in LIES.items()}
    assert {name: each for name, each in taken.items() if each.largest > bounds[name]} == {}
    assert {name: each for name, each in taken.items() if each.peak > 2 * bounds[name]} == {}


def test_what_is_rarely_packed_so_well_is_read_all_the_same() -> None:
    plain = bytes(3 * MB)
    for linked in (False, True):
        for checksum in (False, True):
            packed = lz4.frame.compress(
                plain, block_linked=linked, content_checksum=checksum, block_size=7
            )
            assert decompress(Compression.LZ4, packed) == plain
    assert decompress(Compression.SNAPPY, bytes(cramjam.snappy.compress_raw(plain))) == plain
    assert decompress(Compression.ZSTD, bytes(cramjam.zstd.compress(plain))) == plain
    parts = [NOISE, plain, NOISE, NOISE]  # matches over long distances
    assert decompress(Compression.ZSTD, _zstd_stream(parts)) == b"".join(parts)
    framed = bytes(cramjam.zstd.compress(plain)) + _zstd_stream(parts)
    assert decompress(Compression.ZSTD, framed * 2) == (plain + b"".join(parts)) * 2


@pytest.mark.parametrize("size", [0, 1, 59, 60, 61, 255, 256, 257, 65_536, 65_537])
def test_the_elements_of_snappy_are_counted_right(size: int) -> None:
    for plain in (NOISE[:size], TEXT[:size], bytes(size), (NOISE[:50] + bytes(90)) * (size // 99)):
        assert snappy_size(bytes(cramjam.snappy.compress_raw(plain))) == len(plain)


_CHILD = """
import pathlib, sys
from kohort.errors import DecompressionBudgetError
from kohort.records import Scratch, decompress_into
data = sys.stdin.buffer.read()
scratch = Scratch()
# ru_maxrss would begin with the size of the process that started this one.
def peak():
    return int(pathlib.Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0])
before = peak()
for budget in map(int, sys.argv[2:]):
    try:
        decompress_into(int(sys.argv[1]), data, scratch, budget)
    except DecompressionBudgetError:
        print(peak() - before)
"""


@pytest.mark.cases(6)  # each is a process with 100 MB and more
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has /proc")
@pytest.mark.parametrize("name", BOMBS)
def test_bomb_takes_little_more_memory_than_the_budget(name: str) -> None:
    budgets = [MB, 16 * MB, 64 * MB]
    codec, packed = BOMBS[name]()
    assert len(packed) < 6 * MB
    child = subprocess.run(
        [sys.executable, "-c", _CHILD, str(int(codec)), *map(str, budgets)],
        input=packed,
        capture_output=True,
        check=True,
    )
    small, middle, large = (int(line) * 1024 for line in child.stdout.split())
    # A second buffer of half that size would be over this.
    assert small < 1 * MB + 8 * MB
    assert middle < 16 * MB + 16 * MB
    assert large < 64 * MB + 32 * MB
