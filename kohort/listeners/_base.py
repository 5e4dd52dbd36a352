"""The base class of rebalance listeners, and the types of those without it.

A class needs no base class to be a listener. A consumer also calls ``on_partitions_lost`` where a
listener has it, and ``on_partitions_revoked`` in its place where it does not. A method that has a
parameter ``rebalance`` gets a RebalanceContext by this name.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from kohort.types import RebalanceContext, TopicPartition


def takes_context(method: Callable[..., Any]) -> bool:
    """True if a method has a parameter named ``rebalance``."""
    try:
        parameter = inspect.signature(method).parameters.get("rebalance")
    except ValueError:
        return False
    return parameter is not None and parameter.kind in (
        parameter.POSITIONAL_OR_KEYWORD,
        parameter.KEYWORD_ONLY,
    )


class ConsumerRebalanceListener:
    """A base class of listeners that are called in a rebalance; override the methods you need.

    Methods run inside your call of ``poll()``, ``close()`` or ``unsubscribe()``, while heartbeats
    continue. They may call ``commit``, ``position``, ``seek`` and ``pause``, but not ``poll``.

    With AsyncKafkaConsumer the methods may be coroutines. They also run in a task of the consumer
    while you do not poll and hold no returned records (option ``rebalance_without_poll``).

    A method with a second parameter ``rebalance`` gets a RebalanceContext. It has the cause of the
    rebalance, and the time until which the group waits for the method.

    ``poll()`` raises the error of a method as RebalanceListenerError. The rebalance continues.
    """

    __module__ = "kohort"

    if TYPE_CHECKING:
        # Methods of subclasses may have the parameter or not, and both are right.

        def on_partitions_revoked(
            self, revoked: frozenset[TopicPartition], *args: Any, **kwargs: Any
        ) -> Any: ...
        def on_partitions_assigned(
            self, assigned: frozenset[TopicPartition], *args: Any, **kwargs: Any
        ) -> Any: ...
        def on_partitions_lost(
            self, lost: frozenset[TopicPartition], *args: Any, **kwargs: Any
        ) -> Any: ...

    else:

        def on_partitions_revoked(self, revoked: frozenset[TopicPartition]) -> Any:
            """Run before partitions are revoked, while you still own them, so you can commit here.

            It is never called with an empty set.
            """
            return None

        def on_partitions_assigned(self, assigned: frozenset[TopicPartition]) -> Any:
            """Run after a rebalance, before the first fetch of the newly assigned partitions.

            The set has only new partitions, and may be empty.
            """
            return None

        def on_partitions_lost(
            self, lost: frozenset[TopicPartition], rebalance: RebalanceContext | None = None
        ) -> Any:
            """Run after partitions were lost: other members may own them, so commits fail.

            The default calls :meth:`on_partitions_revoked`.
            """
            if rebalance is not None and takes_context(self.on_partitions_revoked):
                return self.on_partitions_revoked(lost, rebalance=rebalance)
            return self.on_partitions_revoked(lost)


class ContextCallback(Protocol):
    """Method of a listener of a KafkaConsumer that takes the context of the rebalance."""

    def __call__(
        self, partitions: frozenset[TopicPartition], /, *, rebalance: RebalanceContext
    ) -> None: ...


class AsyncContextCallback(Protocol):
    """Method of a listener of an AsyncKafkaConsumer that takes the context of the rebalance."""

    def __call__(
        self, partitions: frozenset[TopicPartition], /, *, rebalance: RebalanceContext
    ) -> Awaitable[None] | None: ...


_Callback: TypeAlias = Callable[[frozenset[TopicPartition]], None] | ContextCallback
_AsyncCallback: TypeAlias = (
    Callable[[frozenset[TopicPartition]], Awaitable[None] | None] | AsyncContextCallback
)


class RebalanceListener(Protocol):
    """Listener of a KafkaConsumer: its methods return None."""

    @property
    def on_partitions_revoked(self) -> _Callback:
        """Method that handles partitions which the consumer still owns and is about to lose."""

    @property
    def on_partitions_assigned(self) -> _Callback:
        """Method that handles newly assigned partitions before their first fetch."""


class AsyncRebalanceListener(Protocol):
    """Listener of an AsyncKafkaConsumer: its methods may be coroutine functions."""

    @property
    def on_partitions_revoked(self) -> _AsyncCallback:
        """Method that handles partitions which the consumer still owns and is about to lose."""

    @property
    def on_partitions_assigned(self) -> _AsyncCallback:
        """Method that handles newly assigned partitions before their first fetch."""
