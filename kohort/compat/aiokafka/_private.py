"""Private attributes of aiokafka's consumer that other code reads.

- OpenTelemetry reads ``_group_id``, ``_client._bootstrap_servers`` and ``_client._client_id``.
- FastStream reads ``_group_id``, ``_coordinator.member_id`` and ``_subscription.topics``.
- kstreams reads ``_group_id``, ``_enable_auto_commit``, ``_auto_offset_reset`` and ``_closed``.
- Tests of kstreams read ``_client._ssl_context``, ``_client._topics``, ``_subscription._listener``.
- Tests of aiokafka read ``_fetcher``, ``_loop``, and the options of ``_coordinator``.
- They also read ``_client.cluster.topics()`` and ``_client.force_metadata_update()``.
- They also read ``_subscription.subscription`` and ``_subscription.wait_for_assignment()``.

``_subscription`` is a :class:`SubscriptionView`. ``_client`` takes any attribute that is set.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import Any

from kohort import AsyncKafkaConsumer, ConsumerGroupMetadata

INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state"})
"""Topics that ``topics()`` leaves out."""


class AioCluster:
    """Object behind ``_client.cluster``."""

    def __init__(self, consumer: weakref.ref[Any]) -> None:
        self._consumer = consumer
        self.names: frozenset[str] = frozenset()

    def topics(self, exclude_internal_topics: bool = True) -> set[str]:
        """Return the topics that are known now."""
        consumer = self._consumer()
        known = set(self.names) | set(() if consumer is None else consumer.subscription())
        return known - INTERNAL_TOPICS if exclude_internal_topics else known

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        """Return the known partitions of a topic, or None."""
        consumer = self._consumer()
        found: set[int] | None = None if consumer is None else consumer.partitions_for_topic(topic)
        return found


class AioClient:
    """Object behind ``_client``."""

    def __init__(self, consumer: Any, options: Mapping[str, Any]) -> None:
        self._consumer: weakref.ref[Any] = weakref.ref(consumer)
        self._options: Mapping[str, Any] = options
        self.cluster: AioCluster = AioCluster(self._consumer)

    @property
    def _bootstrap_servers(self) -> Any:
        return self._options["bootstrap_servers"]

    @property
    def _client_id(self) -> Any:
        return self._options["client_id"]

    @property
    def _ssl_context(self) -> Any:
        return self._options["ssl_context"]

    @property
    def _topics(self) -> set[str]:
        consumer = self._consumer()
        return set() if consumer is None else set(consumer._subscription.topics)

    async def force_metadata_update(self) -> bool:
        """Request the metadata of all topics."""
        consumer = self._consumer()
        if consumer is not None:
            await consumer.topics()
        return consumer is not None


class AioCoordinator:
    """Object behind ``_coordinator``; it has the options of the group as attributes."""

    def __init__(self, native: AsyncKafkaConsumer[Any, Any], options: Mapping[str, Any]) -> None:
        self._read: weakref.WeakMethod[Any] = weakref.WeakMethod(native.group_metadata)
        self.group_id: str | None = options["group_id"]
        self._session_timeout_ms: int = options["session_timeout_ms"]
        self._heartbeat_interval_ms: int = options["heartbeat_interval_ms"]
        self._retry_backoff_ms: int = options["retry_backoff_ms"]
        self._auto_commit_interval_ms: int = options["auto_commit_interval_ms"]
        self._exclude_internal_topics: bool = options["exclude_internal_topics"]
        self._enable_auto_commit: bool = options["enable_auto_commit"]

    def _member(self) -> ConsumerGroupMetadata:
        read = self._read()
        found: ConsumerGroupMetadata = ConsumerGroupMetadata() if read is None else read()
        return found

    @property
    def member_id(self) -> str:
        """Id of the member, empty before it has joined."""
        return "" if self.group_id is None else self._member().member_id

    @property
    def generation(self) -> int:
        """Generation of the group, -1 before it has joined."""
        return -1 if self.group_id is None else self._member().generation_id
