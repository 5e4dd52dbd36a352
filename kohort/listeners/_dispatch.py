"""The functions that check and call rebalance listeners, also those of other libraries."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any, Literal

from kohort.errors import RebalanceListenerError
from kohort.listeners._base import takes_context
from kohort.types import RebalanceContext, TopicPartition

CallbackName = Literal["on_partitions_revoked", "on_partitions_assigned", "on_partitions_lost"]

_REQUIRED: tuple[CallbackName, ...] = ("on_partitions_revoked", "on_partitions_assigned")
_COROUTINE = (
    "is a coroutine function, which KafkaConsumer cannot await. Use a plain function, "
    "or use AsyncKafkaConsumer"
)


def check_listener(listener: Any, *, asynchronous: bool = False) -> None:
    """Raise TypeError if an object is no listener for the sync or the async API.

    A listener needs only on_partitions_revoked() and on_partitions_assigned(). Listeners of
    kafka-python and aiokafka have both. Each method takes the partitions, and one that has a
    parameter ``rebalance`` also takes a RebalanceContext.
    """
    if isinstance(listener, type):
        raise TypeError(f"listener is the class {listener.__name__}. Pass an instance of it")
    for name in _REQUIRED:
        if not callable(getattr(listener, name, None)):
            raise TypeError(f"listener {listener!r} has no method {name}()")
    for name in (*_REQUIRED, "on_partitions_lost"):
        _check_signature(listener, name)
    if asynchronous:
        return
    for name in (*_REQUIRED, "on_partitions_lost"):
        if inspect.iscoroutinefunction(getattr(listener, name, None)):
            raise TypeError(f"{type(listener).__name__}.{name} {_COROUTINE}")
    if is_awaited(listener):
        raise TypeError(f"{type(listener).__name__} awaits coroutines. Use AsyncKafkaConsumer")


def _check_signature(listener: Any, name: CallbackName) -> None:
    """Raise TypeError if a method cannot be called with partitions, or with a context as well."""
    method = method_of(listener, name)
    try:
        signature = inspect.signature(method)
    except ValueError:  # a function in C without a signature
        return
    extra = {"rebalance": None} if takes_context(method) else {}
    try:
        signature.bind(frozenset(), **extra)
    except TypeError as error:
        raise TypeError(
            f"{type(listener).__name__}.{method.__name__}{signature} cannot be called: {error}. It "
            "takes the partitions, and may have a parameter named rebalance"
        ) from None


def invoke(
    listener: Any,
    callback: CallbackName,
    partitions: frozenset[TopicPartition],
    rebalance: RebalanceContext | None,
) -> Any:
    """Call one method of a listener, with the context if the method has a parameter for it."""
    method = method_of(listener, callback)
    if rebalance is not None and takes_context(method):
        return method(partitions, rebalance=rebalance)
    return method(partitions)


def call_listener(
    listener: Any,
    callback: CallbackName,
    partitions: Iterable[TopicPartition],
    rebalance: RebalanceContext | None = None,
) -> RebalanceListenerError | None:
    """Call one method of a listener, and return its error wrapped in RebalanceListenerError.

    KeyboardInterrupt, SystemExit and others that are no Exception are raised.
    """
    affected = frozenset(partitions)
    try:
        result = invoke(listener, callback, affected, rebalance)
        if inspect.isawaitable(result):
            if inspect.iscoroutine(result):
                result.close()  # otherwise Python warns that it was never awaited
            raise TypeError(f"{type(listener).__name__}.{callback} {_COROUTINE}")
    except Exception as error:
        return _wrapped(error, listener, callback, affected)
    return None


async def acall_listener(
    listener: Any,
    callback: CallbackName,
    partitions: Iterable[TopicPartition],
    rebalance: RebalanceContext | None = None,
) -> RebalanceListenerError | None:
    """Call one method of a listener as call_listener() does, and await its result if needed.

    A cancellation is raised unchanged.
    """
    affected = frozenset(partitions)
    try:
        result = invoke(listener, callback, affected, rebalance)
        if inspect.isawaitable(result):
            await result
    except Exception as error:
        return _wrapped(error, listener, callback, affected)
    return None


def describe(partitions: Iterable[TopicPartition]) -> str:
    """Return the sorted partitions as ``orders-0, orders-1``, or ``none``."""
    return ", ".join(f"{topic}-{partition}" for topic, partition in sorted(partitions)) or "none"


def is_awaited(listener: Any) -> bool:
    """Return True if a method is a coroutine function, or the attribute ``awaits`` is true."""
    methods = [getattr(listener, name, None) for name in (*_REQUIRED, "on_partitions_lost")]
    return bool(getattr(listener, "awaits", False)) or any(
        inspect.iscoroutinefunction(method) for method in methods
    )


def method_of(listener: Any, callback: CallbackName) -> Callable[..., Any]:
    """Return the method for a callback. Raise AttributeError if there is none."""
    method = getattr(listener, callback, None)
    if method is None and callback == "on_partitions_lost":
        # Listeners for aiokafka, and those from before KIP-429, have no on_partitions_lost().
        method = listener.on_partitions_revoked
    if method is None:
        raise AttributeError(f"{type(listener).__name__} has no method {callback}()")
    resolved: Callable[..., Any] = method
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
