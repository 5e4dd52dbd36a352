"""The requests that delete records from the start of logs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import anyio

from kohort.admin._offsets import partition_error
from kohort.admin._requests import AdminRequests
from kohort.admin._results import AdminResults
from kohort.admin._topics import topic_error
from kohort.coordinator_client import partitions_by_topic
from kohort.errors import KafkaError, LeaderNotAvailableError, UnknownTopicOrPartitionError
from kohort.protocol.messages import DeleteRecordsRequest
from kohort.transport import ClusterMetadata, start_soon
from kohort.types import TopicPartition

if TYPE_CHECKING:
    from kohort.consumer.engine._engine import Engine

_WHAT: Final = "the deletion of records"


async def delete_records(
    engine: Engine, offsets: Mapping[TopicPartition, int], seconds: float
) -> AdminResults[TopicPartition, int]:
    requests = await AdminRequests.begin(engine, seconds)

    async def attempt(
        remaining: Sequence[TopicPartition],
    ) -> Mapping[TopicPartition, int | KafkaError]:
        found: dict[TopicPartition, int | KafkaError] = {}
        by_node: dict[int, list[TopicPartition]] = defaultdict(list)
        metadata = await requests.cluster.fetch_topics(
            {tp.topic for tp in remaining}, may_create=False
        )
        for tp in remaining:
            leader = _leader(metadata, tp)
            if isinstance(leader, KafkaError):
                found[tp] = leader
            else:
                by_node[leader].append(tp)

        async def delete(node: int, partitions: Sequence[TopicPartition]) -> None:
            chosen = {tp: offsets[tp] for tp in partitions}
            try:
                response = await requests.cluster.request(
                    _request(chosen, requests.milliseconds),
                    node=node,
                    timeout_ms=requests.milliseconds,
                )
            except KafkaError as error:
                found.update(dict.fromkeys(partitions, error))
                return
            for topic in response.topics:
                for each in topic.partitions:
                    tp = TopicPartition(topic.name, each.partition_index)
                    found[tp] = (
                        partition_error(_WHAT, tp, each.error_code, "DELETE")
                        if each.error_code
                        else each.low_watermark
                    )

        async with anyio.create_task_group() as tasks:
            for node, partitions in by_node.items():
                start_soon(tasks, delete, node, partitions)
        return found

    return await requests.each(offsets, attempt, _WHAT)


def _leader(metadata: ClusterMetadata, tp: TopicPartition) -> int | KafkaError:
    topic = metadata.topics.get(tp.topic)
    if topic is None or topic.error:
        code = UnknownTopicOrPartitionError.code if topic is None else topic.error
        return topic_error(_WHAT, tp.topic, code, "DESCRIBE")
    if tp.partition not in topic.partitions:
        return partition_error(_WHAT, tp, UnknownTopicOrPartitionError.code, "DESCRIBE")
    leader = metadata.leader(tp)
    if leader is None:
        return LeaderNotAvailableError(f"{tp.topic}-{tp.partition} has no leader at present")
    return leader.node


def _request(offsets: Mapping[TopicPartition, int], timeout_ms: int) -> DeleteRecordsRequest:
    cls = DeleteRecordsRequest
    topics = [
        cls.DeleteRecordsTopic(
            name=name,
            partitions=[
                cls.DeleteRecordsPartition(
                    partition_index=number, offset=offsets[TopicPartition(name, number)]
                )
                for number in numbers
            ],
        )
        for name, numbers in partitions_by_topic(sorted(offsets)).items()
    ]
    return cls(topics=topics, timeout_ms=timeout_ms)
