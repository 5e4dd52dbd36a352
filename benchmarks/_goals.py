"""Goals of measurements, compared with the figures of a run."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from benchmarks._rounds import short, table

Figures = Mapping[Any, Sequence[float]]
"""Figures of each measured case, one a round."""


class Figure(NamedTuple):
    """Figure of all rounds, and those of the single rounds."""

    value: float
    rounds: list[float]


class Goal(NamedTuple):
    """Goal for the figures of a case, as a ratio to those of ``over`` unless that is None.

    A goal below its floor means that less is better.
    """

    text: str
    case: Any
    over: Any
    goal: float
    floor: float

    def figure(self, figures: Figures) -> Figure | None:
        """Return the median, or the ratio of the medians. None without figures of both sides."""
        ours = figures.get(self.case, ())
        theirs = figures.get(self.over, ()) if self.over is not None else [1.0] * len(ours)
        if not ours or not theirs or not min(*ours, *theirs):
            return None
        rounds = [a / b for a, b in zip(ours, theirs, strict=False)]
        return Figure(statistics.median(ours) / statistics.median(theirs), rounds)

    def cells(self, value: float) -> list[str]:
        """Return the cells of a table for a value: the goal, its floor and the verdict."""
        return [f"{self.goal:g}", f"{self.floor:g}", verdict(value, self.goal, self.floor)]


def verdict(value: float, goal: float, floor: float) -> str:
    """Compare a figure with its goal and floor. A goal below its floor means less is better."""
    sign = -1 if goal < floor else 1
    if sign * value >= sign * goal:
        return "reached"
    return "above the floor" if sign * value >= sign * floor else "**below the floor**"


def goal_table(
    figures: Figures, wanted: Iterable[Goal], head: str = "measure", floor: str = "never above"
) -> str:
    """Return a Markdown table of the goals that were measured."""
    rows = (
        [goal.text, short(figure.value), *goal.cells(figure.value)]
        for goal in wanted
        if (figure := goal.figure(figures)) is not None
    )
    return table([head, "figure", "goal", floor, ""], "lrrrl", rows)
