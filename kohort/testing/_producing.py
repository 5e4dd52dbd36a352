"""Records for a topic from simple Python values, partitioned like those of Kafka's producer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from kohort.records import Compression, ConsumerRecord, NewRecord, encode_batch, key_partition
from kohort.types import NamedTuple

Text: TypeAlias = bytes | str | None

_BATCH_BYTES = 256 * 1024
"""Bytes after which a batch ends, far below the limit of a topic."""


@dataclass(frozen=True, slots=True)
class ProducerRecord:
    """A record to produce.

    Without a partition the key decides. Without a timestamp the record has the present time.
    """

    value: Text
    key: Text = None
    headers: Sequence[tuple[str, bytes | None]] = ()
    timestamp: int | None = None
    partition: int | None = None


Produceable: TypeAlias = Text | tuple[Text, Text] | ProducerRecord | ConsumerRecord[bytes, bytes]


class Produced(NamedTuple):
    """Partition and offset of a produced record."""

    partition: int
    offset: int


class Batch(NamedTuple):
    """An encoded batch. ``indexes`` are the positions of its records among those given."""

    partition: int
    data: bytes
    indexes: list[int]


def as_record(item: Produceable, key: Text, partition: int | None) -> ProducerRecord:
    """Return a value, a pair or a record as a record.

    ``key`` and ``partition`` apply if the item has none.
    """
    if isinstance(item, ProducerRecord):
        if item.partition is not None or partition is None:
            return item
        return replace(item, partition=partition)
    if isinstance(item, ConsumerRecord):
        return ProducerRecord(item.value, item.key, item.headers, item.timestamp, partition)
    match item:
        case None | str() | bytes():
            return ProducerRecord(item, key, partition=partition)
        case tuple((None | str() | bytes() as own_key, None | str() | bytes() as value)):
            return ProducerRecord(value, own_key, partition=partition)
    raise TypeError(
        f"cannot produce {item!r}. To produce, give a value, a (key, value) pair or a "
        "ProducerRecord. Keys and values are str, bytes or None"
    )


def make_batches(
    records: Iterable[ProducerRecord],
    partitions: int,
    now_ms: int,
    round_robin: Iterator[int],
    compression: Compression,
) -> Iterator[Batch]:
    """Return the records as batches.

    ``round_robin`` returns numbers for records without key and partition.
    """
    open_batches: dict[int, tuple[list[NewRecord], list[int], int]] = {}
    for index, record in enumerate(records):
        key, value = _bytes(record.key), _bytes(record.value)
        partition = record.partition
        if partition is None:
            partition = (
                next(round_robin) % partitions if key is None else key_partition(key, partitions)
            )
        timestamp = now_ms if record.timestamp is None else record.timestamp
        entry = NewRecord(timestamp, key, value, record.headers)
        entries, indexes, size = open_batches.get(partition, ([], [], 0))
        entries.append(entry)
        indexes.append(index)
        size += len(key or b"") + len(value or b"") + 16
        if size < _BATCH_BYTES:
            open_batches[partition] = entries, indexes, size
            continue
        open_batches.pop(partition, None)
        yield Batch(partition, encode_batch(entries, compression=compression), indexes)
    for partition, (entries, indexes, _) in open_batches.items():
        yield Batch(partition, encode_batch(entries, compression=compression), indexes)


def _bytes(text: Text) -> bytes | None:
    return text.encode() if isinstance(text, str) else text
