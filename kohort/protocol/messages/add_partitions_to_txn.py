"""AddPartitionsToTxn, API key 24: add partitions to a transaction.

Version 4 is for brokers and takes several transactions (KIP-890).
"""

from __future__ import annotations

from kohort.protocol._struct import Request, Response, Struct, field
from kohort.protocol._types import Bool, Int16, Int32, Int64, String


class AddPartitionsToTxnResponse(Response, api_key=24, versions="0-5", flexible="3+"):
    """Response to :class:`AddPartitionsToTxnRequest`."""

    class AddPartitionsToTxnTopicResult(Struct):
        name: String = field(default="")
        results_by_partition: list[AddPartitionsToTxnResponse.AddPartitionsToTxnPartitionResult] = (
            field(default_factory=list)
        )

    class AddPartitionsToTxnPartitionResult(Struct):
        partition_index: Int32 = field(default=0)
        partition_error_code: Int16 = field(default=0)

    class AddPartitionsToTxnResult(Struct):
        transactional_id: String = field("4+", default="")
        topic_results: list[AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult] = field(
            "4+", default_factory=list
        )

    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field("4+", default=0, ignorable=True)
    results_by_transaction: list[AddPartitionsToTxnResponse.AddPartitionsToTxnResult] = field(
        "4+", default_factory=list
    )
    results_by_topic_v3_and_below: list[
        AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult
    ] = field("0-3", default_factory=list)


class AddPartitionsToTxnRequest(
    Request[AddPartitionsToTxnResponse], api_key=24, versions="0-5", flexible="3+"
):
    """Request to add partitions to a transaction."""

    class AddPartitionsToTxnTopic(Struct):
        name: String = field(default="")
        partitions: list[Int32] = field(default_factory=list)

    class AddPartitionsToTxnTransaction(Struct):
        transactional_id: String = field("4+", default="")
        producer_id: Int64 = field("4+", default=0)
        producer_epoch: Int16 = field("4+", default=0)
        verify_only: Bool = field("4+", default=False)
        topics: list[AddPartitionsToTxnRequest.AddPartitionsToTxnTopic] = field(
            "4+", default_factory=list
        )

    transactions: list[AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction] = field(
        "4+", default_factory=list
    )
    v3_and_below_transactional_id: String = field("0-3", default="")
    v3_and_below_producer_id: Int64 = field("0-3", default=0)
    v3_and_below_producer_epoch: Int16 = field("0-3", default=0)
    v3_and_below_topics: list[AddPartitionsToTxnRequest.AddPartitionsToTxnTopic] = field(
        "0-3", default_factory=list
    )
