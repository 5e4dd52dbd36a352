"""Messages that kohort has returned and the program has not, in runs of one partition."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from typing import Any, NamedTuple

from kohort import TopicPartition


class Run(NamedTuple):
    """Messages of one partition, or one event, maybe of a partition."""

    tp: TopicPartition | None
    messages: list[Any]
    has_records: bool


class Buffer:
    """Fetched messages in the order of their delivery.

    kohort's positions are behind these messages, so nothing commits those: a consumer commits what
    it has delivered. ``last`` has the latest delivered message of each partition.
    """

    def __init__(self) -> None:
        self._runs: deque[Run] = deque()
        self._at = 0
        """Index of the next message in the first run."""
        self.count: int = 0
        self.last: dict[TopicPartition, Any] = {}

    def add(self, tp: TopicPartition, messages: list[Any]) -> None:
        """Append records of a partition."""
        self._runs.append(Run(tp, messages, True))
        self.count += len(messages)

    def add_event(self, tp: TopicPartition | None, message: Any) -> None:
        """Append a message that is no record."""
        self._runs.append(Run(tp, [message], False))
        self.count += 1

    def take_one(self) -> Any:
        """Return the next message; there must be one."""
        tp, run, has_records = self._runs[0]
        message = run[self._at]
        if has_records:
            self.last[tp] = message  # type: ignore[index]  # records have a partition
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
            tp, run, has_records = self._runs[0]
            end = self._at + most - len(taken)
            part = run if self._at == 0 and end >= len(run) else run[self._at : end]
            if has_records:
                self.last[tp] = part[-1]  # type: ignore[index]  # records have a partition
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
        self._cut()
        for message in reversed(messages):
            at = None
            has_records = message.error() is None
            if message.partition() is not None:
                at = TopicPartition(message.topic(), message.partition())
            if has_records and at is not None:
                self.last.pop(at, None)
            self._runs.appendleft(Run(at, [message], has_records))
            self.count += 1

    def _cut(self) -> None:
        """Remove the delivered messages of the first run."""
        if self._at:
            first = self._runs[0]
            self._runs[0] = first._replace(messages=first.messages[self._at :])
            self._at = 0

    def drop(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Remove the messages and events of partitions, and return the first offset of each."""
        self._cut()
        first: dict[TopicPartition, int] = {}
        kept: deque[Run] = deque()
        for run in self._runs:
            if run.tp is None or run.tp not in partitions:
                kept.append(run)
                continue
            self.count -= len(run.messages)
            if run.has_records:
                first.setdefault(run.tp, run.messages[0].offset())
        self._runs = kept
        return first

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """Remove the messages of partitions, and what was delivered of them."""
        self.drop(partitions)
        for tp in partitions:
            self.last.pop(tp, None)
