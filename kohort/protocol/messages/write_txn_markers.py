"""WriteTxnMarkers, API key 27: write the end of a transaction to partitions."""

from __future__ import annotations

from kohort.protocol._struct import Request, Response, Struct, field
from kohort.protocol._types import Bool, Int8, Int16, Int32, Int64, String


class WriteTxnMarkersResponse(Response, api_key=27, versions="1-2", flexible="1+"):
    """Response to :class:`WriteTxnMarkersRequest`."""

    class WritableTxnMarkerResult(Struct):
        producer_id: Int64 = field(default=0)
        topics: list[WriteTxnMarkersResponse.WritableTxnMarkerTopicResult] = field(
            default_factory=list
        )

    class WritableTxnMarkerTopicResult(Struct):
        name: String = field(default="")
        partitions: list[WriteTxnMarkersResponse.WritableTxnMarkerPartitionResult] = field(
            default_factory=list
        )

    class WritableTxnMarkerPartitionResult(Struct):
        partition_index: Int32 = field(default=0)
        error_code: Int16 = field(default=0)

    markers: list[WriteTxnMarkersResponse.WritableTxnMarkerResult] = field(default_factory=list)


class WriteTxnMarkersRequest(
    Request[WriteTxnMarkersResponse], api_key=27, versions="1-2", flexible="1+"
):
    """Request between brokers to write the end of a transaction to partitions."""

    class WritableTxnMarker(Struct):
        producer_id: Int64 = field(default=0)
        producer_epoch: Int16 = field(default=0)
        transaction_result: Bool = field(default=False)
        topics: list[WriteTxnMarkersRequest.WritableTxnMarkerTopic] = field(default_factory=list)
        coordinator_epoch: Int32 = field(default=0)
        transaction_version: Int8 = field("2+", default=0, ignorable=True)

    class WritableTxnMarkerTopic(Struct):
        name: String = field(default="")
        partition_indexes: list[Int32] = field(default_factory=list)

    markers: list[WriteTxnMarkersRequest.WritableTxnMarker] = field(default_factory=list)
