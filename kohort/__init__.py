"""kohort: a client for Kafka consumer groups.

:class:`KafkaConsumer` and :class:`AsyncKafkaConsumer` read topics; ``kohort.testing`` is a cluster
to try them on; ``spark.read.format("kohort")`` reads topics into Spark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kohort.config import VERSION as __version__
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
from kohort.listeners import ConsumerRebalanceListener
from kohort.records import ConsumerRecord
from kohort.types import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition

__all__ = [
    "AsyncKafkaConsumer",
    "CommitFailedError",
    "ConfigurationError",
    "ConsumerRebalanceListener",
    "ConsumerRecord",
    "CorruptBatchError",
    "KafkaConnectionError",
    "KafkaConsumer",
    "KafkaError",
    "KafkaTimeoutError",
    "NoBrokersAvailable",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "RebalanceListenerError",
    "RecordColumns",
    "RecordDeserializationError",
    "TopicPartition",
    "__version__",
]

if TYPE_CHECKING:
    from kohort.consumer import AsyncKafkaConsumer, KafkaConsumer
    from kohort.records import RecordColumns
else:

    def __getattr__(name: str) -> Any:
        # A program imports the API that it uses, and tables only if it reads them.
        if name in ("AsyncKafkaConsumer", "KafkaConsumer"):
            from kohort import consumer as module
        elif name == "RecordColumns":
            from kohort import records as module
        else:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = globals()[name] = getattr(module, name)
        return found

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
