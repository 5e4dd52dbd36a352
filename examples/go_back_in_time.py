"""Read what was written since a given time, without a group."""

from __future__ import annotations

from kohort import KafkaConsumer, TopicPartition
from kohort.testing import Cluster, ProducerRecord

NOON = 1_700_000_000_000


def main(bootstrap_servers: str, since: int) -> None:
    with KafkaConsumer(bootstrap_servers=bootstrap_servers) as consumer:
        partitions = [
            TopicPartition("clicks", n) for n in sorted(consumer.partitions_for_topic("clicks"))
        ]
        consumer.assign(partitions)
        found = consumer.offsets_for_times(dict.fromkeys(partitions, since))
        for tp, at in found.items():
            if at is None:
                consumer.seek_to_end(tp)
            else:
                consumer.seek(tp, at.offset)
        ends = consumer.end_offsets(partitions)
        while any((consumer.position(tp) or 0) < end for tp, end in ends.items()):
            for records in consumer.poll(timeout_ms=1000).values():
                for record in records:
                    print(record.timestamp - since, "ms later:", record.value)


if __name__ == "__main__":
    with Cluster(topics={"clicks": 2}) as cluster:
        for n in range(10):
            minute = NOON + n * 60_000
            record = ProducerRecord(f"click {n}", timestamp=minute, partition=n % 2)
            cluster.produce("clicks", [record])
        main(cluster.bootstrap_servers, since=NOON + 7 * 60_000)
