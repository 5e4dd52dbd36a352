"""Client for Kafka consumer groups.

:class:`KafkaConsumer` and :class:`AsyncKafkaConsumer` read topics. :class:`ShareConsumer` and
:class:`AsyncShareConsumer` take records as workers of a queue. :class:`KafkaAdminClient` and
:class:`AsyncKafkaAdminClient` show and change groups. :func:`read` returns a range of a topic as
a table. ``kohort.testing`` has an in-process cluster for tests.
``spark.read.format("kohort")`` reads topics into Spark.
"""

from __future__ import annotations

from threading import RLock
from typing import TYPE_CHECKING

from kohort.config import VERSION as __version__  # noqa: N811
from kohort.config import Secret
from kohort.errors import (
    CommitFailedError,
    ConfigurationError,
    CorruptBatchError,
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    NoBrokersAvailable,
    RebalanceListenerError,
    RecordDeserializationError,
)
from kohort.listeners import AsyncRebalanceListener, ConsumerRebalanceListener, RebalanceListener
from kohort.records import ConsumerRecord
from kohort.types import (
    ConsumerGroupMetadata,
    MetricSample,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    SubscriptionPattern,
    TopicPartition,
    lazy_names,
)

__all__ = [
    "AsyncConsumerOptions",
    "AsyncKafkaAdminClient",
    "AsyncKafkaConsumer",
    "AsyncRebalanceListener",
    "AsyncShareConsumer",
    "CommitFailedError",
    "ConfigurationError",
    "ConsumerGroupMetadata",
    "ConsumerOptions",
    "ConsumerRebalanceListener",
    "ConsumerRecord",
    "CorruptBatchError",
    "Explanation",
    "ExplanationFacts",
    "GroupFacts",
    "Health",
    "KafkaAdminClient",
    "KafkaConnectionError",
    "KafkaConsumer",
    "KafkaError",
    "KafkaTimeoutError",
    "MetricSample",
    "NoBrokersAvailable",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "PartitionFacts",
    "ProcessingFacts",
    "ReadProgress",
    "RebalanceListener",
    "RebalanceListenerError",
    "RecordColumns",
    "RecordDeserializationError",
    "RecordTable",
    "Secret",
    "ShareConsumer",
    "ShareFacts",
    "ShareRecord",
    "SubscriptionPattern",
    "TopicPartition",
    "__version__",
    "create_ssl_context",
    "read",
    "read_async",
    "read_batches",
    "read_batches_async",
]

if TYPE_CHECKING:
    from kohort._options import AsyncConsumerOptions, ConsumerOptions
    from kohort.admin import AsyncKafkaAdminClient, KafkaAdminClient
    from kohort.consumer import (
        AsyncKafkaConsumer,
        Explanation,
        ExplanationFacts,
        GroupFacts,
        Health,
        KafkaConsumer,
        PartitionFacts,
        ProcessingFacts,
        ShareFacts,
    )
    from kohort.reading import (
        ReadProgress,
        read,
        read_async,
        read_batches,
        read_batches_async,
    )
    from kohort.records import RecordColumns, RecordTable
    from kohort.security import create_ssl_context
    from kohort.share import AsyncShareConsumer, ShareConsumer, ShareRecord
else:
    # Imported on first use: a program needs only one API, and rarely columns.
    _find, __dir__ = lazy_names(
        __name__,
        {
            "AsyncConsumerOptions": "kohort._options",
            "AsyncKafkaAdminClient": "kohort.admin",
            "AsyncKafkaConsumer": "kohort.consumer",
            "AsyncShareConsumer": "kohort.share",
            "ConsumerOptions": "kohort._options",
            "Explanation": "kohort.consumer",
            "ExplanationFacts": "kohort.consumer",
            "GroupFacts": "kohort.consumer",
            "Health": "kohort.consumer",
            "KafkaAdminClient": "kohort.admin",
            "KafkaConsumer": "kohort.consumer",
            "PartitionFacts": "kohort.consumer",
            "ProcessingFacts": "kohort.consumer",
            "ShareFacts": "kohort.consumer",
            "ReadProgress": "kohort.reading",
            "RecordColumns": "kohort.records",
            "RecordTable": "kohort.records",
            "ShareConsumer": "kohort.share",
            "ShareRecord": "kohort.share",
            "create_ssl_context": "kohort.security",
            "read": "kohort.reading",
            "read_async": "kohort.reading",
            "read_batches": "kohort.reading",
            "read_batches_async": "kohort.reading",
        }.get,
    )
    _first_use = RLock()

    def __getattr__(name: str) -> object:
        # Threads that import a package and a part of it can each have the lock that the other one
        # waits for. Python then raises an error in one of them.
        with _first_use:
            return _find(name)
