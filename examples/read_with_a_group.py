"""Read a topic as a member of a group, and commit what was processed."""

from __future__ import annotations

from kohort import KafkaConsumer
from kohort.testing import Cluster


def main(bootstrap_servers: str) -> None:
    with KafkaConsumer(
        "orders",
        bootstrap_servers=bootstrap_servers,
        group_id="billing",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    ) as consumer:
        read = 0
        while read < 30:
            for tp, records in consumer.poll(timeout_ms=1000).items():
                for record in records:
                    assert record.value is not None
                read += len(records)
                print(f"{tp.topic}-{tp.partition}: {len(records)} records")
            consumer.commit()


if __name__ == "__main__":
    with Cluster(topics={"orders": 3}) as cluster:
        cluster.produce("orders", [(f"customer {n % 7}", f"order {n}") for n in range(30)])
        main(cluster.bootstrap_servers)
