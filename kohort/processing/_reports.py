"""The log lines of process()."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from typing import Any

from kohort import TopicPartition
from kohort.processing._commands import PolicyFailed, Retried, Skipped
from kohort.processing._core import Core
from kohort.processing._partition import Lane

logger = logging.getLogger("kohort.processing")

MAX_NAMED = 5
"""Most stuck records that are named at a time."""
CHECK_SECONDS = 1.0
"""Shortest time between two searches for stuck records."""


def place(load: Any) -> str:
    """Return the place of a record or a batch, such as ``orders-0 offset 17``."""
    first = load[0] if isinstance(load, list) else load
    return f"{first.topic}-{first.partition} offset {first.offset}"


def described(error: BaseException) -> str:
    """Return the type and the text of an error."""
    return f"{type(error).__name__}: {error}"


def report(command: Retried | Skipped | PolicyFailed) -> None:
    """Log what happened to a record whose handler raised."""
    match command:
        case Retried(lane=lane, error=error, pause=pause):
            logger.info(
                "%s: the handler raised %s in attempt %d. The next attempt follows in %.1f s",
                place(lane.load),
                described(error),
                lane.attempt,
                pause,
            )
        case Skipped(load=load, error=error, attempts=attempts):
            logger.warning(
                "%s: skipped after %d attempts, because the handler raised %s",
                place(load),
                attempts,
                described(error),
            )
        case PolicyFailed(lane=lane, error=error, pause=pause):
            logger.warning(
                "%s: failed= raised %s, so the record stays in flight. failed= is called again in "
                "%.1f s",
                place(lane.load),
                described(error),
                pause,
            )


class StuckWatch:
    """The records that are in flight for too long, and one warning about each of them.

    A handler that has not returned is *stuck*: a restart frees its slot. A record that is retried
    *waits*, for example for the end of an outage, and a restart changes nothing. The sentences on
    both are tuples that are replaced, so that any thread may read them.
    """

    def __init__(self, core: Core, seconds: float) -> None:
        self._core = core
        self._seconds = seconds
        self._named: set[tuple[TopicPartition, int]] = set()
        self._check_at = -math.inf
        self.stuck: tuple[str, ...] = ()
        """Sentences on handlers that have not returned, as of the latest check."""
        self.waiting: tuple[str, ...] = ()
        """Sentences on records that are retried."""

    def check(self, now: float) -> None:
        """Find the records that are in flight since ``stuck_after`` seconds. Log new ones.

        A call within ``CHECK_SECONDS`` of the latest one does nothing, because there may be many.
        """
        if now < self._check_at:
            return
        self._check_at = now + CHECK_SECONDS
        before, core = now - self._seconds, self._core
        found = {_key(lane): lane for lane in core.stuck(before)}
        hung = {lane for lane in found.values() if lane in core.running and lane.called() <= before}
        self.stuck = tuple(_sentences(found, hung, now, among=True))
        self.waiting = tuple(_sentences(found, hung, now, among=False))
        new = [lane for key, lane in found.items() if key not in self._named]
        self._named = set(found)
        for lane in new[:MAX_NAMED]:
            logger.warning("%s. %s", _sentence(lane, now, lane in hung), _effect(lane))
        if len(new) > MAX_NAMED:
            logger.warning(_MORE, len(new) - MAX_NAMED)


_MORE = "%d more records are in flight as long"


def _sentences(
    found: dict[tuple[TopicPartition, int], Lane], hung: set[Lane], now: float, *, among: bool
) -> Iterator[str]:
    lanes = [lane for lane in found.values() if (lane in hung) is among]
    for lane in lanes[:MAX_NAMED]:
        yield _sentence(lane, now, among)
    if len(lanes) > MAX_NAMED:
        yield _MORE % (len(lanes) - MAX_NAMED)


def _sentence(lane: Lane, now: float, is_hung: bool) -> str:
    seconds = now - (now if lane.started is None else lane.started)
    state = "the handler has not returned" if is_hung else "it is retried"
    return f"{place(lane.load)}: in flight for {seconds:.0f} s, because {state}"


def _effect(lane: Lane) -> str:
    if lane.partition.is_dropped:
        return "The partition is no longer owned, and the handler keeps its slot"
    return "The commit of the partition waits for it"


def _key(lane: Lane) -> tuple[TopicPartition, int]:
    load = lane.load[0] if isinstance(lane.load, list) else lane.load
    return lane.partition.tp, load.offset
