"""The cluster for tests has types."""

from __future__ import annotations

from typing import Any, assert_type

from kohort import KafkaConsumer, OffsetAndMetadata, TopicPartition
from kohort.testing import Call, Cluster, GroupSnapshot


async def restart_session(call: Call) -> Any:
    response = await call.proceed()
    if response is not None and call.message.session_id:
        response.session_id = 0
    return response


with Cluster(brokers=3, topics={"orders": 6}) as cluster:
    cluster.on("Fetch", restart_session)
    cluster.produce("orders", [("key", "value")])
    consumer = KafkaConsumer("orders", bootstrap_servers=cluster.bootstrap_servers)
    assert_type(cluster.committed("billing"), dict[TopicPartition, OffsetAndMetadata])
    assert_type(cluster.group("billing"), GroupSnapshot)
    assert_type(cluster.wait_until(lambda: len(consumer.assignment())), int)
