"""Third-party admin clients on the in-process cluster, and their resets on Apache Kafka, too."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin import NewPartitions as AioPartitions
from aiokafka.admin import NewTopic as AioTopic
from aiokafka.admin import RecordsToDelete as AioRecords
from aiokafka.admin.config_resource import ConfigResource as AioResource
from aiokafka.admin.config_resource import ConfigResourceType as AioResourceType
from aiokafka.structs import TopicPartition as AioPartition
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka import TopicPartition as ConfluentPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewPartitions, NewTopic
from kafka import KafkaAdminClient
from kafka import TopicPartition as PythonPartition
from kafka.admin import ConfigResource as PythonResource
from kafka.admin import ConfigResourceType as PythonResourceType
from kafka.admin import OffsetSpec

import kohort
from kohort.testing import Cluster
from tests.interop.brokers import Broker

TOPIC, GROUP = "orders", "shop"
SETTINGS = {"retention.ms": "86400000"}


@dataclass(frozen=True)
class Seen:
    """Report of an admin client on a cluster, where it has created and grown the topic "made"."""

    topics: dict[str, int]
    retention: str
    groups: list[str]
    state: str
    offsets: dict[int, int]


@pytest.fixture
def shop() -> Iterator[Cluster]:
    """Cluster with a topic of ten records, of which a group has read all."""
    with Cluster(brokers=3, topics={TOPIC: 1}) as running:
        running.produce(TOPIC, ["x"] * 10)
        with kohort.KafkaConsumer(
            TOPIC,
            bootstrap_servers=running.bootstrap_servers,
            group_id=GROUP,
            group_protocol="classic",  # other clients' admins describe classic groups only
            auto_offset_reset="earliest",
        ) as consumer:
            for _ in range(10):
                next(consumer)
        yield running


def with_confluent(servers: str) -> Seen:
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})

    def result(futures: dict[Any, Any]) -> Any:
        (future,) = futures.values()
        return future.result(60)

    result(admin.create_topics([NewTopic("made", 3, 1, config=SETTINGS)]))
    result(admin.create_partitions([NewPartitions("made", 5)]))
    result(admin.delete_records([ConfluentPartition(TOPIC, 0, 4)]))
    topics = admin.list_topics(timeout=60).topics
    settings = result(admin.describe_configs([ConfigResource(ResourceType.TOPIC, "made")]))
    groups = admin.list_consumer_groups().result(60).valid
    described = result(admin.describe_consumer_groups([GROUP]))
    places = result(admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(GROUP)]))
    seen = Seen(
        {name: len(topic.partitions) for name, topic in topics.items() if name[0] != "_"},
        settings["retention.ms"].value,
        [group.group_id for group in groups],
        described.state.name.capitalize(),
        {place.partition: place.offset for place in places.topic_partitions},
    )
    result(admin.delete_consumer_groups([GROUP]))
    result(admin.delete_topics(["made"]))
    return seen


def with_kafka_python(servers: str) -> Seen:
    admin = KafkaAdminClient(bootstrap_servers=servers)
    made = {"num_partitions": 3, "replication_factor": 1, "configs": SETTINGS}
    admin.create_topics({"made": made})
    admin.create_partitions({"made": 5})
    admin.delete_records({PythonPartition(TOPIC, 0): 4})
    topics = admin.describe_topics()
    resource = PythonResource(PythonResourceType.TOPIC, "made")
    settings = admin.describe_configs([resource], config_filter="all")["topic"]["made"]
    groups = admin.list_groups()
    described = admin.describe_groups([GROUP])[GROUP]
    offsets = admin.list_group_offsets(GROUP)[GROUP]
    seen = Seen(
        {t["name"]: len(t["partitions"]) for t in topics if t["name"][0] != "_"},
        settings["retention.ms"]["value"],
        [group["group_id"] for group in groups],
        described["group_state"],
        {place.partition: at.offset for place, at in offsets.items()},
    )
    assert admin.delete_groups([GROUP]) == {GROUP: "OK"}
    admin.delete_topics(["made"])
    admin.close()
    return seen


def with_aiokafka(servers: str) -> Seen:
    """Run the checks with aiokafka, which cannot delete groups."""

    async def run() -> Seen:
        admin = AIOKafkaAdminClient(bootstrap_servers=servers)
        await admin.start()
        await admin.create_topics([AioTopic("made", 3, 1, topic_configs=SETTINGS)])
        await admin.create_partitions({"made": AioPartitions(5)})
        await admin.delete_records({AioPartition(TOPIC, 0): AioRecords(4)})
        topics = await admin.describe_topics()
        resource = AioResource(AioResourceType.TOPIC, "made", None)
        (answer,) = await admin.describe_configs([resource])
        (described,) = await admin.describe_consumer_groups([GROUP])
        seen = Seen(
            {t["topic"]: len(t["partitions"]) for t in topics if t["topic"][0] != "_"},
            {name: value for name, value, *_ in answer.resources[0][4]}["retention.ms"],
            [name for name, *_ in await admin.list_consumer_groups()],
            described.groups[0][2],
            {
                p.partition: at.offset
                for p, at in (await admin.list_consumer_group_offsets(GROUP)).items()
            },
        )
        await admin.delete_topics(["made"])
        await admin.close()
        return seen

    return asyncio.run(run())


ADMINS: dict[str, Callable[[str], Seen]] = {
    "confluent-kafka": with_confluent,
    "aiokafka": with_aiokafka,
    "kafka-python": with_kafka_python,
}


@pytest.mark.parametrize("client", ADMINS)
def test_an_admin_client_makes_shows_and_deletes(shop: Cluster, client: str) -> None:
    assert ADMINS[client](shop.bootstrap_servers) == Seen(
        {TOPIC: 1, "made": 5}, SETTINGS["retention.ms"], [GROUP], "Empty", {0: 10}
    )
    assert shop.topics == {TOPIC: 1}
    assert shop.records(TOPIC)[0].offset == 4
    assert shop.group(GROUP).state == ("Empty" if client == "aiokafka" else "Dead")


def reset_with_confluent(servers: str, group: str, topic: str, offset: int) -> None:
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    places = [ConfluentPartition(topic, 0, offset)]
    done = admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, places)])
    [place] = done[group].result(60).topic_partitions
    assert place.error is None


def reset_with_kafka_python(servers: str, group: str, topic: str, offset: int) -> None:
    admin = KafkaAdminClient(bootstrap_servers=servers)
    place = PythonPartition(topic, 0)
    target = {0: OffsetSpec.EARLIEST, 10: OffsetSpec.LATEST}.get(offset, offset)
    found = admin.reset_group_offsets(group, {place: target})
    assert found[place]["offset"] == offset
    admin.close()


@pytest.mark.parametrize("reset", [reset_with_confluent, reset_with_kafka_python])
@pytest.mark.cases
def test_an_admin_client_resets_a_group(
    broker: Broker, reset: Callable[[str, str, str, int], None]
) -> None:
    servers, name = broker.bootstrap_servers, f"reset-{time.time_ns()}"
    topic = broker.create_topic(name)
    for _ in range(10):
        broker.write(topic, b"x")
    with kohort.KafkaConsumer(bootstrap_servers=servers, group_id=name) as consumer:
        consumer.commit({kohort.TopicPartition(topic, 0): 5})
    for offset in (0, 3, 10):
        reset(servers, name, topic, offset)
        assert broker.committed(name) == {(topic, 0): offset}
