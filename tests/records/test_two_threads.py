"""Tables whose batches two threads decompress: the same rows and errors as with one."""

from __future__ import annotations

import os
import random
import struct
import threading
import time
from typing import Any

import pytest
from crc32c import crc32c

from kohort.errors import CorruptBatchError, DecompressionBudgetError
from kohort.records import (
    Compression,
    NewRecord,
    RecordSet,
    TablePlan,
    _table,
    encode_batch,
    to_columns,
)
from kohort.records._codecs import has_second_processor
from kohort.records._zstd import decompressor_addresses
from tests.support.decoders import use_decoder

needs_libzstd = pytest.mark.skipif(
    not decompressor_addresses().decompress, reason="there is no libzstd"
)
PACKED = (Compression.LZ4, Compression.ZSTD)
MIXED = (*PACKED, *PACKED, *PACKED, Compression.NONE, Compression.GZIP, Compression.SNAPPY)
SEEDS = range(60)


@pytest.fixture(autouse=True)
def compiled(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    use_decoder("compiled", monkeypatch)
    return monkeypatch


def _use_threads(patch: pytest.MonkeyPatch, threads: int) -> None:
    patch.setattr(_table, "has_second_processor", lambda: threads == 2)
    patch.setattr(_table, "WORTH_A_THREAD", 0)


def _batches(rng: random.Random, codecs: tuple[Compression, ...], count: int) -> list[bytes]:
    made: list[bytes] = []
    offset = 0
    for _ in range(count):
        values = [rng.randbytes(9) * rng.randrange(40) for _ in range(rng.randrange(1, 60))]
        records = [NewRecord(number, b"key", value) for number, value in enumerate(values)]
        made.append(encode_batch(records, base_offset=offset, compression=rng.choice(codecs)))
        offset += len(records)
    return made


def _with_crc(batch: bytes) -> bytes:
    return batch[:17] + struct.pack(">I", crc32c(batch[21:])) + batch[21:]


def _damaged(rng: random.Random, batch: bytes) -> bytes:
    """The batch with another byte in its records, and in half of the cases with the right CRC."""
    changed = bytearray(batch)
    changed[rng.randrange(61, len(batch))] ^= 1 << rng.randrange(8)
    return _with_crc(bytes(changed)) if rng.random() < 0.5 else bytes(changed)


def _tables_of(data: bytes, start: int, plans: random.Random, budget: int) -> list[Any]:
    """Rows of all tables that the data becomes, and the error that ends it."""
    found = RecordSet(data, start, topic="t", partition=3, budget=budget)
    read: list[Any] = []
    while not found.done:
        plan = TablePlan(plans.choice((7, 300, 1 << 20)), plans.choice((4096, 1 << 30)))
        failed: list[Any] = []
        try:
            while not found.done and plan.has_room:
                found.measure(plan)
        except (CorruptBatchError, DecompressionBudgetError) as error:
            failed = [type(error), str(error), error.offset]
        for columns in to_columns(plan):
            read += [(row.offset, row.timestamp, row.key, row.value) for row in columns.records()]
        read.append(plan.rows)
        if failed:
            return [*read, failed]
    return read


@needs_libzstd
@pytest.mark.parametrize("seed", SEEDS)
def test_two_threads_give_the_rows_and_errors_of_one(
    seed: int, compiled: pytest.MonkeyPatch
) -> None:
    rng = random.Random(seed)
    batches = _batches(rng, MIXED if seed % 2 else PACKED, rng.randrange(2, 40))
    if seed % 3 == 0:
        place = rng.randrange(len(batches))
        batches[place] = _damaged(rng, batches[place])
    data = b"".join(batches)
    start = rng.choice((0, 0, rng.randrange(300)))
    budget = rng.choice((1 << 27, 1 << 27, 20_000))
    _use_threads(compiled, 1)
    expected = _tables_of(data, start, random.Random(seed), budget)
    _use_threads(compiled, 2)
    for _ in range(5):
        assert _tables_of(data, start, random.Random(seed), budget) == expected


@needs_libzstd
def test_the_second_thread_works(compiled: pytest.MonkeyPatch) -> None:
    data = b"".join(_batches(random.Random(1), (Compression.ZSTD,), 200))
    _use_threads(compiled, 2)
    others_s = 0.0
    while others_s < 0.001:  # nothing but the helper may add to it
        all_s, own_s = time.process_time(), time.thread_time()
        plan = TablePlan()
        found = RecordSet(data, 0, topic="t", partition=0)
        while not found.done:
            found.measure(plan)
        others_s += time.process_time() - all_s - (time.thread_time() - own_s)


@needs_libzstd
def test_several_tables_at_once_have_a_helper_each(compiled: pytest.MonkeyPatch) -> None:
    data = b"".join(_batches(random.Random(2), PACKED, 100))
    plans = random.Random(0)
    _use_threads(compiled, 1)
    expected = _tables_of(data, 0, plans, 1 << 27)
    _use_threads(compiled, 2)
    read: list[Any] = []

    def decode() -> None:
        for _ in range(20):
            read.append(_tables_of(data, 0, random.Random(0), 1 << 27) == expected)

    threads = [threading.Thread(target=decode) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert read == [True] * 80


@pytest.mark.parametrize(("processors", "several"), [({0}, False), ({0, 3}, True)])
def test_one_processor_means_one_thread(
    processors: set[int], several: bool, compiled: pytest.MonkeyPatch
) -> None:
    compiled.setattr(os, "sched_getaffinity", lambda _: processors, raising=False)
    assert has_second_processor.__wrapped__() is several
