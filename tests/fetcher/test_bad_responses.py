"""Fetch responses that decode and make no sense: they break, spin or skip nothing."""

from __future__ import annotations

import logging
import random
from typing import Any

import anyio
import pytest

from kohort.errors import ErrorCode, KafkaError
from kohort.protocol.messages import FetchRequest, FetchResponse
from kohort.transport import PartitionMetadata, TopicMetadata
from kohort.types import TopicPartition
from tests.fetcher.fake import FakeCluster, consuming
from tests.fetcher.making import T0, T1, batch, owning

NUMBERS = (-1 << 31, -2, -1, 0, 1, 2, 3, 7, (1 << 31) - 1)
CODES = (0, 0, 0, *(int(code) for code in ErrorCode), 9999, -7)
IDS = (b"t" * 16, bytes(16), b"x" * 16)


class Stranger:
    """A script of invented responses, in which some partitions are valid."""

    def __init__(self, cluster: FakeCluster, seed: int) -> None:
        self.cluster = cluster
        self.rng = random.Random(seed)
        self.answers = 0

    def __call__(self, node: int, request: Any) -> FetchResponse | None:
        if not isinstance(request, FetchRequest):
            return None
        self.answers += 1
        self.cluster.scripts.append(self)
        rng = self.rng
        if rng.random() < 0.2:
            return None
        usual, _ = self.cluster.answer(node, request)
        topics = [topic for topic in usual.responses if rng.random() < 0.5]
        for _ in range(rng.randrange(3)):
            topics.append(
                FetchResponse.FetchableTopicResponse(
                    topic=rng.choice(["t", "", "other"]),
                    topic_id=rng.choice(IDS),
                    partitions=[self.partition() for _ in range(rng.randrange(3))],
                )
            )
        return FetchResponse(
            throttle_time_ms=rng.choice((0, 0, 0, 5)),
            error_code=rng.choice(CODES) if rng.random() < 0.2 else 0,
            session_id=rng.choice(NUMBERS),
            responses=topics,
            node_endpoints=[
                FetchResponse.NodeEndpoint(
                    node_id=rng.choice(NUMBERS),
                    host=rng.choice(["", "b1", "\n"]),
                    port=rng.choice((-1, 0, 9092, 1 << 16)),
                )
                for _ in range(rng.randrange(3))
            ],
        )

    def partition(self) -> FetchResponse.PartitionData:
        rng = self.rng

        def number(usual: int) -> int:
            return rng.choice(NUMBERS) if rng.random() < 0.3 else usual

        return FetchResponse.PartitionData(
            partition_index=rng.choice((0, 1, 1, *NUMBERS)),
            error_code=rng.choice(CODES) if rng.random() < 0.4 else 0,
            high_watermark=number(4),
            last_stable_offset=number(4),
            log_start_offset=number(0),
            diverging_epoch=FetchResponse.EpochEndOffset(epoch=number(-1), end_offset=number(-1)),
            current_leader=FetchResponse.LeaderIdAndEpoch(
                leader_id=number(-1), leader_epoch=number(-1)
            ),
            preferred_read_replica=number(-1),
            records=rng.choice((None, b"", b"", batch(0, 2))),
        )


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["trio"], indirect=True)
@pytest.mark.parametrize("seed", range(12))
async def test_the_consumer_survives_them_and_reads_on(
    seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = FakeCluster()
    for tp in (T0, T1):
        cluster.add(tp).append(4, batch(0, 2), batch(2, 2))
    partition = PartitionMetadata(1, 5, replicas=(1, 2, 3))
    cluster.topics["t"] = TopicMetadata(
        "t", topic_id=IDS[seed % 2], partitions={0: partition, 1: partition}
    )
    stranger = Stranger(cluster, seed)
    cluster.scripts.append(stranger)
    async with consuming(cluster, owning(T0, T1), rack="r" if seed % 3 else None) as consumer:

        async def poll(timeout: float) -> dict[TopicPartition, list[int]]:
            try:
                return await consumer.poll(timeout=timeout)
            except KafkaError:
                return {}

        for tp in [T0, T1] * 10:
            for _ in range(5):
                for each, offsets in (await poll(0.2)).items():
                    assert offsets == list(range(offsets[0], offsets[-1] + 1)), each
            consumer.seek(tp, 0)
        assert stranger.answers < 20 * 5 * 0.2 / 0.002, "the fetcher spins"
        cluster.scripts.clear()
        # A broker that such a response named as the leader does not lead.
        for tp in (T0, T1):
            leader = cluster.leaders[tp]
            cluster.leaders[tp] = leader._replace(node=1, epoch=leader.epoch + 1)
        for tp in (T0, T1):
            consumer.seek(tp, 0)
        read: dict[TopicPartition, list[int]] = {T0: [], T1: []}
        with anyio.fail_after(60):
            while any(len(offsets) < 4 for offsets in read.values()):
                for each, offsets in (await poll(1)).items():
                    read[each] += offsets
        assert read == {T0: [0, 1, 2, 3], T1: [0, 1, 2, 3]}
    bugs = [each for each in caplog.records if each.levelno >= logging.ERROR and each.exc_info]
    assert not bugs
