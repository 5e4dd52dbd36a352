"""The policy ``failed=DeadLetters(...)`` for coroutines and for threads."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from kohort import AsyncKafkaConsumer, ConsumerRecord, KafkaConsumer
from kohort.errors import RecordTooLargeError
from kohort.logs import error_text
from kohort.processing import _consumer
from kohort.processing._dead_letters import DeadLetter, DeadLetters, letter_of
from kohort.processing._reports import logger


class AsyncLetters:
    """The letters of one process() with AsyncKafkaConsumer."""

    def __init__(
        self,
        consumer: AsyncKafkaConsumer[Any, Any],
        letters: DeadLetters,
        send: Callable[[DeadLetter], Awaitable[object]] | None,
    ) -> None:
        self._consumer = consumer
        self._letters = letters
        self._send = send

    async def __call__(
        self, record: ConsumerRecord[Any, Any], error: Exception, attempts: int
    ) -> None:
        """Write the letter of a failed record, and wait until a broker has acknowledged it."""
        group = _consumer.group_id(self._consumer)
        letter = letter_of(self._letters.topic, record, error, attempts, group)
        await self._write(letter, self._letters.timeout)

    async def check(self) -> None:
        """Wait until the topic exists. Raise errors that do not pass."""
        if self._send is None:
            await _consumer.require_topic(self._consumer, self._letters)

    async def _write(self, letter: DeadLetter, timeout: float) -> None:
        if self._send is not None:
            await self._send(letter)
            return
        try:
            await _consumer.write_in_task(self._consumer, letter, timeout)
        except RecordTooLargeError as error:
            smaller = _smaller(letter, error)
            await _consumer.write_in_task(self._consumer, smaller, timeout)


class ThreadLetters:
    """The letters of one process() with KafkaConsumer."""

    def __init__(
        self,
        consumer: KafkaConsumer[Any, Any],
        letters: DeadLetters,
        send: Callable[[DeadLetter], object] | None,
    ) -> None:
        self._consumer = consumer
        self._letters = letters
        self._send = send
        self._check: Any = None

    def __call__(self, record: ConsumerRecord[Any, Any], error: Exception, attempts: int) -> None:
        """Write the letter of a failed record, and wait until a broker has acknowledged it."""
        group = _consumer.group_id(self._consumer)
        letter = letter_of(self._letters.topic, record, error, attempts, group)
        self._write(letter, self._letters.timeout)

    def start_check(self) -> None:
        """Begin to look whether the topic exists."""
        if self._send is None:
            self._check = _consumer.start_check(self._consumer, self._letters)

    def end_check(self) -> None:
        """Raise the error of the check once, if it has ended with one."""
        if self._check is not None and self._check.done():
            check, self._check = self._check, None
            check.result()

    def _write(self, letter: DeadLetter, timeout: float) -> None:
        if self._send is not None:
            self._send(letter)
            return
        try:
            _consumer.write_in_thread(self._consumer, letter, timeout)
        except RecordTooLargeError as error:
            _consumer.write_in_thread(self._consumer, _smaller(letter, error), timeout)


def _smaller(letter: DeadLetter, error: RecordTooLargeError) -> DeadLetter:
    """Return the letter without its value, or raise the error if it has none."""
    if letter.value is None:
        raise error
    logger.warning(
        "a dead letter for %s is too large, so its value of %d bytes is left out: %s",
        letter.topic,
        len(letter.value),
        error_text(error),
    )
    return letter.without_value()
