"""The function process()."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, Literal, Protocol, TypeAlias, TypedDict, Unpack, overload

from kohort import (
    AsyncKafkaConsumer,
    AsyncShareConsumer,
    ConsumerRecord,
    KafkaConsumer,
    ShareConsumer,
    ShareRecord,
    TopicPartition,
)
from kohort.errors import ConfigurationError
from kohort.processing import _in_tasks, _in_threads, shares
from kohort.processing._core import Order
from kohort.processing._dead_letters import DeadLetters
from kohort.processing._options import make_options
from kohort.processing._policies import Batch, Retry
from kohort.processing._streams import AsyncPartitionRecords, K, PartitionRecords, V
from kohort.processing.stores import DeltaOffsets, IcebergOffsets, OffsetStore, SqlOffsets

MAX_RUNTIME = 3600.0
"""Seconds for which the lock of a record of a share group is renewed by default."""


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
    window: int | None
    commit_interval: float
    stuck_after: float
    handle_signals: bool


class BatchOptions(CommonOptions, total=False):
    """Options of process() for handlers of records and of batches."""

    concurrency: int
    retry: Retry | Iterable[Retry] | None
    failed: FailedPolicy


class ShareProcessOptions(TypedDict, total=False):
    """Options of process() for share consumers."""

    order: Literal["none"]
    concurrency: int
    retry: Retry | Iterable[Retry] | None
    failed: FailedPolicy
    drain: float
    commit_interval: float
    stuck_after: float
    handle_signals: bool
    max_runtime: float


class StoredOptions(BatchOptions, total=False):
    """Options of process() for handlers of single records with a store of offsets."""

    delay: float


class RecordOptions(StoredOptions, total=False):
    """Options of process() for handlers of single records."""

    order: Order


@overload
def process(
    consumer: AsyncKafkaConsumer[K, V],
    handler: Callable[[ConsumerRecord[K, V]], Awaitable[object]],
    *,
    batch: None = None,
    each_partition: None = None,
    **options: Unpack[RecordOptions],
) -> Coroutine[Any, Any, None]: ...


@overload
def process(
    consumer: AsyncKafkaConsumer[K, V],
    handler: Callable[[Any], Awaitable[object]],
    *,
    batch: Batch,
    each_partition: None = None,
    **options: Unpack[BatchOptions],
) -> Coroutine[Any, Any, None]: ...


@overload
def process(
    consumer: AsyncKafkaConsumer[K, V],
    handler: None = None,
    *,
    batch: None = None,
    each_partition: Callable[[TopicPartition, AsyncPartitionRecords[K, V]], Awaitable[object]],
    **options: Unpack[CommonOptions],
) -> Coroutine[Any, Any, None]: ...


@overload
def process(
    consumer: AsyncKafkaConsumer[K, V],
    handler: Callable[[ConsumerRecord[K, V], Any], object],
    *,
    batch: None = None,
    each_partition: None = None,
    offsets: SqlOffsets,
    **options: Unpack[StoredOptions],
) -> Coroutine[Any, Any, None]: ...


@overload
def process(
    consumer: AsyncKafkaConsumer[K, V],
    handler: Callable[[Any, Any], object],
    *,
    batch: Batch,
    each_partition: None = None,
    offsets: SqlOffsets,
    **options: Unpack[BatchOptions],
) -> Coroutine[Any, Any, None]: ...


@overload
def process(
    consumer: AsyncKafkaConsumer[K, V],
    handler: Callable[[Any], object],
    *,
    batch: Batch,
    each_partition: None = None,
    offsets: DeltaOffsets | IcebergOffsets,
    **options: Unpack[BatchOptions],
) -> Coroutine[Any, Any, None]: ...


@overload
def process(
    consumer: KafkaConsumer[K, V],
    handler: Callable[[ConsumerRecord[K, V]], None],
    *,
    batch: None = None,
    each_partition: None = None,
    **options: Unpack[RecordOptions],
) -> None: ...


@overload
def process(
    consumer: KafkaConsumer[K, V],
    handler: Callable[[Any], None],
    *,
    batch: Batch,
    each_partition: None = None,
    **options: Unpack[BatchOptions],
) -> None: ...


@overload
def process(
    consumer: KafkaConsumer[K, V],
    handler: None = None,
    *,
    batch: None = None,
    each_partition: Callable[[TopicPartition, PartitionRecords[K, V]], None],
    **options: Unpack[CommonOptions],
) -> None: ...


@overload
def process(
    consumer: KafkaConsumer[K, V],
    handler: Callable[[ConsumerRecord[K, V], Any], None],
    *,
    batch: None = None,
    each_partition: None = None,
    offsets: SqlOffsets,
    **options: Unpack[StoredOptions],
) -> None: ...


@overload
def process(
    consumer: KafkaConsumer[K, V],
    handler: Callable[[Any, Any], None],
    *,
    batch: Batch,
    each_partition: None = None,
    offsets: SqlOffsets,
    **options: Unpack[BatchOptions],
) -> None: ...


@overload
def process(
    consumer: KafkaConsumer[K, V],
    handler: Callable[[Any], object],
    *,
    batch: Batch,
    each_partition: None = None,
    offsets: DeltaOffsets | IcebergOffsets,
    **options: Unpack[BatchOptions],
) -> None: ...


@overload
def process(
    consumer: AsyncShareConsumer,
    handler: Callable[[ShareRecord[Any, Any]], Awaitable[object]],
    **options: Unpack[ShareProcessOptions],
) -> Coroutine[Any, Any, None]: ...


@overload
def process(
    consumer: ShareConsumer,
    handler: Callable[[ShareRecord[Any, Any]], None],
    **options: Unpack[ShareProcessOptions],
) -> None: ...


def process(
    consumer: AsyncKafkaConsumer[Any, Any]
    | KafkaConsumer[Any, Any]
    | AsyncShareConsumer
    | ShareConsumer,
    handler: Callable[..., Any] | None = None,
    *,
    order: Order | None = None,
    concurrency: int = 16,
    window: int | None = None,
    retry: Retry | Iterable[Retry] | None = None,
    failed: FailedPolicy | None = None,
    drain: float = 20.0,
    each_partition: Callable[[TopicPartition, Any], Any] | None = None,
    batch: Batch | None = None,
    delay: float = 0.0,
    commit_interval: float = 1.0,
    stuck_after: float = 300.0,
    handle_signals: bool = True,
    offsets: OffsetStore | None = None,
    max_runtime: float = MAX_RUNTIME,
) -> Coroutine[Any, Any, None] | None:
    """Call ``handler(record)`` for each record, commit what is done, and return after a stop.

    With AsyncKafkaConsumer the handler is a coroutine function, and process() is awaited. With
    KafkaConsumer it is a plain function, which runs in threads. At most ``concurrency`` handlers
    run at a time.

    - ``order`` is "partition", "key" or "none". Records of one partition, or of one key of a
      partition, are handled one after the other. Records with a null key have no order by key.
    - ``window`` limits the offsets between the committed one and the last one taken. Without
      ``batch`` it is at most 20,000. By default it is 10,000, or four batches if these are more.
      A full partition is paused until half of its window is free.
    - ``retry`` is a :class:`Retry`, or a list of them for different errors.
    - ``failed`` says what follows the last attempt. "stop" raises the error. "skip" logs a warning
      and goes on. :class:`DeadLetters` copies the record to another topic. A function gets record,
      error and number of attempts, and so does the method ``handle`` of an object. The record is
      done when it returns. If it raises, it is called again without limit.
    - ``drain`` is how many seconds running handlers may go on after a revocation or a stop. Then a
      coroutine is cancelled, and the result of a thread is ignored.
    - ``each_partition(tp, records)`` takes the place of a handler. It runs as long as the partition
      is owned, iterates over ``records``, and calls ``records.done(record)``.
    - ``batch`` is a :class:`Batch`, whose handler gets many records of one partition.
    - ``offsets`` stores results and offsets in one transaction, so each record has its effect
      exactly once. With :class:`SqlOffsets` the handler gets a cursor as its second argument. With
      :class:`DeltaOffsets` or :class:`IcebergOffsets` it returns the rows to append.
    - ``delay`` holds each record until this number of seconds after its timestamp.
    - ``commit_interval`` is the time between commits.
    - ``stuck_after`` is how many seconds a record may be in flight. Then a warning, explain() and
      health() name it. The process is not live while the handler does not return, and the consumer
      is not ready while the record is retried.
    - ``max_runtime`` is how many seconds the lock of a record of a share group is renewed.

    With AsyncShareConsumer or ShareConsumer, process() acknowledges each record, and commits no
    offsets. A record is accepted when its handler returns. After the last attempt it is released,
    and the group delivers it again. In its last delivery, or after :class:`GiveUp`, it is rejected
    after ``failed``, which is "skip" by default. At most ``concurrency`` records are locked, and
    those that will begin within half a second, by the time that handlers take.
    ``order`` is "none", and ``window``, ``batch``, ``each_partition``, ``delay`` and ``offsets``
    have no meaning. The docs page "Queues" has more.

    It starts the consumer, waits for brokers that are away, and closes the consumer at its end. It
    turns automatic commits off. A listener of subscribe() is called as before.

    SIGTERM and SIGINT stop it in the main thread, unless ``handle_signals=False``, and so does
    ``consumer.wakeup()``. It takes no more records, drains, commits and leaves the group. A second
    signal ends the drain.

    Handlers may raise :class:`Skip`, :class:`GiveUp` or :class:`Stop`. Raises the error of a
    handler with ``failed="stop"``, and errors of the consumer that do not pass. Raises
    ConfigurationError for wrong options and for handlers of the other API.
    """
    is_share = isinstance(consumer, (AsyncShareConsumer, ShareConsumer))
    if is_share:
        _check_share_options(
            order=order,
            window=window,
            each_partition=each_partition,
            batch=batch,
            delay=delay,
            offsets=offsets,
        )
    elif max_runtime != MAX_RUNTIME:
        raise ConfigurationError(
            "process(max_runtime=...) is for share consumers, whose locks are renewed. Leave it out"
        )
    options = make_options(
        order=order or ("none" if is_share else "partition"),
        concurrency=concurrency,
        window=window,
        retry=retry,
        failed=failed or ("skip" if is_share else "stop"),
        drain=drain,
        each_partition=each_partition,
        batch=batch,
        delay=delay,
        commit_interval=commit_interval,
        stuck_after=stuck_after,
        handle_signals=handle_signals,
        offsets=offsets,
        max_runtime=max_runtime,
        is_share=is_share,
    )
    function = each_partition if handler is None else handler
    if not callable(function) or (handler is not None and each_partition is not None):
        raise ConfigurationError("process() needs either a handler or each_partition")
    if isinstance(consumer, AsyncKafkaConsumer):
        return _in_tasks.AsyncProcessor(consumer, function, options).run()
    if isinstance(consumer, KafkaConsumer):
        _in_threads.ThreadProcessor(consumer, function, options).run()
        return None
    if isinstance(consumer, AsyncShareConsumer):
        return shares.AsyncShareProcessor(consumer, function, options).run()
    if isinstance(consumer, ShareConsumer):
        shares.ThreadShareProcessor(consumer, function, options).run()
        return None
    raise ConfigurationError(
        f"process() needs a KafkaConsumer or an AsyncKafkaConsumer, not {consumer!r}"
    )


def _check_share_options(*, order: Any, **options: Any) -> None:
    if order not in (None, "none"):
        raise ConfigurationError(
            f"process(order={order!r}) is wrong: a share group has no order. Leave order out, or "
            "use a consumer group"
        )
    for name, value in options.items():
        if value:
            raise ConfigurationError(
                f"process({name}=...) is not possible with a share consumer. Leave it out, or use "
                "a consumer group"
            )
