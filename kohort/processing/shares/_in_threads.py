"""The driver of process() for ShareConsumer: that of KafkaConsumer without offsets."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from kohort import KafkaError, ShareConsumer, TopicPartition
from kohort.errors import ConfigurationError, ConsumerClosedError, WakeupError
from kohort.logs import error_text
from kohort.processing._in_threads import LOOK_SECONDS, ThreadProcessor
from kohort.processing._options import ProcessOptions
from kohort.processing._partition import Lane
from kohort.processing._processor import COMMIT_SECONDS, RETRY_SECONDS
from kohort.processing._reports import logger
from kohort.processing.shares import _client
from kohort.processing.shares._processor import ShareSteps


class ThreadShareProcessor(ShareSteps, ThreadProcessor):
    """One call of process() with a ShareConsumer."""

    _remedy = "give each job a time limit, or use coroutines, which are cancelled"

    def __init__(
        self, consumer: ShareConsumer, handler: Callable[..., Any], options: ProcessOptions
    ) -> None:
        self._consumer: Any
        super().__init__(consumer, handler, options)  # type: ignore[arg-type]

    def _end_handler(self, lane: Lane) -> str:
        self._slots_of([lane])
        held, slots = self._shares.given_up(), self._options.concurrency
        return f"A thread cannot be ended, so {held} of {slots} slots are held by such handlers"

    def assigned(self, tps: Iterable[TopicPartition]) -> None:
        """Do nothing, because the core learns of partitions by their records."""

    def _poll(self) -> Mapping[TopicPartition, Sequence[Any]]:
        core, consumer = self._shares, self._consumer
        if not self._group_is_known and not core.is_stopping:
            self._read_configs()
            return {}
        with self._lock:
            limit = self._poll_limit()
            if limit is None:
                _client.note_alive(consumer)
                self._ended.wait(LOOK_SECONDS)
                return {}
        _client.set_limit(consumer, limit)
        polled: Mapping[TopicPartition, Sequence[Any]] = consumer.poll(1000 * LOOK_SECONDS)
        core.lock_seconds = consumer.lock_seconds()
        return polled

    def _read_configs(self) -> None:
        """Read the configs of the group, before the first record is polled."""
        try:
            self._note_configs(_client.read_in_thread(self._consumer, COMMIT_SECONDS))
        except ConfigurationError as error:
            self._fail(error)
        except KafkaError as error:
            if error.retriable or isinstance(error, WakeupError):
                raise
            self._warn_of_configs(error)

    def _start_commit(self) -> None:
        """Send all acknowledgements, without a wait."""
        with self._lock:
            self._note_failures()
        _client.flush(self._consumer)

    def _commit_within(self, tps: Iterable[TopicPartition] | None, limit: float) -> None:
        """Release what is held, and send all acknowledgements for ``limit`` seconds."""
        with self._lock:
            self._shares.release_all()
            self._apply()
        deadline = time.monotonic() + limit
        while (left := deadline - time.monotonic()) > 0:
            try:
                failed = self._consumer.commit(timeout_ms=1000 * left)
            except WakeupError:
                self._note_wakeup()
            except ConsumerClosedError:
                return
            except KafkaError as error:
                logger.info("commit failed: %s", error_text(error))
                time.sleep(RETRY_SECONDS)
            else:
                self._log_failed(failed)
                return
