"""What both drivers of process() for share consumers have in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from kohort import KafkaError, ProcessingFacts, TopicPartition
from kohort.errors import ConfigurationError, UnsupportedVersionError
from kohort.logs import error_text
from kohort.processing._commands import Acknowledge, Overdue, Released
from kohort.processing._core import Core
from kohort.processing._dead_letters import DeadLetters
from kohort.processing._processor import Processor
from kohort.processing._reports import described, logger, place, report
from kohort.processing.shares import _client
from kohort.processing.shares._core import ShareCore

_HELD_SLOTS = (
    "all %d slots are held by handlers that do not return within max_runtime of %g s. Restart the "
    "process, and %s"
)


class ShareSteps(Processor[Any]):
    """The steps of a driver for share consumers that neither wait nor send requests."""

    _group_is_known = False
    _held_slots: tuple[str, ...] = ()
    """A sentence if no slot can take a record, as of the latest tick."""
    _remedy: str
    """A sentence's end that says how handlers can have a time limit."""

    def _make_core(self) -> Core:
        options = self._options
        has_lost = partial(_client.has_lost, self._consumer)
        return ShareCore(options.core(0), options.max_runtime, options.concurrency, has_lost)

    def _take_over(self) -> Callable[[ProcessingFacts], None]:
        keeps_bytes = self._letters is not None
        return _client.take_over(self._consumer, facts=self.facts, keeps_bytes=keeps_bytes)

    def facts(self) -> ProcessingFacts:
        """Return the facts for explain() and health(). Any thread may call it."""
        facts = super().facts()
        facts["waiting"] += self._held_slots
        return facts

    def _tick(self, now: float) -> None:
        super()._tick(now)
        slots, limit = self._options.concurrency, self._options.max_runtime
        is_held = self._shares.given_up() >= slots
        self._held_slots = (_HELD_SLOTS % (slots, limit, self._remedy),) if is_held else ()
        if self._core.has_news:
            self._apply()
            _client.flush(self._consumer)  # renewals do not wait for the next poll

    @property
    def _shares(self) -> ShareCore:
        assert isinstance(self._core, ShareCore)
        return self._core

    def _poll_limit(self) -> int | None:
        """Return how many more records the next poll may acquire, or None for no poll.

        Records may come after the poll that has asked for them. They are taken without any room,
        because the core knows which of them must not be released unseen.
        """
        core = self._shares
        limit = 0 if core.is_stopping else max(0, core.room())
        return limit if limit or _client.has_buffered(self._consumer) else None

    def _note_positions(self, tps: object = None) -> None:
        """Do nothing, because a share group has no positions."""

    def _passed_data(self, error: KafkaError) -> dict[TopicPartition, list[Any]] | None:
        """Return None, because the option ``on_error`` of the consumer decides."""
        return None

    def _note_configs(self, configs: dict[str, str | None]) -> None:
        """Note what the group has set. Raise ConfigurationError if letters would be doubled."""
        self._group_is_known = True
        limit = configs.get(_client.LIMIT)
        if limit is not None and limit.isdigit():
            self._shares.delivery_limit = int(limit)
        lock_ms = configs.get(_client.LOCK_MS)
        if lock_ms is not None and lock_ms.isdigit():
            self._shares.lock_seconds = int(lock_ms) / 1000
        if configs.get(_client.RENEWS) == "false":
            self._stop_renewing(f"the group has {_client.RENEWS}=false")
        topic = configs.get(_client.LETTERS)
        if topic and isinstance(self._options.policy, DeadLetters):
            raise ConfigurationError(
                f"process(failed=DeadLetters(...)) is wrong: the brokers write the dead letters of "
                f"this group to {topic!r} already. Leave failed out, or unset {_client.LETTERS} of "
                "the group"
            )

    def _warn_of_configs(self, error: KafkaError) -> None:
        self._group_is_known = True
        logger.warning(
            "the configs of the share group cannot be read: %s. So process() does not know the "
            "last delivery of a record, and the brokers archive it without a call of failed=",
            error_text(error),
        )

    def _carry_out(self, command: Any) -> None:
        match command:
            case Acknowledge(load=record, type=type):
                getattr(self._consumer, type)(record)
            case Released(load=record, error=error, attempts=attempts):
                logger.info(
                    "%s: released after %d attempts in delivery %d, because the handler raised %s",
                    place(record),
                    attempts,
                    record.delivery_count,
                    described(error),
                )
            case Overdue(lane=lane, seconds=seconds):
                logger.warning(
                    "%s: the handler has not returned for %.1f s, and max_runtime is %g s, so its "
                    "result is ignored. %s. Raise max_runtime if it is not stuck",
                    place(lane.load),
                    seconds,
                    self._options.max_runtime,
                    self._end_handler(lane),
                )
            case _:
                report(command)

    def _end_handler(self, lane: Any) -> str:
        """End the handler of a lane, as far as that is possible. Return a sentence that says so."""
        raise NotImplementedError  # each driver has it

    @staticmethod
    def _log_failed(failed: Mapping[TopicPartition, Mapping[int, KafkaError]]) -> None:
        """Log the acknowledgements of a commit that failed."""
        for errors in failed.values():
            for each in errors.values():
                logger.info("%s", error_text(each))

    def _note_failures(self) -> None:
        """Log acknowledgements that failed, and renew no more if the brokers refuse that."""
        core = self._shares
        for tp, errors in _client.take_failures(self._consumer).items():
            for offset, error in errors.items():
                if not (core.is_held(tp, offset) and isinstance(error, UnsupportedVersionError)):
                    logger.info("%s", error_text(error))
                elif core.may_renew:
                    self._stop_renewing(error_text(error))

    def _stop_renewing(self, why: str) -> None:
        """Renew no more, because the brokers refuse that."""
        core = self._shares
        core.may_renew = False
        logger.warning(
            "the brokers refuse to renew locks: %s. A handler that takes longer than a lock, which "
            "is %.0f s, is called again for the same record. Raise share.record.lock.duration.ms "
            "of the group, or let it renew",
            why,
            core.lock_seconds,
        )
