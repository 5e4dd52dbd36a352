"""The transport with Apache Kafka."""

from __future__ import annotations

from collections.abc import Callable

import anyio
import pytest

from kohort.config import ClientConfig
from kohort.errors import KafkaConnectionError, UnsupportedVersionError
from kohort.protocol.messages import (
    FetchRequest,
    FindCoordinatorRequest,
    ListGroupsRequest,
)
from kohort.transport import ClusterClient
from kohort.types import TopicPartition
from tests.support.kafka_server import KafkaServer
from tests.transport.running import start_client

pytestmark = [pytest.mark.anyio, pytest.mark.real_kafka]


def config_for(server: KafkaServer) -> ClientConfig:
    host, _, port = server.bootstrap_servers.rpartition(":")
    return ClientConfig(bootstrap_servers=((host, int(port)),), allow_auto_create_topics=False)


async def test_metadata_and_requests(kafka: KafkaServer, unique: Callable[[str], str]) -> None:
    topic = kafka.create_topic(unique("transport"), partitions=3)
    client = ClusterClient(config_for(kafka))
    async with anyio.create_task_group() as tasks:
        await start_client(tasks, client)
        with anyio.fail_after(60):
            client.want_topics({topic, "no-such-topic"})
            await client.wait_refreshed()
            metadata = client.metadata
            assert metadata.partitions_for(topic) == (0, 1, 2)
            leader = metadata.leader(TopicPartition(topic, 0))
            assert leader is not None
            assert metadata.topic_by_id(metadata.topics[topic].topic_id) is not None
            assert metadata.topics["no-such-topic"].error == 3
            assert topic in (await client.fetch_topics(None)).topics
            await client.request(FindCoordinatorRequest(coordinator_keys=["g"]), min_version=4)
            with pytest.raises(UnsupportedVersionError):
                await client.request(FetchRequest(), max_version=3)
            for version in range(4, 13):
                leased = await client.request_leased(
                    FetchRequest(max_wait_ms=1),
                    node=leader.node,
                    purpose="fetch",
                    min_version=version,
                    max_version=version,
                )
                assert leased.response.error_code == 0
                leased.release()
        await client.aclose()


@pytest.mark.long  # Kafka is started again
async def test_a_broker_that_is_killed_and_comes_back(kafka: KafkaServer) -> None:
    client = ClusterClient(config_for(kafka))
    async with anyio.create_task_group() as tasks:
        await start_client(tasks, client)
        with anyio.fail_after(200):
            await client.wait_bootstrapped()
            (node,) = client.metadata.brokers
            await client.request(ListGroupsRequest(), node=node)
            kafka.kill()
            with pytest.raises(KafkaConnectionError):
                await client.request(ListGroupsRequest(), node=node)
            await anyio.to_thread.run_sync(kafka.start)
            await client.wait_refreshed()
            await client.request(ListGroupsRequest(), node=node)
        await client.aclose()
