"""Who leads a partition, and the search for a leader where there is none."""

from __future__ import annotations

import random
from collections.abc import Collection

from kohort.fetcher._cluster import Cluster
from kohort.fetcher._retries import Retries
from kohort.transport import Backoff, Leader
from kohort.types import TopicPartition


class Leaders:
    """Leaders as the metadata has them.

    The back-off is between refreshes alone: a leader that turns up meanwhile is asked at once.
    """

    def __init__(self, cluster: Cluster, backoff: Backoff, rng: random.Random) -> None:
        self._cluster = cluster
        self._searches: Retries[TopicPartition] = Retries(backoff, rng)

    def find(self, tp: TopicPartition) -> Leader | None:
        """None: nobody leads it at the moment, or the metadata does not have it yet."""
        leader = self._cluster.metadata.leader(tp)
        if leader is not None:
            self._searches.succeeded(tp)
        return leader

    def search(self, tp: TopicPartition, now: float) -> float:
        """Have the metadata refreshed, unless that was just done; returns when to look again."""
        at = self._searches.not_before(tp)
        if at <= now:
            self._cluster.request_refresh()
            at = self._searches.failed(tp, now)
        return at

    def keep_only(self, partitions: Collection[TopicPartition]) -> None:
        """Forget the search for any others."""
        self._searches.keep_only(partitions)
