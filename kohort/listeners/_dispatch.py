"""How a rebalance listener is called, whoever wrote it and whatever it does."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any, Literal

from kohort.errors import RebalanceListenerError
from kohort.types import TopicPartition

CallbackName = Literal["on_partitions_revoked", "on_partitions_assigned", "on_partitions_lost"]

_REQUIRED: tuple[CallbackName, ...] = ("on_partitions_revoked", "on_partitions_assigned")
_COROUTINE = (
    "is a coroutine function, and KafkaConsumer cannot await it: make it a plain function, "
    "or use AsyncKafkaConsumer"
)


def check_listener(listener: Any, *, asynchronous: bool = False) -> None:
    """Raise TypeError for what cannot serve as a listener of the (a)synchronous consumer.

    Anything with the two methods serves: the listeners of kafka-python and aiokafka do.
    """
    if isinstance(listener, type):
        raise TypeError(f"listener is the class {listener.__name__}: give an instance of it")
    for name in _REQUIRED:
        if not callable(getattr(listener, name, None)):
            raise TypeError(f"listener {listener!r} has no method {name}()")
    if asynchronous:
        return
    for name in (*_REQUIRED, "on_partitions_lost"):
        if inspect.iscoroutinefunction(getattr(listener, name, None)):
            raise TypeError(f"{type(listener).__name__}.{name} {_COROUTINE}")
    if is_awaited(listener):
        raise TypeError(f"{type(listener).__name__} needs AsyncKafkaConsumer: it awaits something")


def call_listener(
    listener: Any, callback: CallbackName, partitions: Iterable[TopicPartition]
) -> RebalanceListenerError | None:
    """Call one method of a listener; what it raises is returned, wrapped.

    KeyboardInterrupt, SystemExit and other non-errors pass through.
    """
    affected = frozenset(partitions)
    try:
        result = method_of(listener, callback)(affected)
        if inspect.isawaitable(result):
            if inspect.iscoroutine(result):
                result.close()  # or it would warn that nobody has awaited it
            raise TypeError(f"{type(listener).__name__}.{callback} {_COROUTINE}")
    except Exception as error:
        return _wrapped(error, listener, callback, affected)
    return None


async def acall_listener(
    listener: Any, callback: CallbackName, partitions: Iterable[TopicPartition]
) -> RebalanceListenerError | None:
    """As call_listener(), and awaits what the method returns, if it can be awaited.

    Cancellation passes through as itself.
    """
    affected = frozenset(partitions)
    try:
        result = method_of(listener, callback)(affected)
        if inspect.isawaitable(result):
            await result
    except Exception as error:
        return _wrapped(error, listener, callback, affected)
    return None


def describe(partitions: Iterable[TopicPartition]) -> str:
    """``orders-0, orders-1``, sorted; ``none`` if there are none."""
    return ", ".join(f"{topic}-{partition}" for topic, partition in sorted(partitions)) or "none"


def is_awaited(listener: Any) -> bool:
    """A method of the listener's is a coroutine function, or it says so (``awaits``)."""
    methods = [getattr(listener, name, None) for name in (*_REQUIRED, "on_partitions_lost")]
    return bool(getattr(listener, "awaits", False)) or any(
        inspect.iscoroutinefunction(method) for method in methods
    )


def method_of(listener: Any, callback: CallbackName) -> Callable[[frozenset[TopicPartition]], Any]:
    """The method for a callback; AttributeError if there is none."""
    method = getattr(listener, callback, None)
    if method is None and callback == "on_partitions_lost":
        # Listeners written for aiokafka, or before KIP-429, know only "revoked".
        method = listener.on_partitions_revoked
    if method is None:
        raise AttributeError(f"{type(listener).__name__} has no method {callback}()")
    resolved: Callable[[frozenset[TopicPartition]], Any] = method
    return resolved


def _wrapped(
    error: Exception,
    listener: Any,
    callback: CallbackName,
    partitions: frozenset[TopicPartition],
) -> RebalanceListenerError:
    wrapped = RebalanceListenerError(
        f"{type(listener).__name__}.{callback} raised {type(error).__name__}: {error} "
        f"(partitions: {describe(partitions)})",
        callback=callback,
        partitions=partitions,
    )
    wrapped.__cause__ = error
    return wrapped
