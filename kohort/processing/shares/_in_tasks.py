"""The driver of process() for AsyncShareConsumer: that of AsyncKafkaConsumer without offsets."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import anyio

from kohort import AsyncShareConsumer, KafkaError, TopicPartition
from kohort.errors import ConfigurationError, ConsumerClosedError, WakeupError
from kohort.logs import error_text
from kohort.processing._in_tasks import POLL_MS, AsyncProcessor
from kohort.processing._options import ProcessOptions
from kohort.processing._partition import Lane
from kohort.processing._processor import COMMIT_SECONDS, RETRY_SECONDS, TICK_SECONDS
from kohort.processing._reports import logger
from kohort.processing.shares import _client
from kohort.processing.shares._processor import ShareSteps


class AsyncShareProcessor(ShareSteps, AsyncProcessor):
    """One call of process() with an AsyncShareConsumer."""

    _remedy = "let each handler end when it is cancelled"

    def __init__(
        self, consumer: AsyncShareConsumer, handler: Callable[..., Any], options: ProcessOptions
    ) -> None:
        self._consumer: Any
        super().__init__(consumer, handler, options)  # type: ignore[arg-type]

    def _end_handler(self, lane: Lane) -> str:
        self._cancel([lane])
        return "It is cancelled"

    async def assigned(self, tps: Iterable[TopicPartition]) -> None:
        """Do nothing, because the core learns of partitions by their records."""

    async def _read_configs(self) -> None:
        """Read the configs of the group, before the first record is polled."""
        try:
            self._note_configs(await _client.read_in_task(self._consumer, COMMIT_SECONDS))
        except WakeupError:
            self._note_wakeup()
        except ConfigurationError as error:
            self._fail(error)
        except KafkaError as error:
            if not error.retriable:
                self._warn_of_configs(error)
            else:
                logger.warning("process() goes on after an error: %s", error_text(error))
                await anyio.sleep(RETRY_SECONDS)

    async def _poll(self) -> None:
        core, consumer = self._shares, self._consumer
        while True:
            if not self._group_is_known and not core.is_stopping:
                await self._read_configs()
                continue
            try:
                if (limit := self._poll_limit()) is None:
                    _client.note_alive(consumer)
                    news = self._news
                    with anyio.move_on_after(TICK_SECONDS):
                        await news.wait()
                    continue
                _client.set_limit(consumer, limit)
                polled = await consumer.poll(timeout_ms=POLL_MS)
            except WakeupError:
                self._note_wakeup()
                continue
            except KafkaError as error:
                if error.retriable:
                    logger.warning("process() goes on after an error: %s", error_text(error))
                else:
                    self._fail(error)
                    if isinstance(error, ConsumerClosedError):
                        return
                await anyio.sleep(RETRY_SECONDS)
                continue
            core.lock_seconds = consumer.lock_seconds()
            for tp, records in polled.items():
                core.records(tp, records, anyio.current_time())
            self._note_failures()
            if core.has_news:
                self._apply()
            self._start_slot()

    async def _commit_at_intervals(self) -> None:
        while True:
            await anyio.sleep(self._options.commit_interval)
            self._note_failures()
            _client.flush(self._consumer)

    async def _commit(self, tps: Iterable[TopicPartition] | None, limit: float) -> bool:
        """Release what is held, and send all acknowledgements. Return False if it failed."""
        self._shares.release_all()
        self._apply()
        try:
            failed = await self._consumer.commit(timeout_ms=1000 * limit)
        except ConsumerClosedError:
            return True
        except KafkaError as error:
            logger.info("commit failed: %s", error_text(error))
            return False
        self._log_failed(failed)
        return True
