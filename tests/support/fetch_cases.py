"""Fetch responses with an error, either in the frame or in the batches that it contains."""

from __future__ import annotations

import random
import struct
from typing import NamedTuple

from kohort.fetcher.requests._request import PartitionRequest
from kohort.protocol import encode_response
from kohort.protocol.messages import FetchResponse
from kohort.types import TopicPartition
from tests.support.batch_mutation import seeds, spoilt
from tests.support.mutation import mutate

TOPIC, TOPIC_ID = "t", bytes(range(16))
VERSIONS = FetchResponse.versions
PARTITIONS = (0, 1)
_ODD = (-1, 0, 1, 5, 1 << 31, (1 << 63) - 1, -(1 << 63))


class Case(NamedTuple):
    """One response: a frame without its length, and the requests it responds to."""

    version: int
    frame: bytes
    offset: int

    @property
    def requests(self) -> dict[TopicPartition, PartitionRequest]:
        """Requests of partitions 0 and 1 of one topic."""
        return {
            tp: PartitionRequest(tp, 1, self.offset, 3, 1 << 20, TOPIC_ID)
            for tp in (TopicPartition(TOPIC, index) for index in PARTITIONS)
        }


def case_of(seed: int, number: int) -> Case:
    """Return the case of this number. It is always the same."""
    rng = random.Random(f"{seed} {number}")
    version = rng.randint(VERSIONS.first, VERSIONS.last)
    response = FetchResponse(
        session_id=rng.choice((0, 7)) if version >= 7 else 0,
        responses=[
            FetchResponse.FetchableTopicResponse(
                topic=TOPIC,
                topic_id=TOPIC_ID,
                partitions=[
                    _partition(index, rng) for index in PARTITIONS[: rng.choice((1, 1, 2))]
                ],
            )
        ],
    )
    frame = b"".join(encode_response(response, version, 1))[4:]
    if rng.random() < 0.2:
        frame = mutate(frame, rng, 4)
    return Case(version, frame, rng.choice((0, 0, 0, 1, 3, 50)))


def _partition(index: int, rng: random.Random) -> FetchResponse.PartitionData:
    data = FetchResponse.PartitionData(
        partition_index=index,
        high_watermark=1000,
        last_stable_offset=1000,
        log_start_offset=0,
        records=_records(rng),
    )
    if rng.random() < 0.3:
        data.aborted_transactions = [
            FetchResponse.AbortedTransaction(producer_id=7, first_offset=rng.choice((0, 3, *_ODD)))
            for _ in range(rng.randrange(3))
        ]
    if rng.random() < 0.03:
        data.error_code = rng.choice((1, 3, 6, 74, 75, 100, 999, -1))
    if rng.random() < 0.02:
        data.high_watermark = rng.choice(_ODD)
    return data


def _records(rng: random.Random) -> bytes:
    """Return one to four batches in a row. At least one of them has an error."""
    count = rng.choice((1, 1, 2, 4))
    bad = rng.randrange(count)
    parts: list[bytes] = []
    offset = 0
    for number in range(count):
        seed = rng.choice(seeds())
        part = spoilt(seed, rng) if number == bad or rng.random() < 0.2 else seed.data
        if seed.magic == 2 and len(part) >= 8 and (number != bad or rng.random() < 0.9):
            part = struct.pack(">q", offset) + part[8:]
        parts.append(part)
        offset += seed.offsets
    data = b"".join(parts)
    return data[: rng.randrange(len(data) + 1)] if rng.random() < 0.05 else data
