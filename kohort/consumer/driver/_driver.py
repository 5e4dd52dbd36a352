"""What both drivers have: the engine, the buffers of its records, and the state of its life.

A driver runs the engine for one API. KafkaConsumer has a ThreadDriver, whose engine runs in a
thread. AsyncKafkaConsumer has a TaskDriver, whose engine runs in a task of the caller's event loop.
Both have the same methods, which the methods of the APIs call:

- ``call(plan)`` awaits a call of the engine. ``position()`` is a call that may be unnecessary.
- ``deliver(delivery, timeout, chosen)`` polls until a delivery has records, and ``step()`` returns
  the next record of an iteration, which ``check_iterable()`` begins.
- ``start()``, ``close(request)``, ``unsubscribe()`` and ``wakeup()`` are those of the consumer.
  ``enter_block()`` and ``leave_block()`` stand around a ``with`` block.
- ``start_commit(offsets, callback)`` starts a commit, and returns its future.
  ``run_commit_callbacks()`` calls the callbacks of ended ones.

Invariants:

1. Only a driver touches its thread or task. A consumer refers to its driver, and a driver weakly to
   its consumer. So a consumer that nothing refers to is freed, and its ``__del__`` ends the engine.
   A call or a callback task that waits keeps the consumer alive.
2. The engine refers to its driver weakly, for the same reason.
3. Callbacks run on the caller's side, one at a time, inside a call that polls or leaves. A
   TaskDriver may also run them in a task of the consumer.
4. A call has a time limit, also if the engine does not respond.
5. An error, a cancellation or Ctrl-C in any call loses no record (see _delivery).
"""

from __future__ import annotations

import functools
import logging
import sys
import warnings
import weakref
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NoReturn, TypeAlias, TypeVar

from kohort.config import ConsumerConfig
from kohort.consumer.driver._callback_runner import CallbackRunner
from kohort.consumer.driver._iteration_buffer import DrainSize, IterationBuffer
from kohort.consumer.driver._life import ConsumerLife
from kohort.consumer.engine._callback_queue import CommitCallback
from kohort.consumer.engine._engine import Engine
from kohort.consumer.engine._observed import Observer
from kohort.logs import get_logger
from kohort.records import RecordRun, decoder_choice
from kohort.subscription import SubscriptionState
from kohort.types import NamedTuple, OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from kohort.consumer.diagnosis._facts import ProcessingFacts

T = TypeVar("T")

logger = get_logger("kohort.consumer")

CommitFunction: TypeAlias = Callable[
    [dict[TopicPartition, OffsetAndMetadata], Exception | None], object
]

_LEAVE_SHARE = 0.8
"""Share of the close timeout for the commit and LeaveGroup. The rest is for ending the engine."""


def leave_timeout(limit: float) -> float:
    """Return the seconds of a close timeout that may pass before the engine is ended."""
    return limit * _LEAVE_SHARE


class Plan(NamedTuple, Generic[T]):
    """A call of the engine that a driver has still to make."""

    function: Callable[..., Awaitable[T]]
    """Called with the engine and ``args``. It applies the timeout to itself."""
    args: tuple[Any, ...]
    seconds: float
    """The timeout."""
    is_wait: bool = False
    """True for a wait that may end without a result. An error of its caller ends it, too."""


@functools.cache
def log_decoders() -> None:
    """Log once per process whether the record decoders are compiled or plain."""
    logging.getLogger("kohort").info("record decoders: %s", decoder_choice())


def make_engine(
    config: ConsumerConfig,
    *,
    notify: Callable[[], None],
    clock: Callable[[], float],
    subscription: SubscriptionState | None = None,
) -> Engine:
    """Return an engine that reports metrics if the configuration has ``on_stats``."""
    make = partial(Engine, config, notify=notify, clock=clock, subscription=subscription)
    if config.on_stats is None:
        return make()
    from kohort.consumer.diagnosis._metrics import report_stats

    return make(report_stats=report_stats)


class DriverOwner:
    """The guards of an object whose driver runs an engine: a consumer or an admin client."""

    _driver: Driver
    _close_hint: str
    _is_finalizing = staticmethod(sys.is_finalizing)
    """For __del__, because the end of the interpreter clears modules."""

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"{type(self).__name__} cannot be pickled or copied: it owns connections. Pass its "
            "options instead, and create the object where it is used"
        )

    def __del__(self) -> None:
        driver = getattr(self, "_driver", None)
        if driver is not None and not self._is_finalizing() and driver.abandon():
            # Last, because it raises with "python -W error".
            warnings.warn(
                f"{type(self).__name__} was not closed: {self._close_hint}",
                ResourceWarning,
                stacklevel=2,
            )


class Driver:
    """The part of a driver that is the same for a thread and a task."""

    asynchronous: ClassVar[bool]

    def __init__(self, config: ConsumerConfig, engine: Engine) -> None:
        log_decoders()
        self.config = config
        self.engine = engine
        self.callback_runner: CallbackRunner
        driver = weakref.proxy(self)
        self.iteration_buffer = IterationBuffer(
            engine.subscription, lambda: driver.engine.may_deliver(), engine.callback_queue.clock
        )
        engine.iterated_timestamp = self.iteration_buffer.timestamp_at
        self.record_run: RecordRun = self.iteration_buffer.run
        """The records that iteration returns without any other check."""
        deserializes = config.deserialize_key is not None or config.deserialize_value is not None
        self.drain_size = DrainSize(
            config.fetch.max_poll_records, deserializes=deserializes, timed=self.asynchronous
        )
        self.life = ConsumerLife()
        self.group_id: str | None = config.group.group_id
        """The group of the consumer. The engine of a share consumer has none."""
        self.owner: Callable[[], object] = lambda: None
        """A weak reference to the consumer that has this driver."""
        self.processing: Callable[[], ProcessingFacts] | None = None
        """The state of process(), which any thread may read, also after its end."""
        self.observe_poll: Observer | None = None

    def observe(self, poll: Observer, commit: Observer) -> None:
        """Let these functions observe the polls and the commits from now on."""
        self.observe_poll = poll
        self.engine.offset_requests.observe = commit

    @property
    def request_seconds(self) -> float:
        """The default timeout of a request."""
        return self.config.client.request_timeout_ms / 1000

    def bootstrap_seconds(self) -> float:
        """Return the time in which the first contact succeeds or fails."""
        client = self.config.client
        # With 0 each server has the time of one request.
        servers_ms = len(client.bootstrap_servers) * client.request_timeout_ms
        until_error_ms = client.bootstrap_timeout_ms or servers_ms
        return (until_error_ms + client.request_timeout_ms) / 1000

    def note_subscribed(self, *, is_first: bool) -> None:
        """Act on a new subscription. ``is_first`` is False if it replaces another one."""
        raise NotImplementedError  # each driver has it

    def abandon(self) -> bool:
        """End the engine without a wait. Return True if the consumer should have been closed."""
        raise NotImplementedError  # each driver has it

    def call_soon(self, action: Callable[[], object]) -> None:
        """Run ``action`` in the engine's event loop.

        Do nothing before the start, because the engine reads the subscription when it starts.
        """
        if self.life.is_started:
            self.engine.callback_queue.engine_loop.call_soon(action)

    def call_threadsafe(self, action: Callable[[], object]) -> None:
        """Do as :meth:`call_soon` does, from any thread and signal handler."""
        self.call_soon(action)

    def end_auto_commit(self) -> None:
        """Commit nothing automatically from now on, because another part does."""
        self.engine.auto_commit.is_enabled = False

    def discard_iterated(self) -> None:
        """Let the buffered records of iteration be fetched again as bytes, for a table."""
        if self.iteration_buffer and self.iteration_buffer.discard():
            self.engine.wake_fetcher()

    def _follow_commit(
        self,
        future: Any,
        offsets: dict[TopicPartition, OffsetAndMetadata],
        callback: CommitFunction | None,
    ) -> None:
        """Queue the callback of commit_async() when its future has a result."""
        wanted = callback or self.config.default_offset_commit_callback
        commits, callback_queue = self.engine.offset_requests.futures, self.engine.callback_queue
        commits.add(future)

        def done(future: Any) -> None:
            if wanted is not None and not future.cancelled():
                result = CommitCallback(wanted, offsets, future.exception())
                callback_queue.add_commit_callback(result)
            commits.discard(future)
            callback_queue.notify()

        future.add_done_callback(done)

    def _close_deserializers(self) -> None:
        for deserializer in (self.config.key_deserializer, self.config.value_deserializer):
            close = getattr(deserializer, "close", None)
            if callable(close):
                try:
                    close()
                except Exception:
                    logger.exception("closing %r failed", deserializer)
