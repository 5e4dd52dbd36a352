"""Cluster to test on, Apache Kafka or kohort's, seen through third-party tools alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from confluent_kafka import ConsumerGroupTopicPartitions, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.cimpl import NewPartitions

from tests.support.topics import await_leaders, create_topic

TIMEOUT_S = 60.0
QUIET = {"log_level": "2"}  # ended connections to a broker are expected here


@dataclass(frozen=True)
class GroupDescription:
    """Description of a group. ``members`` has the partitions of the topics by client id."""

    state: str
    members: Mapping[str, frozenset[tuple[str, int]]]


class Broker:
    """Cluster under test: a bootstrap address and confluent-kafka's admin client."""

    def __init__(self, bootstrap_servers: str) -> None:
        self.bootstrap_servers = bootstrap_servers
        self.admin = AdminClient({"bootstrap.servers": bootstrap_servers, **QUIET})
        self._producer = Producer({"bootstrap.servers": bootstrap_servers, **QUIET})

    def create_topic(
        self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None
    ) -> str:
        """Create a topic and return its name once every partition has a leader."""
        return create_topic(self.bootstrap_servers, name, partitions, config)

    def write(
        self,
        topic: str,
        value: bytes | None,
        *,
        partition: int = 0,
        key: bytes | None = None,
        headers: Sequence[tuple[str, bytes | None]] = (),
        timestamp: int = 0,
    ) -> None:
        """Write one record as a separate batch and wait until it is stored."""
        errors: list[object] = []
        self._producer.produce(
            topic,
            value,
            key,
            partition,
            headers=list(headers),
            timestamp=timestamp,
            on_delivery=lambda error, _: errors.append(error),
        )
        assert self._producer.flush(TIMEOUT_S) == 0
        assert errors == [None]

    def delete_records(self, topic: str, partition: int, *, before: int) -> None:
        """Delete the records before an offset."""
        place = TopicPartition(topic, partition, before)
        self.admin.delete_records([place])[place].result(TIMEOUT_S)

    def add_partitions(self, topic: str, total: int) -> None:
        """Increase the number of partitions, and wait for their leaders."""
        asked = self.admin.create_partitions([NewPartitions(topic, total)])
        asked[topic].result(TIMEOUT_S)
        await_leaders(self.admin, topic, total)

    def delete_topic(self, topic: str) -> None:
        """Delete the topic and wait for the response."""
        self.admin.delete_topics([topic])[topic].result(TIMEOUT_S)

    def group_type(self, group: str) -> str:
        """Return "classic" or "consumer", as the list of groups has it."""
        listed = self.admin.list_consumer_groups().result(TIMEOUT_S)
        (found,) = (one for one in listed.valid if one.group_id == group)
        kind: str = found.type.name.lower()
        return kind

    def configure_group(self, group: str, values: Mapping[str, str]) -> None:
        """Set configs of a group, which need not exist yet."""
        entries = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
            for name, value in values.items()
        ]
        resource = ConfigResource(ConfigResource.Type.GROUP, group, incremental_configs=entries)
        self.admin.incremental_alter_configs([resource])[resource].result(TIMEOUT_S)

    def feed(self, topic: str, partitions: int) -> Feed:
        """Return a feed that writes numbered records to the topic."""
        return Feed(self.bootstrap_servers, topic, partitions)

    def committed(self, group: str) -> dict[tuple[str, int], int]:
        """Return all committed offsets of the group by topic and partition."""
        asked = self.admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
        answer = asked[group].result(TIMEOUT_S)
        return {(tp.topic, tp.partition): tp.offset for tp in answer.topic_partitions or []}

    def describe(self, group: str) -> GroupDescription:
        """Return the group as its coordinator describes it."""
        answer = self.admin.describe_consumer_groups([group])[group].result(TIMEOUT_S)
        members: dict[str, frozenset[tuple[str, int]]] = {}
        for member in answer.members:
            given = member.assignment.topic_partitions if member.assignment else []
            own = frozenset((tp.topic, tp.partition) for tp in given)
            members[member.client_id] = members.get(member.client_id, frozenset()) | own
        return GroupDescription(answer.state.name, members)


class Feed:
    """Feed that writes numbered records, some to each partition at a time, and
    knows their places.
    """

    def __init__(self, bootstrap_servers: str, topic: str, partitions: int) -> None:
        self.topic = topic
        self.written: dict[tuple[int, int], bytes] = {}
        self._partitions = partitions
        self._sent = 0
        self._failed: list[Any] = []
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap_servers,
                "linger.ms": "2",
                "enable.idempotence": True,  # retries after a broker was killed write nothing twice
                **QUIET,
            }
        )

    def write(self, each: int) -> None:
        """Write ``each`` records to every partition and wait until they are stored."""
        self.start(each)
        left = self._producer.flush(TIMEOUT_S)
        assert left == 0 and not self._failed, (left, self._failed)

    def start(self, each: int = 1) -> None:
        """Write some more records and wait only for a moment."""
        for _ in range(each):
            for partition in range(self._partitions):
                value = b"%d" % self._sent
                self._sent += 1
                self._producer.produce(
                    self.topic, value, partition=partition, on_delivery=self._delivered
                )
        self._producer.poll(0.01)

    def _delivered(self, error: Any, message: Message) -> None:
        if error is not None:
            self._failed.append(error)
            return
        partition, offset, value = message.partition(), message.offset(), message.value()
        assert partition is not None and offset is not None and isinstance(value, bytes)
        self.written[partition, offset] = value

    def ends(self) -> dict[tuple[str, int], int]:
        """Return the offset after the last record of each partition."""
        ends: dict[tuple[str, int], int] = {}
        for partition, offset in self.written:
            place = self.topic, partition
            ends[place] = max(ends.get(place, 0), offset + 1)
        return ends
