"""The options of process(), checked."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal

from kohort.errors import ConfigurationError
from kohort.processing._core import WINDOW, CoreOptions, Order
from kohort.processing._dead_letters import DeadLetters
from kohort.processing._policies import Batch, Retry
from kohort.processing.stores import OffsetStore, is_store

WINDOW_BATCHES = 4
"""Batches that fit into the window at least by default. With fewer, polls wait for handlers."""
MAX_WINDOW = 20_000
"""Offsets whose done set fits into the metadata of a commit."""


@dataclass(frozen=True)
class ProcessOptions:
    """The checked options of process()."""

    order: Order
    concurrency: int
    window: int
    retries: tuple[Retry, ...]
    failed: Literal["stop", "skip", "call"]
    policy: Callable[..., Any] | DeadLetters | None
    drain: float
    commit_interval: float
    stuck_after: float
    batch: Batch | None
    is_stream: bool
    delay: float
    handle_signals: bool
    offsets: OffsetStore | None
    max_runtime: float = 3600.0
    is_share: bool = False

    @property
    def kind(self) -> str:
        """Return the name of the consumer's class, without "Async"."""
        return "ShareConsumer" if self.is_share else "KafkaConsumer"

    def core(self, max_bytes: int) -> CoreOptions:
        """Return the options of the core."""
        return CoreOptions(
            max_bytes=max_bytes,
            order=self.order,
            window=self.window,
            retries=self.retries,
            failed=self.failed,
            delay=self.delay,
            batch=self.batch,
            is_stream=self.is_stream,
        )


def make_options(
    *,
    order: Any,
    concurrency: Any,
    window: Any,
    retry: Any,
    failed: Any,
    drain: Any,
    commit_interval: Any,
    stuck_after: Any,
    each_partition: Any,
    batch: Any,
    delay: Any,
    handle_signals: Any,
    offsets: Any = None,
    max_runtime: Any = 3600.0,
    is_share: bool = False,
) -> ProcessOptions:
    """Return the options. Raise ConfigurationError for a wrong one."""
    if order not in ("partition", "key", "none"):
        raise _wrong("order", order, '"partition", "key" or "none"')
    _check_int("concurrency", concurrency, 1, None)
    for name, seconds in (("drain", drain), ("delay", delay)):
        _check_seconds(name, seconds, positive=False)
    positive = (
        ("commit_interval", commit_interval),
        ("stuck_after", stuck_after),
        ("max_runtime", max_runtime),
    )
    for name, seconds in positive:
        _check_seconds(name, seconds, positive=True)
    if type(handle_signals) is not bool:
        raise _wrong("handle_signals", handle_signals, "True or False")
    if batch is not None and not isinstance(batch, Batch):
        raise _wrong("batch", batch, "a Batch or None")
    if window is None:
        window = WINDOW if batch is None else max(WINDOW, WINDOW_BATCHES * batch.rows)
    else:
        _check_int("window", window, 1, MAX_WINDOW if batch is None else None)
    if batch is not None and batch.rows > window:
        raise ConfigurationError(
            f"process(batch=Batch(rows={batch.rows})) is wrong: a batch must fit into the window "
            f"of {window} offsets"
        )
    if (batch is not None or each_partition is not None) and (order != "partition" or delay):
        raise ConfigurationError(
            "process() with batch or each_partition reads a partition in its order. Leave order "
            "and delay out"
        )
    if each_partition is not None and (batch is not None or retry is not None or failed != "stop"):
        raise ConfigurationError(
            "process(each_partition=...) leaves batches, retries and failed records to the "
            "function. Leave batch, retry and failed out"
        )
    if offsets is not None:
        _check_offsets(offsets, order, is_stream=each_partition is not None)
    kind, policy = _policy(failed)
    return ProcessOptions(
        order=order,
        concurrency=concurrency,
        window=window,
        retries=_retries(retry),
        failed=kind,
        policy=policy,
        drain=drain,
        commit_interval=commit_interval,
        stuck_after=stuck_after,
        batch=batch,
        is_stream=each_partition is not None,
        delay=delay,
        handle_signals=handle_signals,
        offsets=offsets,
        max_runtime=max_runtime,
        is_share=is_share,
    )


def _check_offsets(offsets: Any, order: Order, *, is_stream: bool) -> None:
    if not is_store(offsets):
        raise _wrong("offsets", offsets, "SqlOffsets, DeltaOffsets, IcebergOffsets or None")
    if order != "partition":
        raise ConfigurationError(
            f'process(order="{order}", offsets=...) is wrong: the store has one offset for a '
            "partition, and records that finish out of order need more. Leave order out. For more "
            "throughput add partitions, or use batch"
        )
    if is_stream:
        raise ConfigurationError(
            "process(each_partition=..., offsets=...) is wrong: a transaction needs the first and "
            "the last record of its work. Use a handler of records, or batch"
        )


def _policy(
    failed: Any,
) -> tuple[Literal["stop", "skip", "call"], Callable[..., Any] | DeadLetters | None]:
    if failed == "stop":
        return "stop", None
    if failed == "skip":
        return "skip", None
    if isinstance(failed, DeadLetters):
        return "call", failed
    handle = getattr(failed, "handle", None)
    if not isinstance(failed, (str, type)) and (callable(handle) or callable(failed)):
        return "call", handle if callable(handle) else failed
    raise _wrong(
        "failed",
        failed,
        '"stop", "skip", DeadLetters(topic), a function of record, error and attempts, or an '
        "object whose method handle() is one",
    )


def _retries(retry: Any) -> tuple[Retry, ...]:
    if retry is None:
        return ()
    given = (retry,) if isinstance(retry, Retry) else retry
    if isinstance(given, Iterable):
        found = tuple(given)
        if all(isinstance(each, Retry) for each in found):
            return found
    raise _wrong("retry", retry, "a Retry, a list of them, or None")


def _check_int(name: str, value: Any, least: int, most: int | None) -> None:
    if type(value) is not int or value < least or (most is not None and value > most):
        limit = f"an int of at least {least}" if most is None else f"an int from {least} to {most}"
        raise _wrong(name, value, limit)


def _check_seconds(name: str, value: Any, *, positive: bool) -> None:
    good = type(value) in (int, float) and (value > 0 or (value == 0 and not positive))
    if not good:
        raise _wrong(name, value, "a number of seconds" + (" above 0" if positive else ""))


def _wrong(name: str, value: object, expected: str) -> ConfigurationError:
    return ConfigurationError(f"process({name}={value!r}) is wrong: use {expected}")
