"""RefreshSchedule: when the metadata is refreshed, and which refresh a caller waits for."""

from __future__ import annotations

import random

import anyio

from kohort.config import ClientConfig
from kohort.transport._backoff import Backoff
from kohort.transport.cluster._metadata import ClusterMetadata
from kohort.transport.network._loop import TaskSignal

REFUSED_SECONDS = 1.0
"""Pause before the first refresh after a topic was refused. Later pauses are longer."""


class RefreshSchedule:
    """Due time of the next refresh. Refreshes have numbers, in the order in which they begin."""

    def __init__(self, config: ClientConfig, backoff: Backoff, rng: random.Random) -> None:
        self._max_age = max(config.metadata_max_age_ms / 1000, backoff.initial)
        self._backoff = backoff
        self._rng = rng
        self._requested = 1
        self._started = 0
        self._completed = 0
        self._not_before = 0.0  # earliest refresh of a stale snapshot
        self._due = 0.0
        self._incomplete = 0  # incomplete responses in a row
        self._refused_topics: frozenset[str] = frozenset()
        self._refused_responses = 0  # responses in a row with these
        self._changed = TaskSignal()

    def request(self) -> int:
        """Request a refresh that begins after this call, and return its number."""
        self._requested = max(self._requested, self._started + 1)
        self._changed.notify()
        return self._requested

    def request_now(self) -> None:
        """Request a refresh without a pause after the one before."""
        self._not_before = 0.0
        self.request()

    def has_completed(self, number: int) -> bool:
        """True if the response of the refresh has come."""
        return self._completed >= number

    async def wait_due(self) -> None:
        """Wait until a refresh is due."""
        while True:
            at = self._due
            if self._completed < self._requested:
                at = min(at, self._not_before)
            if anyio.current_time() >= at:
                self._requested = max(self._requested, self._completed + 1)
                return
            with anyio.CancelScope(deadline=at):
                await self._changed.wait()

    def begin(self) -> None:
        """Mark the requested refresh as started."""
        self._started = self._requested

    def complete(self) -> None:
        """Mark the started refresh as completed."""
        self._completed = self._started

    def set_next(self, snapshot: ClusterMetadata, wanted: frozenset[str] | None) -> None:
        """Set the time of the next refresh, which is soon if the response was incomplete."""
        now = anyio.current_time()
        if all(topic.is_complete for topic in snapshot.topics.values()):
            self._incomplete = 0
            self._due = now + self._interval(snapshot.refused(wanted or ()))
        else:
            self._incomplete += 1
            self._due = now + self._backoff.delay(self._incomplete, self._rng)
        self._not_before = now + self._backoff.delay(1, self._rng)
        if wanted is not None and not wanted <= snapshot.topics.keys():
            self._not_before = 0.0  # more topics were requested during this refresh

    def _interval(self, refused: frozenset[str]) -> float:
        """Return the seconds to the next refresh, fewer after a refusal, as rights may be added."""
        if refused != self._refused_topics:
            self._refused_topics, self._refused_responses = refused, 0
        if not refused:
            return self._max_age
        self._refused_responses += 1
        backoff = Backoff(min(REFUSED_SECONDS, self._max_age), self._max_age)
        return backoff.delay(self._refused_responses, self._rng)
