"""Transactional producer on the raw protocol. The test controls every number."""

from __future__ import annotations

from typing import Protocol, TypeVar

from kohort.protocol import ZERO_UUID, Request, Response
from kohort.protocol.messages import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ProduceRequest,
    ProduceResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)
from kohort.records import NewRecord, encode_batch

R = TypeVar("R", bound=Response)
Place = tuple[str, int]
"""Topic and partition."""

TIMESTAMP = 1_700_000_000_000
"""Timestamp of every record in ms."""


class Asker(Protocol):
    """Function that sends a request in a version and waits for its response."""

    def ask(self, request: Request[R], version: int, /) -> R: ...


class Transactor:
    """Transactional producer. With ``old`` it works as before transaction version 2 (KIP-890).

    It takes id and epoch from responses. Both may be set to wrong values.
    """

    def __init__(self, asker: Asker, name: str, *, old: bool = False) -> None:
        self.asker, self.name, self.old = asker, name, old
        self.producer_id = self.epoch = -1
        self.sequences: dict[Place, int] = {}

    def init(
        self, *, keep: bool = False, timeout_ms: int = 60_000, version: int = 5
    ) -> InitProducerIdResponse:
        """Request an id and epoch. ``keep`` sends the current ones."""
        request = InitProducerIdRequest(
            transactional_id=self.name, transaction_timeout_ms=timeout_ms
        )
        if keep:
            request.producer_id, request.producer_epoch = self.producer_id, self.epoch
        response = self.asker.ask(request, version)
        if response.error_code == 0:
            self._go_on(response.producer_id, response.producer_epoch)
        return response

    def _go_on(self, producer_id: int, epoch: int) -> None:
        if (producer_id, epoch) != (self.producer_id, self.epoch):
            self.sequences = {}
        self.producer_id, self.epoch = producer_id, epoch

    def add(self, *places: Place, version: int = 3) -> AddPartitionsToTxnResponse:
        """Add partitions as producers do, with version 3 or less."""
        return self.asker.ask(
            AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self.name,
                v3_and_below_producer_id=self.producer_id,
                v3_and_below_producer_epoch=self.epoch,
                v3_and_below_topics=_topics(places),
            ),
            version,
        )

    def added_by_broker(
        self, *places: Place, only: bool, version: int = 5
    ) -> AddPartitionsToTxnResponse:
        """Add partitions as brokers do, with version 4 and up. ``only`` verifies that they were
        added.
        """
        asked = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction(
            transactional_id=self.name,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            verify_only=only,
            topics=_topics(places),
        )
        return self.asker.ask(AddPartitionsToTxnRequest(transactions=[asked]), version)

    def write(
        self,
        topic: str,
        *values: bytes,
        partition: int = 0,
        sequence: int | None = None,
        version: int | None = None,
        transactional: bool = True,
        named: bool = True,
        key: bytes | None = None,
    ) -> ProduceResponse:
        """Produce in the transaction. ``named`` is the transactional id in the request."""
        place = topic, partition
        first = self.sequences.get(place, 0) if sequence is None else sequence
        batch = encode_batch(
            [NewRecord(TIMESTAMP, key, value) for value in values],
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=first,
            transactional=transactional,
        )
        data = ProduceRequest.PartitionProduceData(index=partition, records=batch)
        request = ProduceRequest(
            transactional_id=self.name if named else None,
            acks=-1,
            timeout_ms=10_000,
            topic_data=[ProduceRequest.TopicProduceData(name=topic, partition_data=[data])],
        )
        response = self.asker.ask(request, _either(version, 11 if self.old else 12))
        if response.responses[0].partition_responses[0].error_code == 0:
            self.sequences[place] = first + len(values)
        return response

    def begin(self, topic: str, *values: bytes, partition: int = 0) -> None:
        """Open the transaction, or continue it, by writing a batch."""
        if self.old:
            added = self.add((topic, partition)).results_by_topic_v3_and_below[0]
            assert added.results_by_partition[0].partition_error_code == 0, added
        answer = self.write(topic, *values, partition=partition)
        assert answer.responses[0].partition_responses[0].error_code == 0, answer

    def end(self, *, committed: bool, version: int | None = None) -> EndTxnResponse:
        request = EndTxnRequest(
            transactional_id=self.name,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=committed,
        )
        chosen = _either(version, 4 if self.old else 5)
        response = self.asker.ask(request, chosen)
        if chosen >= 5 and response.error_code == 0:
            self._go_on(response.producer_id, response.producer_epoch)
        return response

    def add_offsets(self, group: str, version: int = 4) -> AddOffsetsToTxnResponse:
        return self.asker.ask(
            AddOffsetsToTxnRequest(
                transactional_id=self.name,
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                group_id=group,
            ),
            version,
        )

    def commit_offset(
        self,
        group: str,
        topic: str,
        offset: int,
        *,
        version: int | None = None,
        topic_id: bytes = ZERO_UUID,
        **other: object,
    ) -> TxnOffsetCommitResponse:
        """Commit for partition 0. Version 6 needs the topic's id.

        ``other`` has further fields, such as generation and member.
        """
        cls = TxnOffsetCommitRequest
        partition = cls.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
        request = cls(
            transactional_id=self.name,
            group_id=group,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            topics=[
                cls.TxnOffsetCommitRequestTopic(
                    name=topic, topic_id=topic_id, partitions=[partition]
                )
            ],
        )
        for name, value in other.items():
            setattr(request, name, value)
        return self.asker.ask(request, _either(version, 4 if self.old else 5))


def _either(version: int | None, default: int) -> int:
    return default if version is None else version


def _topics(places: tuple[Place, ...]) -> list[AddPartitionsToTxnRequest.AddPartitionsToTxnTopic]:
    topics: dict[str, list[int]] = {}
    for topic, partition in places:
        topics.setdefault(topic, []).append(partition)
    return [
        AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=topic, partitions=partitions)
        for topic, partitions in topics.items()
    ]
