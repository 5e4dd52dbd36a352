"""A transactional producer in the event loop of a test."""

from __future__ import annotations

from typing import Any

from kohort import AsyncKafkaAdminClient, AsyncKafkaConsumer
from kohort.protocol.messages import (
    EndTxnRequest,
    FindCoordinatorRequest,
    InitProducerIdRequest,
    ProduceRequest,
)
from kohort.records import NewRecord, encode_batch


class AsyncProducer:
    """A transactional producer of "t" that sends over the connections of a consumer or admin."""

    def __init__(
        self, client: AsyncKafkaConsumer[Any, Any] | AsyncKafkaAdminClient, name: str
    ) -> None:
        self._request = client._driver.engine.cluster.request
        self._name = name
        self.id = self.epoch = -1
        self._sequences: dict[int, int] = {}

    async def init(self) -> None:
        await self._request(FindCoordinatorRequest(key_type=1, coordinator_keys=[self._name]))
        request = InitProducerIdRequest(transactional_id=self._name, transaction_timeout_ms=900_000)
        got = await self._request(request)
        assert got.error_code == 0
        self.id, self.epoch = got.producer_id, got.producer_epoch

    async def write(self, *values: bytes, at_ms: int, partition: int = 0) -> None:
        """Write a batch, which opens the transaction."""
        batch = encode_batch(
            [NewRecord(at_ms, None, value) for value in values],
            producer_id=self.id,
            producer_epoch=self.epoch,
            base_sequence=self._sequences.get(partition, 0),
            transactional=True,
        )
        data = ProduceRequest.PartitionProduceData(index=partition, records=batch)
        topic = ProduceRequest.TopicProduceData(name="t", partition_data=[data])
        got = await self._request(
            ProduceRequest(
                transactional_id=self._name, acks=-1, timeout_ms=10_000, topic_data=[topic]
            ),
            max_version=12,
        )
        assert got.responses[0].partition_responses[0].error_code == 0, got
        self._sequences[partition] = self._sequences.get(partition, 0) + len(values)

    async def commit(self) -> None:
        await self.end(committed=True)

    async def end(self, *, committed: bool) -> None:
        """Commit or abort the transaction."""
        request = EndTxnRequest(
            transactional_id=self._name,
            producer_id=self.id,
            producer_epoch=self.epoch,
            committed=committed,
        )
        got = await self._request(request)
        assert got.error_code == 0
        if got.producer_epoch >= 0:  # each transaction has its own epoch (KIP-890)
            self.id, self.epoch = got.producer_id, got.producer_epoch
            self._sequences.clear()
