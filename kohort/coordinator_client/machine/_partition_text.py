"""Partitions as text that is safe to log."""

from __future__ import annotations

from collections.abc import Iterable

from kohort.transport import escaped
from kohort.types import TopicPartition

_MAX_TOPICS = 20


def describe(partitions: Iterable[TopicPartition]) -> str:
    """Return text such as ``"orders 0-3, 5; flights 1"``, or ``"none"``."""
    topics: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        topics.setdefault(topic, []).append(number)
    if not topics:
        return "none"
    shown = [
        f"{escaped(topic)} {', '.join(_runs(numbers))}"
        for topic, numbers in list(topics.items())[:_MAX_TOPICS]
    ]
    if len(topics) > _MAX_TOPICS:
        shown.append(f"{len(topics) - _MAX_TOPICS} more topics")
    return "; ".join(shown)


def _runs(numbers: list[int]) -> list[str]:
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return [str(first) if first == last else f"{first}-{last}" for first, last in runs]
