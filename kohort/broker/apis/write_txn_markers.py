"""WriteTxnMarkers (API 27), versions 1-2.

Coordinators send it, and admins that end hanging transactions. Version 2 adds the transaction
version.
"""

from __future__ import annotations

from kohort.broker.apis._registry import Context, serves
from kohort.broker.log import Marker
from kohort.errors import ErrorCode
from kohort.protocol.messages import WriteTxnMarkersRequest, WriteTxnMarkersResponse

_Result = WriteTxnMarkersResponse.WritableTxnMarkerPartitionResult


@serves(WriteTxnMarkersRequest, (1, 2))
async def write_txn_markers(
    ctx: Context, request: WriteTxnMarkersRequest
) -> WriteTxnMarkersResponse:
    return WriteTxnMarkersResponse(
        markers=[
            WriteTxnMarkersResponse.WritableTxnMarkerResult(
                producer_id=requested.producer_id,
                topics=[
                    WriteTxnMarkersResponse.WritableTxnMarkerTopicResult(
                        name=topic.name,
                        partitions=[
                            _Result(
                                partition_index=index,
                                error_code=_write(ctx, requested, topic, index),
                            )
                            for index in topic.partition_indexes
                        ],
                    )
                    for topic in requested.topics
                ],
            )
            for requested in request.markers
        ]
    )


def _write(
    ctx: Context,
    requested: WriteTxnMarkersRequest.WritableTxnMarker,
    topic: WriteTxnMarkersRequest.WritableTxnMarkerTopic,
    index: int,
) -> ErrorCode:
    cluster = ctx.broker.cluster
    partition = ctx.broker.led_partition(cluster.topics.get(topic.name), index)
    if isinstance(partition, ErrorCode):
        return partition
    marker = Marker(
        requested.producer_id,
        requested.producer_epoch,
        requested.transaction_result,
        requested.coordinator_epoch,
        requested.transaction_version,
    )
    return cluster.transaction_router.write_marker(partition, marker)
