"""Decoding of record batches, compared with kafka-python's and aiokafka's decoders.

    python -m benchmarks.decode

For each shape of record, the decoders take turns at the same batches. They check CRCs and read key,
value, offset and timestamp of each record. CPU time counts, in the best round, because any
disturbance only makes a round slower.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

from aiokafka.record.memory_records import MemoryRecords as AiokafkaRecords
from kafka.record import MemoryRecords as KafkaPythonRecords

from kohort.records import Compression, NewRecord, encode_batch, split_batches


@dataclass(frozen=True)
class Shape:
    """Records of one size in batches of one size."""

    name: str
    value_size: int
    per_batch: int
    compression: Compression = Compression.NONE
    batches: int = 8

    def data(self) -> bytes:
        """Return the batches, one after the other."""
        return b"".join(self._batch(number) for number in range(self.batches))

    def _batch(self, number: int) -> bytes:
        start = number * self.per_batch
        fill = (b'{"field": %d, "text": "what one writes into it"}' % number) * 30
        records = [
            NewRecord(1_700_000_000_000 + index // 4, b"key-%08d" % index, fill[: self.value_size])
            for index in range(start, start + self.per_batch)
        ]
        return encode_batch(records, base_offset=start, compression=self.compression)


SHAPES = (
    Shape("100 B", 100, 1500),
    Shape("250 B lz4", 250, 700, Compression.LZ4),
    Shape("250 B gzip", 250, 700, Compression.GZIP),
    Shape("1 KB", 1000, 180, batches=30),
    Shape("100 B, batches of 5", 100, 5, batches=1000),
)


def kohort(data: bytes) -> int:
    """Decode with kohort into ConsumerRecords."""
    total = 0
    for batch in split_batches(data):
        batch.check_crc()
        for record in batch.records(topic="t", partition=0):
            total += len(record.key or b"") + len(record.value or b"")
            total += record.offset + record.timestamp
    return total


def kafka_python(data: bytes) -> int:
    """Decode with kafka-python into the records below its ConsumerRecord."""
    total = 0
    batches = KafkaPythonRecords(data)
    while batches.has_next():
        batch = batches.next_batch()
        batch.validate_crc()
        for record in batch:
            total += len(record.key) + len(record.value) + record.offset + record.timestamp
    return total


def aiokafka(data: bytes) -> int:
    """Decode with compiled aiokafka into the records below its ConsumerRecord."""
    total = 0
    batches = AiokafkaRecords(data)
    while batches.has_next():
        batch = batches.next_batch()
        batch.validate_crc()
        for record in batch:
            total += len(record.key) + len(record.value) + record.offset + record.timestamp
    return total


DECODERS: tuple[Callable[[bytes], int], ...] = (kohort, kafka_python, aiokafka)


def measure(shape: Shape, rounds: int) -> dict[str, list[float]]:
    """Return thousand records a second by decoder, one number a round."""
    data = shape.data()
    count = shape.per_batch * shape.batches
    if len({decode(data) for decode in DECODERS}) != 1:
        raise SystemExit(f"{shape.name}: the decoders do not agree")
    rates: dict[str, list[float]] = {decode.__name__: [] for decode in DECODERS}
    for _ in range(rounds):
        for decode in DECODERS:
            gc.collect()
            started = time.process_time()
            decode(data)
            rates[decode.__name__].append(count / (time.process_time() - started) / 1000)
    return rates


def main() -> None:
    """Print a table of thousand records a second, with best, median and ratios of the best."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    rounds: int = parser.parse_args().rounds
    names = [decode.__name__ for decode in DECODERS]
    print(
        f"{'k records/s: best (median)':26}", *(f"{name:>16}" for name in names), "  kohort / each"
    )
    for shape in SHAPES:
        rates = measure(shape, rounds)
        best = {name: max(rates[name]) for name in names}
        cells = [f"{best[name]:7.0f} ({statistics.median(rates[name]):5.0f})" for name in names]
        ratios = "  ".join(f"{best[names[0]] / best[name]:.2f}" for name in names[1:])
        print(f"{shape.name:26}", *(f"{cell:>16}" for cell in cells), f"  {ratios}")


if __name__ == "__main__":
    main()
