"""WriteTxnMarkers (27), versions 1-2: markers of a coordinator, or of an admin who ends what hangs.

Version 2 tells the transaction version.
"""

from __future__ import annotations

from kohort.errors import ErrorCode
from kohort.protocol.messages import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from kohort.testing.apis._registry import Context, serves
from kohort.testing.log import Marker

_Answer = WriteTxnMarkersResponse.WritableTxnMarkerPartitionResult


@serves(WriteTxnMarkersRequest, (1, 2))
async def write_txn_markers(
    ctx: Context, request: WriteTxnMarkersRequest
) -> WriteTxnMarkersResponse:
    return WriteTxnMarkersResponse(
        markers=[
            WriteTxnMarkersResponse.WritableTxnMarkerResult(
                producer_id=asked.producer_id,
                topics=[
                    WriteTxnMarkersResponse.WritableTxnMarkerTopicResult(
                        name=topic.name,
                        partitions=[
                            _Answer(
                                partition_index=index, error_code=_write(ctx, asked, topic, index)
                            )
                            for index in topic.partition_indexes
                        ],
                    )
                    for topic in asked.topics
                ],
            )
            for asked in request.markers
        ]
    )


def _write(
    ctx: Context,
    asked: WriteTxnMarkersRequest.WritableTxnMarker,
    topic: WriteTxnMarkersRequest.WritableTxnMarkerTopic,
    index: int,
) -> ErrorCode:
    cluster = ctx.broker.cluster
    partition = ctx.broker.led_partition(cluster.topics.get(topic.name), index)
    if isinstance(partition, ErrorCode):
        return partition
    marker = Marker(
        asked.producer_id,
        asked.producer_epoch,
        asked.transaction_result,
        asked.coordinator_epoch,
        asked.transaction_version,
    )
    return cluster.transacting.write(partition, marker)
