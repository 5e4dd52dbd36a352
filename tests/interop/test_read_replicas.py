"""Clients that read from a follower in their rack (KIP-392)."""

from __future__ import annotations

import time

from confluent_kafka import Consumer

from kohort.testing import Cluster

RACKS = ["a", "b", "c"]


def test_a_client_in_a_rack_reads_all_of_it_from_the_follower() -> None:
    with Cluster(brokers=3, racks=RACKS, topics={"t": 1}) as cluster:
        cluster.produce("t", [str(number) for number in range(100)])
        consumer = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "group.id": "g",
                "client.rack": "b",
                "auto.offset.reset": "earliest",
            }
        )
        consumer.subscribe(["t"])
        seen: list[bytes | None] = []
        deadline = time.monotonic() + 120
        try:
            while len(seen) < 100 and time.monotonic() < deadline:
                seen += [m.value() for m in consumer.consume(100, 1.0) if m.error() is None]
        finally:
            consumer.close()
        assert seen == [str(number).encode() for number in range(100)]
        fetches = {request.node_id for request in cluster.requests if request.api == "Fetch"}
        assert 2 in fetches
