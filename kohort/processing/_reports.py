"""The log lines of process()."""

from __future__ import annotations

import math
from typing import Any

from kohort import TopicPartition
from kohort.logs import PlacedText, error_text, get_logger
from kohort.processing._commands import PolicyFailed, Retried, Skipped
from kohort.processing._core import Core
from kohort.processing._dead_letters import DeadLetters
from kohort.processing._partition import Lane

logger = get_logger("kohort.processing")

MAX_NAMED = 5
"""Most stuck records that are named at a time."""
LETTER_SECONDS = 10.0
"""Seconds after which explain() names a record whose dead letter is not acknowledged."""
CHECK_SECONDS = 1.0
"""Shortest time between two searches for stuck records."""


def place(load: Any) -> str:
    """Return the place of a record or a batch, such as ``orders-0 offset 17``."""
    first = load[0] if isinstance(load, list) else load
    return PlacedText(
        f"{first.topic}-{first.partition} offset {first.offset}",
        topic=first.topic,
        partition=first.partition,
        offset=first.offset,
    )


def described(error: BaseException) -> str:
    """Return the type and the text of an error."""
    return PlacedText(f"{type(error).__name__}: {error}", **error_text(error).fields)


def report(command: Retried | Skipped | PolicyFailed) -> None:
    """Log what happened to a record whose handler raised."""
    match command:
        case Retried(load=load, error=error, attempts=attempts, pause=pause):
            logger.info(
                "%s: the handler raised %s in attempt %d. The next attempt follows in %.1f s",
                place(load),
                described(error),
                attempts,
                pause,
            )
        case Skipped(load=load, error=error, attempts=attempts):
            logger.warning(
                "%s: skipped after %d attempts, because the handler raised %s",
                place(load),
                attempts,
                described(error),
            )
        case PolicyFailed(load=load, error=error, pause=pause):
            logger.warning(
                "%s: failed= raised %s, so the record stays in flight. failed= is called again in "
                "%.1f s",
                place(load),
                described(error),
                pause,
            )


class StuckWatch:
    """The records that are in flight for too long, and one warning about each of them.

    A handler that has not returned is *stuck*: a restart frees its slot. A record that is retried
    *waits*, for example for the end of an outage, and a restart changes nothing. A record whose
    dead letter kohort writes waits, too. The sentences are tuples that are replaced, so that any
    thread may read them.
    """

    def __init__(self, core: Core, seconds: float, letters: DeadLetters | None) -> None:
        self._core = core
        self._seconds = seconds
        self._letters = letters
        self._named: set[tuple[TopicPartition, int]] = set()
        self._check_at = -math.inf
        self.stuck: tuple[str, ...] = ()
        """Sentences on handlers that have not returned, as of the latest check."""
        self.waiting: tuple[str, ...] = ()
        """Sentences on records that wait for a retry or for their dead letter."""
        self.letters: tuple[str, ...] = ()
        """Sentences on records that wait for their dead letter, and not yet as long."""

    def check(self, now: float) -> None:
        """Find the records that are in flight since ``stuck_after`` seconds. Log new ones.

        A call within ``CHECK_SECONDS`` of the latest one does nothing, because there may be many.
        """
        if now < self._check_at:
            return
        self._check_at = now + CHECK_SECONDS
        before, core = now - self._seconds, self._core
        found = {_key(lane): lane for lane in core.stuck(before)}
        hung = {lane for lane in found.values() if self._is_hung(lane, before)}
        waiting = [lane for lane in found.values() if lane not in hung]
        late = () if self._letters is None else core.stuck(now - LETTER_SECONDS)
        letters = [
            lane
            for lane in late
            if _key(lane) not in found and _waits_for_policy(lane, now - LETTER_SECONDS)
        ]
        self.stuck = _limited([self._sentence(lane, now, is_hung=True) for lane in hung])
        self.waiting = _limited([self._sentence(lane, now) for lane in waiting])
        self.letters = _limited([self._sentence(lane, now) for lane in letters])
        new = [lane for key, lane in found.items() if key not in self._named]
        self._named = set(found)
        for lane in new[:MAX_NAMED]:
            sentence = self._sentence(lane, now, is_hung=lane in hung)
            logger.warning("%s. %s", sentence, self._effect(lane))
        if len(new) > MAX_NAMED:
            logger.warning(_MORE, len(new) - MAX_NAMED)

    def _is_hung(self, lane: Lane, before: float) -> bool:
        """Return True if a function of the program has not returned since ``before``."""
        if lane not in self._core.running or lane.called() > before:
            return False
        return lane.error is None or self._letters is None or self._letters.send is not None

    def _effect(self, lane: Lane) -> str:
        if lane.partition.is_dropped:
            return "The partition is no longer owned, and the handler keeps its slot"
        return self._core.effect_of_stuck(lane)

    def _sentence(self, lane: Lane, now: float, *, is_hung: bool = False) -> str:
        seconds = now - (now if lane.started is None else lane.started)
        state = "it is retried"
        if is_hung:
            state = f"{'the handler' if lane.error is None else 'failed='} has not returned"
        elif lane.error is not None and self._letters is not None:
            state = f"its dead letter for the topic {self._letters.topic!r} is not acknowledged"
            if lane.failures:
                state += f". The latest attempt raised {described(lane.failure)}"
        return place(lane.load) + f": in flight for {seconds:.0f} s, because {state}"


_MORE = "%d more records are in flight as long"


def _limited(sentences: list[str]) -> tuple[str, ...]:
    """Return the first sentences, and one that counts the others."""
    more = len(sentences) - MAX_NAMED
    return tuple(sentences[:MAX_NAMED]) + ((_MORE % more,) if more > 0 else ())


def _waits_for_policy(lane: Lane, before: float) -> bool:
    """Return True if ``failed=`` has raised, or runs since ``before``."""
    return lane.error is not None and (lane.failures > 0 or lane.called() <= before)


def _key(lane: Lane) -> tuple[TopicPartition, int]:
    load = lane.load[0] if isinstance(lane.load, list) else lane.load
    return lane.partition.tp, load.offset
