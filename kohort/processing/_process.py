"""The function process()."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, Literal, TypeVar, overload

from kohort import AsyncKafkaConsumer, ConsumerRecord, KafkaConsumer
from kohort.errors import ConfigurationError
from kohort.processing import _in_tasks, _in_threads
from kohort.processing._core import Order
from kohort.processing._options import FailedPolicy, FailureHandler, make_options
from kohort.processing._policies import Retry

K = TypeVar("K")
V = TypeVar("V")


@overload
def process(
    consumer: AsyncKafkaConsumer[K, V],
    handler: Callable[[ConsumerRecord[K, V]], Awaitable[object]],
    *,
    order: Order = "partition",
    concurrency: int = 16,
    window: int = 10_000,
    retry: Retry | Iterable[Retry] | None = None,
    failed: Literal["stop", "skip"]
    | Callable[[ConsumerRecord[K, V], Exception, int], Awaitable[object] | None]
    | FailureHandler = "stop",
    drain: float = 20.0,
    delay: float = 0.0,
    commit_interval: float = 1.0,
    stuck_after: float = 300.0,
    handle_signals: bool = True,
) -> Coroutine[Any, Any, None]: ...


@overload
def process(
    consumer: KafkaConsumer[K, V],
    handler: Callable[[ConsumerRecord[K, V]], None],
    *,
    order: Order = "partition",
    concurrency: int = 16,
    window: int = 10_000,
    retry: Retry | Iterable[Retry] | None = None,
    failed: Literal["stop", "skip"]
    | Callable[[ConsumerRecord[K, V], Exception, int], None]
    | FailureHandler = "stop",
    drain: float = 20.0,
    delay: float = 0.0,
    commit_interval: float = 1.0,
    stuck_after: float = 300.0,
    handle_signals: bool = True,
) -> None: ...


def process(
    consumer: AsyncKafkaConsumer[Any, Any] | KafkaConsumer[Any, Any],
    handler: Callable[[ConsumerRecord[Any, Any]], Any],
    *,
    order: Order = "partition",
    concurrency: int = 16,
    window: int = 10_000,
    retry: Retry | Iterable[Retry] | None = None,
    failed: FailedPolicy = "stop",
    drain: float = 20.0,
    delay: float = 0.0,
    commit_interval: float = 1.0,
    stuck_after: float = 300.0,
    handle_signals: bool = True,
) -> Coroutine[Any, Any, None] | None:
    """Call ``handler(record)`` for each record, commit what is done, and return after a stop.

    With AsyncKafkaConsumer the handler is a coroutine function, and process() is awaited. With
    KafkaConsumer it is a plain function, which runs in threads. At most ``concurrency`` handlers
    run at a time.

    - ``order`` is "partition", "key" or "none". Records of one partition, or of one key of a
      partition, are handled one after the other. Records with a null key have no order by key.
    - ``window`` limits the offsets between the committed one and the last one taken, at most
      20,000. A full partition is paused until half of its window is free.
    - ``retry`` is a :class:`Retry`, or a list of them for different errors.
    - ``failed`` says what follows the last attempt. "stop" raises the error. "skip" logs a warning
      and goes on. A function gets record, error and number of attempts, and so does the method
      ``handle`` of an object. The record is done when it returns. If it raises, it is called again
      without limit.
    - ``drain`` is how many seconds running handlers may go on after a revocation or a stop. Then a
      coroutine is cancelled, and the result of a thread is ignored.
    - ``delay`` holds each record until this number of seconds after its timestamp.
    - ``commit_interval`` is the time between commits, and a record in flight for ``stuck_after``
      seconds is named in a warning.

    It starts the consumer, waits for brokers that are away, and closes the consumer at its end. It
    turns automatic commits off. A listener of subscribe() is called as before.

    SIGTERM and SIGINT stop it in the main thread, unless ``handle_signals=False``, and so does
    ``consumer.wakeup()``. It takes no more records, drains, commits and leaves the group. A second
    signal ends the drain.

    Handlers may raise :class:`Skip`, :class:`GiveUp` or :class:`Stop`. Raises the error of a
    handler with ``failed="stop"``, and errors of the consumer that do not pass. Raises
    ConfigurationError for wrong options and for handlers of the other API.
    """
    options = make_options(
        order=order,
        concurrency=concurrency,
        window=window,
        retry=retry,
        failed=failed,
        drain=drain,
        commit_interval=commit_interval,
        stuck_after=stuck_after,
        delay=delay,
        handle_signals=handle_signals,
    )
    if isinstance(consumer, AsyncKafkaConsumer):
        return _in_tasks.AsyncProcessor(consumer, _in_tasks.checked_handler(handler), options).run()
    if isinstance(consumer, KafkaConsumer):
        _in_threads.ThreadProcessor(consumer, _in_threads.checked_handler(handler), options).run()
        return None
    raise ConfigurationError(
        f"process() needs a KafkaConsumer or an AsyncKafkaConsumer, not {consumer!r}"
    )
