"""Questions of other threads to a consumer.

Any thread may call ``health()`` of a KafkaConsumer. The state of an async consumer belongs to
its event loop, so a question goes there. A blocked event loop does not answer:

1. Each question has at most one question in the event loop. Later ones wait for the same answer.
2. Without an answer in ``ANSWER_SECONDS`` the consumer is not ready. It is live until the event
   loop has been silent for ``max_poll_interval_ms``, the limit of a program that does not poll.
3. An event loop that does not run yet, or no longer, is not asked.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar

from kohort import AsyncKafkaConsumer, AsyncShareConsumer, Health, MetricSample
from kohort.health._answers import PATHS, Answer, AnyConsumer, answer, of_health, unavailable

T = TypeVar("T")

clock = time.monotonic
ANSWER_SECONDS = 0.5
"""Longest wait for an event loop. Kubernetes gives a probe 1 s by default."""


class SilentLoopError(Exception):
    """The event loop of a consumer does not answer. The argument has the seconds of its silence."""


class Questions:
    """The questions to one consumer. See the top of the module."""

    def __init__(self, consumer: AnyConsumer) -> None:
        self._consumer = consumer
        self._lock = threading.Lock()
        self._pending: dict[str, tuple[Future[Any], float]] = {}
        """Name of a question -> the latest one, and the time when it was asked."""

    def answer(self, path: str) -> Answer:
        """Return the answer for a path, from any thread."""
        if path not in PATHS:
            return answer(path, self._consumer)
        try:
            return self.ask(path, partial(answer, path))
        except SilentLoopError as error:
            return _without_answer(path, self._consumer, error.args[0])

    def ask(self, name: str, question: Callable[[AnyConsumer], T]) -> T:
        """Return what a function of the consumer returns where ``health()`` may be called.

        Raise SilentLoopError if the event loop of the consumer does not answer.
        """
        consumer = self._consumer
        if not isinstance(consumer, AsyncKafkaConsumer | AsyncShareConsumer):
            return question(consumer)
        task = consumer._driver.background_task
        if task is None or not task.is_alive:
            return question(consumer)
        future: Future[T]
        with self._lock:
            pending, asked_at = self._pending.get(name, (None, 0.0))
            if pending is None or pending.done():
                future, asked_at = Future(), clock()
                self._pending[name] = future, asked_at
                task.call_soon(_Call(future, question, consumer))
            else:
                future = pending
        try:
            return future.result(ANSWER_SECONDS)
        except TimeoutError:
            raise SilentLoopError(clock() - asked_at) from None


class _Call:
    """The call that answers a question in the event loop."""

    def __init__(
        self,
        future: Future[T],
        question: Callable[[AnyConsumer], T],
        consumer: AnyConsumer,
    ) -> None:
        self._future: Future[Any] = future
        self._question = question
        self._consumer = consumer

    def __call__(self) -> None:
        try:
            found = self._question(self._consumer)
        except Exception as error:
            self._future.set_exception(error)
        else:
            self._future.set_result(found)


def samples_of(consumer: AnyConsumer) -> list[MetricSample]:
    """Return the figures of a consumer, from any thread.

    A closed consumer has none, nor has one whose event loop does not answer.
    """
    if consumer._driver.life.is_closed:
        return []
    try:
        return Questions(consumer).ask("samples", lambda each: each.metric_samples())
    except SilentLoopError:
        return []


def _without_answer(path: str, consumer: AnyConsumer, seconds: float) -> Answer:
    if path == "/metrics":
        return unavailable()
    limit = consumer._driver.config.group.max_poll_interval_ms / 1000
    reason = f"the event loop of the consumer has not run for {seconds:.1f} s"
    return of_health(path, Health(seconds < limit, False, (reason,)))
