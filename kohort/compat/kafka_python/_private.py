"""Private attributes of kafka-python's consumer that other code reads.

- ``_closed``, ``_client.cluster.brokers()``, ``_client.cluster._topics``: its tests
- ``_coordinator.heartbeat`` and its times: its tests
- ``_coordinator.state``, ``.member_id``, ``.generation_if_stable()``: its tests, health checks
- ``_client.in_flight_request_count()``: health checks

``config`` is public. OpenTelemetry reads ``config["bootstrap_servers"]``.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from kohort import KafkaConsumer as NativeConsumer
from kohort.compat.kafka_python.structs import ConsumerGroupMetadata, MemberState


class Generation(NamedTuple):
    """Generation of a member, as ``generation_if_stable()`` returns it."""

    generation_id: int
    member_id: str
    protocol: str | None = None


class ClusterView:
    """Object behind ``_client.cluster``."""

    def __init__(self, native: NativeConsumer, topics: Callable[[], set[str]]) -> None:
        self._native = native
        self._read_topics = topics

    @property
    def _topics(self) -> set[str]:
        return self._read_topics()

    def brokers(self) -> set[int]:
        """Return the ids of the brokers known by now."""
        return set(self._native.explain().as_dict()["cluster"]["brokers"])


class ClientView:
    """Object behind ``_client``."""

    def __init__(self, cluster: ClusterView) -> None:
        self.cluster: ClusterView = cluster

    def in_flight_request_count(self, node_id: Any = None) -> int:
        """Return 0: requests belong to kohort's thread."""
        return 0


class HeartbeatView:
    """Object behind ``_coordinator.heartbeat``; times are those of ``time.monotonic()``."""

    def __init__(self, native: NativeConsumer) -> None:
        self._native = native
        self.last_poll: float = -math.inf
        self.last_reset: float = time.monotonic()
        self.heartbeat_failed: bool = False

    @property
    def last_receive(self) -> float:
        """Time of the last answered heartbeat."""
        group = (self._native.metrics() or {}).get("consumer-coordinator-metrics", {})
        ago = group.get("last-heartbeat-seconds-ago", -1.0)
        return -math.inf if ago < 0 else time.monotonic() - ago

    @property
    def last_send(self) -> float:
        """Send time of the latest heartbeat that got a response."""
        return self.last_receive


class CoordinatorView:
    """Object behind ``_coordinator``."""

    def __init__(
        self, heartbeat: HeartbeatView, group_metadata: Callable[[], ConsumerGroupMetadata]
    ) -> None:
        self.heartbeat: HeartbeatView = heartbeat
        self._group_metadata = group_metadata

    @property
    def state(self) -> str:
        """State of the member, one of MemberState."""
        return self._group_metadata().state

    @property
    def member_id(self) -> str:
        """Id of the member; empty before it has joined."""
        return self._group_metadata().member_id

    def generation_if_stable(self) -> Generation | None:
        """Return the generation, or None outside of a stable one."""
        member = self._group_metadata()
        if member.state != MemberState.STABLE:
            return None
        return Generation(member.generation_id, member.member_id)
