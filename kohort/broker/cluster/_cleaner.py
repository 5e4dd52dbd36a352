"""Background cleaning of logs: retention by time and size, and compaction."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import anyio

from kohort.broker.cluster._topics import Partition, Topic, Topics
from kohort.broker.configs._config_types import split_list
from kohort.errors import IllegalStateError


class Cleaner:
    """Retention at intervals and on request, and compaction on request.

    ``now_ms`` returns the wall clock's time. ``changed`` is called after a log is cleaned.
    """

    def __init__(
        self,
        topics: Topics,
        interval_ms: int,
        now_ms: Callable[[], int],
        changed: Callable[[], None],
    ) -> None:
        self._topics = topics
        self._interval = interval_ms / 1000
        self._now_ms = now_ms
        self._changed = changed
        self._settings_changed = anyio.Event()

    async def run(self) -> None:
        """Apply retention at intervals while any topic has retention; ends by cancellation."""
        while True:
            self._settings_changed = anyio.Event()
            if any(_has_retention(topic) for topic in self._topics):
                await anyio.sleep(self._interval)
                for topic in self._topics:
                    self.delete_old_records(topic)
            else:
                await self._settings_changed.wait()

    def settings_changed(self) -> None:
        """Wake up :meth:`run`, because a topic may have retention now."""
        self._settings_changed.set()

    def delete_old_records(self, topic: Topic) -> None:
        """Move the start of each of the topic's logs past the records that ``retention.*``
        excludes.
        """
        if not _has_retention(topic):
            return
        retention_ms, retention_bytes = _retention(topic)
        oldest_ms = None if retention_ms < 0 else self._now_ms() - retention_ms
        for partition in _led_partitions(topic):
            start = partition.log.first_retained_offset(
                oldest_ms, None if retention_bytes < 0 else retention_bytes
            )
            if start > partition.log.start_offset:
                partition.log.advance_start(start)
                self._changed()

    def compact(self, topic: Topic) -> None:
        """Run one round of compaction; IllegalStateError if the topic is not compacted."""
        if "compact" not in _policies(topic):
            raise IllegalStateError(
                f"topic {topic.name!r} is not compacted: its cleanup.policy is "
                f"{topic.config('cleanup.policy')!r}. Add 'compact' to it"
            )
        for partition in _led_partitions(topic):
            partition.log.compact(
                self._now_ms(),
                int(topic.config("delete.retention.ms")),
                int(topic.config("min.compaction.lag.ms")),
            )
        self._changed()


def _led_partitions(topic: Topic) -> Iterator[Partition]:
    return (partition for partition in topic.partitions if partition.leader >= 0)


def _policies(topic: Topic) -> list[str]:
    return split_list(topic.config("cleanup.policy"))


def _retention(topic: Topic) -> tuple[int, int]:
    """Return (ms, bytes), -1 for no limit."""
    return int(topic.config("retention.ms")), int(topic.config("retention.bytes"))


def _has_retention(topic: Topic) -> bool:
    return "delete" in _policies(topic) and max(_retention(topic)) >= 0
