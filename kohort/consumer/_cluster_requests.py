"""The requests for cluster metadata, with their time limits."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import anyio

from kohort.errors import ErrorCode, KafkaTimeoutError
from kohort.transport import ClusterClient, ClusterMetadata, in_seconds

if TYPE_CHECKING:
    from uuid import UUID


class ClusterRequests:
    """The requests for cluster metadata. A timeout of None is ``request_timeout_ms``."""

    def __init__(
        self,
        cluster: ClusterClient,
        *,
        timeout: float,
        retry_pause: float,
        hides_internal_topics: bool,
    ) -> None:
        self._cluster = cluster
        self._timeout = timeout
        self._retry_pause = retry_pause
        self._hides_internal_topics = hides_internal_topics

    async def bootstrap(self, timeout: float | None, *, refresh: bool) -> None:
        """Wait for the cluster metadata, and with ``refresh`` for another update of it.

        Raise NoBrokersAvailable after ``bootstrap_timeout_ms``, and KafkaTimeoutError after
        ``timeout``; None is no limit here.
        """
        with TimeLimit(timeout, "the cluster metadata was not received"):
            await self._cluster.wait_bootstrapped()
            if refresh:
                await self._cluster.wait_refreshed()

    async def wait_bootstrapped(self, timeout: float | None) -> float:
        """Wait for the first metadata, and return the seconds left of the timeout."""
        seconds = self._seconds(timeout)
        if self._cluster.bootstrapped:
            return seconds
        until = anyio.current_time() + seconds
        with TimeLimit(seconds, "no broker was reached"):
            await self._cluster.wait_bootstrapped()
        return max(0.0, until - anyio.current_time())

    def _seconds(self, timeout: float | None) -> float:
        return self._timeout if timeout is None else timeout

    async def partitions_of(self, topic: str, timeout: float | None) -> frozenset[int]:
        """Return the partitions of a topic, requested if unknown. Empty if there is no topic."""
        with TimeLimit(self._seconds(timeout), f"no metadata of topic {topic!r} arrived"):
            metadata = self._cluster.metadata
            while not metadata.partitions_for(topic):
                # A request for one name could create the topic, so all topics are requested.
                metadata = await self._cluster.fetch_topics(None)
                known = metadata.topics.get(topic)
                if known is None or known.error != ErrorCode.LEADER_NOT_AVAILABLE:
                    break
                # The topic exists, but its leaders are not elected yet.
                await anyio.sleep(self._retry_pause)
            return frozenset(metadata.partitions_for(topic))

    async def all_topics(self, timeout: float | None) -> frozenset[str]:
        """Return the names of all topics of the cluster, by a new request."""
        with TimeLimit(self._seconds(timeout), "the list of topics was not received"):
            return self.visible_topics(await self._cluster.fetch_topics(None))

    def visible_topics(self, metadata: ClusterMetadata) -> frozenset[str]:
        """Return the names in cluster metadata, without internal topics if they are hidden."""
        hide, known = self._hides_internal_topics, metadata.topics
        return frozenset(name for name, topic in known.items() if not (hide and topic.is_internal))

    async def topic_ids(self, names: Iterable[str], timeout: float | None) -> dict[str, UUID]:
        """Return the ids of topics by a new request. Brokers before Kafka 2.8 have no ids.

        Topics that do not exist or have no id are left out.
        """
        from uuid import UUID

        wanted = frozenset(names)
        with TimeLimit(self._seconds(timeout), "the ids of topics were not received"):
            metadata = await self._cluster.fetch_topics(wanted, may_create=False)
        known = {name: metadata.topics[name] for name in wanted if name in metadata.topics}
        return {
            name: UUID(bytes=topic.topic_id)
            for name, topic in known.items()
            if not topic.error and any(topic.topic_id)
        }


class TimeLimit:
    """A time limit that raises KafkaTimeoutError, which begins with ``text``."""

    def __init__(self, seconds: float | None, text: str) -> None:
        self._seconds, self._text = seconds, text

    def __enter__(self) -> None:
        self._scope = anyio.fail_after(self._seconds)
        self._scope.__enter__()

    def __exit__(self, *exc_info: Any) -> bool | None:
        try:
            return self._scope.__exit__(*exc_info)
        except TimeoutError as error:
            raise KafkaTimeoutError(f"{self._text} within {in_seconds(self._seconds)}") from error
