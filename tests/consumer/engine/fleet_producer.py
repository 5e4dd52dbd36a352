"""A producer of the fleet: ``python fleet_producer.py SERVERS TOPIC FIRST PARTITIONS STEP RATE``.

It produces to each STEP-th partition, beginning with FIRST, until its standard input ends. The
value of a record is its offset.
"""

from __future__ import annotations

import select
import sys
from collections import Counter

from confluent_kafka import Producer

TURNS = 10
"""Bursts in a second."""


def main(servers: str, topic: str, first: int, partitions: int, step: int, rate: int) -> None:
    """Produce ``rate`` records a second as soon as the cluster accepts them."""
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "enable.idempotence": "true",
            "linger.ms": "50",
            "log_level": "0",
        }
    )
    counts: Counter[int] = Counter()
    number = 0
    while not select.select([sys.stdin], [], [], 1 / TURNS)[0]:
        for _ in range(rate // TURNS):
            partition = first + number * step % (partitions // step * step)
            producer.produce(topic, b"%d" % counts[partition], partition=partition)
            counts[partition] += 1
            number += 1
        producer.poll(0)
    assert producer.flush(60) == 0


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:]))
