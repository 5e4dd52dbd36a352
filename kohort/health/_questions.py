"""Questions of other threads to a consumer.

Any thread may call ``health()`` of a KafkaConsumer. The state of an AsyncKafkaConsumer belongs to
its event loop, so a question goes there. A blocked event loop does not answer:

1. Each path has at most one question in the event loop. Later requests wait for the same answer.
2. Without an answer in ``ANSWER_SECONDS`` the consumer is not ready. It is live until the event
   loop has been silent for ``max_poll_interval_ms``, the limit of a program that does not poll.
3. An event loop that does not run yet, or no longer, is not asked.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future
from typing import Any

from kohort import AsyncKafkaConsumer, Health
from kohort.health._answers import PATHS, Answer, AnyConsumer, answer, of_health, unavailable

clock = time.monotonic
ANSWER_SECONDS = 0.5
"""Longest wait for an event loop. Kubernetes gives a probe 1 s by default."""


class Questions:
    """The questions to one consumer. See the top of the module."""

    def __init__(self, consumer: AnyConsumer) -> None:
        self._consumer = consumer
        self._lock = threading.Lock()
        self._pending: dict[str, tuple[Future[Answer], float]] = {}
        """Path -> the latest question, and the time when it was asked."""

    def answer(self, path: str) -> Answer:
        """Return the answer for a path, from any thread."""
        consumer = self._consumer
        if not isinstance(consumer, AsyncKafkaConsumer) or path not in PATHS:
            return answer(path, consumer)
        task = consumer._driver.background_task
        if task is None or not task.is_alive:
            return answer(path, consumer)
        with self._lock:
            question, asked_at = self._pending.get(path, (None, 0.0))
            if question is None or question.done():
                question, asked_at = Future(), clock()
                self._pending[path] = question, asked_at
                task.call_soon(_Call(question, path, consumer))
        try:
            return question.result(ANSWER_SECONDS)
        except TimeoutError:
            return _without_answer(path, consumer, clock() - asked_at)


class _Call:
    """The call that answers a question in the event loop."""

    def __init__(
        self, question: Future[Answer], path: str, consumer: AsyncKafkaConsumer[Any, Any]
    ) -> None:
        self._question = question
        self._path = path
        self._consumer = consumer

    def __call__(self) -> None:
        try:
            found = answer(self._path, self._consumer)
        except Exception as error:
            self._question.set_exception(error)
        else:
            self._question.set_result(found)


def _without_answer(path: str, consumer: AsyncKafkaConsumer[Any, Any], seconds: float) -> Answer:
    if path == "/metrics":
        return unavailable()
    limit = consumer._driver.config.group.max_poll_interval_ms / 1000
    reason = f"the event loop of the consumer has not run for {seconds:.1f} s"
    return of_health(path, Health(seconds < limit, False, (reason,)))
