"""Type variables and types of the options of process()."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal, Protocol, TypeAlias, TypedDict, TypeVar

from kohort import ConsumerRecord
from kohort.processing._dead_letters import DeadLetters
from kohort.processing._policies import Retry

K = TypeVar("K")
V = TypeVar("V")

Order: TypeAlias = Literal["partition", "key", "none"]


class FailureHandler(Protocol):
    """An object for ``failed=``. Its method may be a coroutine with AsyncKafkaConsumer."""

    def handle(self, record: ConsumerRecord[Any, Any], error: Exception, attempts: int, /) -> Any:
        """Store a record that has failed for good. The record is done when this returns."""


FailedPolicy: TypeAlias = (
    Literal["stop", "skip"]
    | Callable[[ConsumerRecord[Any, Any], Exception, int], Any]
    | FailureHandler
    | DeadLetters
)


class CommonOptions(TypedDict, total=False):
    """Options of process() for every kind of handler."""

    drain: float
    window: int
    commit_interval: float
    stuck_after: float
    handle_signals: bool


class BatchOptions(CommonOptions, total=False):
    """Options of process() for handlers of records and of batches."""

    concurrency: int
    retry: Retry | Iterable[Retry] | None
    failed: FailedPolicy


class StoredOptions(BatchOptions, total=False):
    """Options of process() for handlers of single records with a store of offsets."""

    delay: float


class RecordOptions(StoredOptions, total=False):
    """Options of process() for handlers of single records."""

    order: Order
