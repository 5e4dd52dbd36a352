"""Log compaction: batches that keep only the latest record of each key.

It follows Kafka's cleaner:

- A batch keeps its offsets. So there are gaps in it, also at its end.
- Tombstones get a time (the delete horizon, KIP-534) after which they are removed.
- Records of an aborted transaction are removed immediately. A marker is removed when all records
  of its transaction are removed and its delete horizon has passed.
- An empty batch stays if it is a producer's last one, because it has the sequence. The last batch
  that was cleaned stays too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from kohort.records import (
    BatchHeader,
    Compression,
    ControlType,
    NewRecord,
    Record,
    RecordBatch,
    control_type,
    encode_batch,
)
from kohort.types import NamedTuple


class AbortedTransaction(NamedTuple):
    """An aborted transaction; ``last_offset`` is the offset of its marker."""

    producer_id: int
    first_offset: int
    last_offset: int


class LastWritten(NamedTuple):
    """The last batch of a producer; the offset is -1 if that was a marker."""

    last_offset: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Compaction:
    """One round of compaction.

    ``aborted`` are the aborted transactions of the log. ``producers`` are keyed by producer id.
    """

    now_ms: int
    delete_retention_ms: int
    aborted: Sequence[AbortedTransaction]
    producers: Mapping[int, LastWritten]

    def run(self, batches: Sequence[RecordBatch]) -> tuple[list[bytes], list[AbortedTransaction]]:
        """Return the cleaned batches, and the aborted transactions that still have records."""
        latest = self._latest_offsets(batches)
        end = batches[-1].header.next_offset if batches else 0
        transactions = _Transactions(self.aborted)
        cleaned = []
        for batch in batches:
            discarded = transactions.discards(batch)
            data = self._cleaned(batch, latest, discarded, end)
            if data is not None:
                cleaned.append(data)
        return cleaned, transactions.kept_transactions

    def _latest_offsets(self, batches: Sequence[RecordBatch]) -> dict[bytes, int]:
        transactions = _Transactions(self.aborted)
        return {
            record.key: record.offset
            for batch in batches
            if not transactions.discards(batch) and not batch.header.is_control
            for record in batch.records()
            if record.key is not None
        }

    def _cleaned(
        self, batch: RecordBatch, latest: Mapping[bytes, int], discarded: bool, end: int
    ) -> bytes | None:
        header = batch.header
        horizon = header.base_timestamp if header.has_delete_horizon else None
        expired = horizon is not None and horizon <= self.now_ms
        emptied = discarded and header.is_control
        if discarded and (expired or not header.is_control):
            kept: list[Record] = []
        else:
            kept = list(self._kept(batch, latest, expired))
        if not kept:
            return _rewritten(header, (), None) if self._is_needed(header, end) else None
        expires = emptied or any(record.value is None for record in kept)
        if expires and horizon is None:
            return _rewritten(header, kept, self.now_ms + self.delete_retention_ms)
        if len(kept) == header.count:
            return bytes(batch.raw)
        return _rewritten(header, kept, horizon)

    @staticmethod
    def _kept(batch: RecordBatch, latest: Mapping[bytes, int], expired: bool) -> Iterator[Record]:
        for record in batch.records():
            if batch.header.is_control:
                yield record
            elif record.key is not None and record.offset >= latest.get(record.key, -1):
                if record.value is not None or not expired:
                    yield record

    def _is_needed(self, header: BatchHeader, end: int) -> bool:
        """True if the batch must stay even without records."""
        if header.next_offset == end:
            return True
        last = self.producers.get(header.producer_id)
        if last is None:
            return False
        if last.last_offset >= 0:
            return header.last_offset == last.last_offset
        return header.is_control and header.producer_epoch == last.epoch


class _Transactions:
    """Iteration over a log that finds the records of aborted transactions.

    ``kept_transactions``: aborted transactions of which the log still had records. Readers must
    know them.
    """

    def __init__(self, aborted: Sequence[AbortedTransaction]) -> None:
        self.kept_transactions: list[AbortedTransaction] = []
        self._waiting = sorted(aborted, key=lambda aborted: aborted.first_offset, reverse=True)
        self._aborted: dict[int, AbortedTransaction] = {}
        self._seen: set[int] = set()
        """Producers with a record of their open transaction in the log."""

    def discards(self, batch: RecordBatch) -> bool:
        """True if no reader needs the batch, which must be the next one of the log."""
        header = batch.header
        producer_id = header.producer_id
        while self._waiting and self._waiting[-1].first_offset <= header.last_offset:
            begun = self._waiting.pop()
            self._aborted[begun.producer_id] = begun
        if header.is_control:
            return self._discards_marker(batch)
        if not header.is_transactional:
            return False
        self._seen.add(producer_id)
        return producer_id in self._aborted

    def _discards_marker(self, batch: RecordBatch) -> bool:
        records = batch.records()
        if not records:
            return True
        producer_id = batch.header.producer_id
        seen = producer_id in self._seen
        self._seen.discard(producer_id)
        if control_type(records[0].key) == ControlType.ABORT:
            aborted = self._aborted.pop(producer_id, None)
            if aborted is not None and seen:
                self.kept_transactions.append(aborted)
        return not seen


def _rewritten(header: BatchHeader, records: Sequence[Record], horizon: int | None) -> bytes:
    return encode_batch(
        [NewRecord(r.timestamp, r.key, r.value, r.headers) for r in records],
        base_offset=header.base_offset,
        compression=header.compression if records else Compression.NONE,
        timestamp_type=header.timestamp_type,
        leader_epoch=header.partition_leader_epoch,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        transactional=header.is_transactional,
        control=header.is_control,
        max_timestamp=None if records else header.max_timestamp,
        delete_horizon_ms=horizon,
        offset_deltas=[record.offset - header.base_offset for record in records],
        last_offset_delta=header.last_offset_delta,
    )
