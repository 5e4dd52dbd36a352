"""DescribeLogDirs (API 35), versions 1-5. It returns the sizes of the broker's replicas.

The logs are in memory, and the response shows them as one directory without disk sizes.
"""

from __future__ import annotations

from kohort.broker.apis._registry import Context, serves
from kohort.broker.cluster._topics import Topic
from kohort.broker.configs._broker_configs import LOG_FOLDER
from kohort.protocol.messages import DescribeLogDirsRequest, DescribeLogDirsResponse

_Topic = DescribeLogDirsResponse.DescribeLogDirsTopic


@serves(DescribeLogDirsRequest, (1, 5))
async def describe_log_dirs(
    ctx: Context, request: DescribeLogDirsRequest
) -> DescribeLogDirsResponse:
    topics = ctx.broker.cluster.topics
    requested: list[tuple[Topic | None, set[int] | None]]
    if request.topics is None:
        requested = [(topic, None) for topic in topics]
    else:
        requested = [(topics.get(topic.topic), set(topic.partitions)) for topic in request.topics]
    described = [
        _describe(ctx, topic, indexes) for topic, indexes in requested if topic is not None
    ]
    return DescribeLogDirsResponse(
        results=[
            DescribeLogDirsResponse.DescribeLogDirsResult(
                log_dir=LOG_FOLDER, topics=[topic for topic in described if topic.partitions]
            )
        ]
    )


def _describe(ctx: Context, topic: Topic, indexes: set[int] | None) -> _Topic:
    return _Topic(
        name=topic.name,
        partitions=[
            DescribeLogDirsResponse.DescribeLogDirsPartition(
                partition_index=partition.index, partition_size=partition.log.size
            )
            for partition in topic.partitions
            if (indexes is None or partition.index in indexes)
            and ctx.broker.node.id in partition.replicas
        ],
    )
