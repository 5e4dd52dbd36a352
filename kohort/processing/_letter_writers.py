"""The policy ``failed=DeadLetters(...)`` for coroutines and for threads."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

import anyio

from kohort import AsyncKafkaConsumer, ConsumerRecord, KafkaConsumer
from kohort.errors import DataError, RecordTooLargeError
from kohort.processing import _consumer
from kohort.processing._dead_letters import (
    DeadLetter,
    DeadLetters,
    letter_of,
    letter_of_bad_data,
)
from kohort.processing._reports import described, logger

BAD_DATA_SECONDS: Final = 5.0
"""Longest time for a letter of data that cannot be read, because the poll waits for it."""
PAUSE_SECONDS: Final = 1.0
"""Seconds after a letter of such data that could not be written."""


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

    async def bad_data(self, error: DataError) -> bool:
        """Write the letter of data that cannot be read, and pass it. Return False if it stays."""
        group = _consumer.group_id(self._consumer)
        letter = letter_of_bad_data(self._letters.topic, error, group)
        if letter is None:
            return False
        try:
            await self._write(letter, BAD_DATA_SECONDS)
        except Exception as failure:
            _warn_of_bad_data(error, failure)
            await anyio.sleep(PAUSE_SECONDS)
            return True  # the next poll raises the error again
        _pass(self._consumer, error)
        return True

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

    def bad_data(self, error: DataError) -> bool:
        """Write the letter of data that cannot be read, and pass it. Return False if it stays."""
        group = _consumer.group_id(self._consumer)
        letter = letter_of_bad_data(self._letters.topic, error, group)
        if letter is None:
            return False
        try:
            self._write(letter, BAD_DATA_SECONDS)
        except Exception as failure:
            _warn_of_bad_data(error, failure)
            time.sleep(PAUSE_SECONDS)
            return True  # the next poll raises the error again
        _pass(self._consumer, error)
        return True

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
        str(error),
    )
    return letter.without_value()


def _warn_of_bad_data(error: DataError, failure: Exception) -> None:
    logger.warning(
        "%s-%d offset %s cannot be read, and writing its dead letter failed: %s. It is tried again",
        error.topic_partition.topic,
        error.topic_partition.partition,
        error.offset,
        described(failure),
    )


def _pass(consumer: AsyncKafkaConsumer[Any, Any] | KafkaConsumer[Any, Any], error: Any) -> None:
    """Seek past data that has a letter, unless its partition was just revoked."""
    tp = error.topic_partition
    if tp in consumer.assignment():
        consumer.seek(tp, error.next_offset)
