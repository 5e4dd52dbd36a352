"""Messages that kohort has returned and the program has not, in runs of one partition."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from typing import Any

from kohort import TopicPartition


class Buffer:
    """Fetched messages in the order of their delivery.

    kohort's positions are behind these messages, so nothing commits those: a consumer commits what
    it has delivered. ``last`` has the latest delivered message of each partition.
    """

    def __init__(self) -> None:
        self._runs: deque[tuple[TopicPartition | None, list[Any]]] = deque()
        self._at = 0
        """Index of the next message in the first run."""
        self.count: int = 0
        self.last: dict[TopicPartition, Any] = {}

    def add(self, tp: TopicPartition | None, messages: list[Any]) -> None:
        """Append messages of a partition; None stands for events."""
        self._runs.append((tp, messages))
        self.count += len(messages)

    def take_one(self) -> Any:
        """Return the next message; there must be one."""
        tp, run = self._runs[0]
        message = run[self._at]
        if tp is not None:
            self.last[tp] = message
        self._at += 1
        self.count -= 1
        if self._at == len(run):
            self._runs.popleft()
            self._at = 0
        return message

    def take(self, most: int) -> list[Any]:
        """Return the next messages, at most ``most``."""
        taken: list[Any] = []
        while self._runs and len(taken) < most:
            tp, run = self._runs[0]
            end = self._at + most - len(taken)
            part = run if self._at == 0 and end >= len(run) else run[self._at : end]
            if tp is not None:
                self.last[tp] = part[-1]
            if end >= len(run):
                self._runs.popleft()
                self._at = 0
            else:
                self._at = end
            self.count -= len(part)
            taken = taken + part if taken else part
        return taken

    def put_back(self, messages: list[Any]) -> None:
        """Return taken messages to the front, as if they had not been delivered."""
        if self._at:
            tp, run = self._runs[0]
            self._runs[0], self._at = (tp, run[self._at :]), 0
        for message in reversed(messages):
            at = None
            if message.error() is None:
                at = TopicPartition(message.topic(), message.partition())
                self.last.pop(at, None)
            self._runs.appendleft((at, [message]))
            self.count += 1

    def drop(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Remove the messages of partitions, and return the first offset of each."""
        first: dict[TopicPartition, int] = {}
        kept: deque[tuple[TopicPartition | None, list[Any]]] = deque()
        for index, (tp, run) in enumerate(self._runs):
            left = run[self._at :] if index == 0 else run
            if tp is not None and tp in partitions:
                first.setdefault(tp, left[0].offset())
                self.count -= len(left)
            else:
                kept.append((tp, left))
        self._runs, self._at = kept, 0
        return first

    def has(self, tp: TopicPartition) -> bool:
        """True if messages of the partition wait."""
        return any(each == tp for each, _ in self._runs)

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """Remove the messages of partitions, and what was delivered of them."""
        self.drop(partitions)
        for tp in partitions:
            self.last.pop(tp, None)
