"""Times at which repeated work is due."""

from __future__ import annotations

from collections.abc import Callable, Hashable


class Schedule:
    """Due time of each task. A task without one is due."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._due: dict[Hashable, float] = {}

    def is_due(self, task: Hashable) -> bool:
        due = self._due.get(task)
        return due is None or self._clock() >= due

    def postpone(self, task: Hashable, seconds: float) -> None:
        """Let the task be due in this time from now."""
        self._due[task] = self._clock() + seconds

    def make_due(self, *tasks: Hashable) -> None:
        """Let the tasks be due now."""
        for task in tasks:
            self._due.pop(task, None)
