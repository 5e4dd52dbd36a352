"""Message codec of kohort compared with kafka-python's: both decode and encode the same bytes.

    python -m benchmarks.codec [--rounds 9]

The two take turns within each round, so that load on the machine affects both. The best round
counts. A ratio under 1 means that kohort takes less time.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from kafka.protocol import consumer, metadata, producer

from kohort.protocol import Message, decode, encode
from kohort.protocol.messages import (
    FetchResponse,
    JoinGroupRequest,
    MetadataResponse,
    ProduceRequest,
)

SLICE_S = 0.03
"""Seconds of one side's turn within a round."""


class Case(NamedTuple):
    """Message of kohort, the version to use, and kafka-python's class of the same message."""

    name: str
    message: Message
    version: int
    theirs: Any


def cases() -> list[Case]:
    """Return the cases: many small fields, a small request, large records in both directions."""
    answer = MetadataResponse(
        brokers=[
            MetadataResponse.MetadataResponseBroker(node_id=node, host=f"host-{node}", port=9092)
            for node in range(3)
        ],
        cluster_id="cluster",
        topics=[
            MetadataResponse.MetadataResponseTopic(
                name=f"topic-{topic}",
                partitions=[
                    MetadataResponse.MetadataResponsePartition(
                        partition_index=partition,
                        leader_id=1,
                        leader_epoch=0,
                        replica_nodes=[0, 1, 2],
                        isr_nodes=[0, 1, 2],
                    )
                    for partition in range(6)
                ],
            )
            for topic in range(100)
        ],
    )
    join = JoinGroupRequest(
        group_id="group",
        session_timeout_ms=45_000,
        rebalance_timeout_ms=300_000,
        member_id="client-" + "x" * 36,
        protocol_type="consumer",
        protocols=[
            JoinGroupRequest.JoinGroupRequestProtocol(name=name, metadata=b"m" * 50)
            for name in ("range", "roundrobin")
        ],
    )
    fetched = FetchResponse.FetchableTopicResponse(
        topic="topic",
        partitions=[
            FetchResponse.PartitionData(
                partition_index=partition, high_watermark=5, records=b"r" * 100_000
            )
            for partition in range(10)
        ],
    )
    produced = ProduceRequest.TopicProduceData(
        name="topic",
        partition_data=[
            ProduceRequest.PartitionProduceData(index=partition, records=b"r" * 16_384)
            for partition in range(4)
        ],
    )
    return [
        Case("Metadata response v12, 100 topics x 6", answer, 12, metadata.MetadataResponse),
        Case("JoinGroup request v7", join, 7, consumer.JoinGroupRequest),
        Case(
            "Fetch response v12, 10 x 100 kB",
            FetchResponse(responses=[fetched]),
            12,
            consumer.FetchResponse,
        ),
        Case(
            "Produce request v9, 4 x 16 kB",
            ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[produced]),
            9,
            producer.ProduceRequest,
        ),
    ]


def interleaved(calls: Sequence[Callable[[], object]], rounds: int) -> list[float]:
    """Return the microseconds of each call: the best of ``rounds`` turns."""
    best = [float("inf")] * len(calls)
    for _ in range(rounds):
        for number, call in enumerate(calls):
            done, start = 0, time.perf_counter()
            while (spent := time.perf_counter() - start) < SLICE_S:
                call()
                done += 1
            best[number] = min(best[number], spent / done * 1e6)
    return best


def compare(case: Case, rounds: int) -> None:
    """Print the lines of one message."""
    data = encode(case.message, case.version)
    theirs = case.theirs.decode(data, version=case.version)
    theirs._header = None  # a decoded message cannot be encoded otherwise
    if bytes(theirs.encode(version=case.version)) != data:
        raise SystemExit(f"{case.name}: the two do not write the same bytes")
    decoders = [
        partial(decode, type(case.message), case.version, data),
        partial(case.theirs.decode, data, version=case.version),
    ]
    encoders = [
        partial(encode, case.message, case.version),
        partial(theirs.encode, version=case.version),
    ]
    for what, calls in (("decode", decoders), ("encode", encoders)):
        mine, other = interleaved(calls, rounds)
        print(f"{case.name:38}{len(data):9}{what:>9}{mine:11.1f}{other:17.1f}{mine / other:7.2f}")


def main() -> None:
    """Print one line for each message and direction."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    rounds = parser.parse_args().rounds
    print(f"{'message':38}{'bytes':>9}{'':9}{'kohort us':>11}{'kafka-python us':>17}{'ratio':>7}")
    for case in cases():
        compare(case, rounds)


if __name__ == "__main__":
    main()
