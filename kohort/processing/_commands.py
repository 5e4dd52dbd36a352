"""The commands of the core, which its drivers carry out.

A driver may carry out a command after its lane has gone on. So a command has the load, and not the
lane, unless the lane is to be changed.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, TypeAlias

from kohort import TopicPartition
from kohort.processing._partition import Lane


class Pause(NamedTuple):
    """Command: return no more records of this partition for now."""

    tp: TopicPartition


class Resume(NamedTuple):
    """Command: return records of this partition again."""

    tp: TopicPartition


class Opened(NamedTuple):
    """Command: call the program's function with the records of this lane."""

    lane: Lane


class Retried(NamedTuple):
    """Command: log that the handler raised, and when it is called again."""

    load: Any
    error: Exception
    attempts: int
    pause: float


class Skipped(NamedTuple):
    """Command: log that a failed record was skipped."""

    load: Any
    error: Exception
    attempts: int


class PolicyFailed(NamedTuple):
    """Command: log that the ``failed`` policy raised, and when it is called again."""

    load: Any
    error: Exception
    pause: float


class StopRequest(NamedTuple):
    """Command: stop as after a signal, and then raise the error, unless it is None."""

    error: Exception | None
    load: Any
    attempts: int


class Acknowledge(NamedTuple):
    """Command: note what becomes of a record of a share group."""

    load: Any
    type: Literal["accept", "release", "reject", "renew"]


class Released(NamedTuple):
    """Command: log that a failed record is given back to its share group."""

    load: Any
    error: Exception
    attempts: int


class Overdue(NamedTuple):
    """Command: end the handler of this lane, because it has run for ``max_runtime``."""

    lane: Lane
    seconds: float


Command: TypeAlias = (
    Pause
    | Resume
    | Opened
    | Retried
    | Skipped
    | PolicyFailed
    | StopRequest
    | Acknowledge
    | Released
    | Overdue
)
