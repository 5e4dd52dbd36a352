"""The log lines of process()."""

from __future__ import annotations

import logging
from typing import Any

from kohort import TopicPartition
from kohort.processing._commands import PolicyFailed, Retried, Skipped
from kohort.processing._core import Core
from kohort.processing._partition import Lane

logger = logging.getLogger("kohort.processing")

MAX_NAMED = 5
"""Most stuck records that one line names."""


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
    """The warnings about records that are in flight for too long, one for each record."""

    def __init__(self, core: Core, seconds: float) -> None:
        self._core = core
        self._seconds = seconds
        self._named: set[tuple[TopicPartition, int]] = set()

    def check(self, now: float) -> None:
        """Log the records that are in flight since ``stuck_after`` seconds."""
        stuck = {_key(lane): lane for lane in self._core.stuck(now - self._seconds)}
        new = [lane for key, lane in stuck.items() if key not in self._named]
        self._named = set(stuck)
        for lane in new[:MAX_NAMED]:
            state = (
                "the handler has not returned" if lane in self._core.running else "it is retried"
            )
            logger.warning(
                "%s: in flight for %.0f s, because %s. The commit of the partition waits for it",
                place(lane.load),
                now - (now if lane.started is None else lane.started),
                state,
            )
        if len(new) > MAX_NAMED:
            logger.warning("%d more records are in flight as long", len(new) - MAX_NAMED)


def _key(lane: Lane) -> tuple[TopicPartition, int]:
    load = lane.load[0] if isinstance(lane.load, list) else lane.load
    return lane.partition.tp, load.offset
