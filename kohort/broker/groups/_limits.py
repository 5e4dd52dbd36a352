"""Settings of a broker for groups, and their checks."""

from __future__ import annotations

from dataclasses import dataclass

from kohort.broker.groups.assignors import ASSIGNORS
from kohort.errors import InvalidOptionError

BOUNDED_LIMITS = ("session_timeout_ms", "heartbeat_interval_ms", "assignment_interval_ms")
"""Settings that a group may have configs for. A broker has bounds for them."""
_POLICIES = ("bidirectional", "upgrade", "downgrade", "disabled")


@dataclass(frozen=True, slots=True)
class GroupLimits:
    """The broker's settings for groups.

    Names and defaults are Kafka's, except for the initial rebalance delay. Settings of groups of
    the consumer protocol begin with ``consumer_``, and those of share groups with ``share_``.
    """

    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    initial_rebalance_delay_ms: int = 0
    new_member_join_timeout_ms: int = 300_000
    max_size: int = (1 << 31) - 1
    offset_metadata_max_bytes: int = 4_096
    offsets_retention_minutes: int = 10_080
    offsets_retention_check_interval_ms: int = 600_000
    consumer_session_timeout_ms: int = 45_000
    consumer_heartbeat_interval_ms: int = 5_000
    consumer_assignment_interval_ms: int = 1_000
    consumer_min_session_timeout_ms: int = 45_000
    consumer_max_session_timeout_ms: int = 60_000
    consumer_min_heartbeat_interval_ms: int = 5_000
    consumer_max_heartbeat_interval_ms: int = 15_000
    consumer_min_assignment_interval_ms: int = 0
    consumer_max_assignment_interval_ms: int = 15_000
    consumer_max_size: int = (1 << 31) - 1
    consumer_assignors: tuple[str, ...] = ("uniform", "range")
    consumer_migration_policy: str = "bidirectional"
    consumer_regex_refresh_interval_ms: int = 600_000
    rebalance_protocols: tuple[str, ...] = ("classic", "consumer", "streams")
    share_session_timeout_ms: int = 45_000
    share_heartbeat_interval_ms: int = 5_000
    share_assignment_interval_ms: int = 1_000
    share_record_lock_duration_ms: int = 30_000
    share_delivery_count_limit: int = 5
    share_partition_max_record_locks: int = 2_000
    share_max_size: int = 200
    share_max_share_sessions: int = 2_000
    share_auto_offset_reset: str = "latest"
    share_isolation_level: str = "read_uncommitted"
    share_renew_acknowledge_enable: bool = True

    def bounds_of(self, name: str) -> tuple[int, int]:
        """Return the lowest and the highest value of one of BOUNDED_LIMITS."""
        return getattr(self, f"consumer_min_{name}"), getattr(self, f"consumer_max_{name}")

    def validate(self) -> None:
        """Raise InvalidOptionError if settings of consumer groups contradict each other."""
        for name in BOUNDED_LIMITS:
            low, high = self.bounds_of(name)
            value = getattr(self, f"consumer_{name}")
            if not low <= value <= high:
                raise InvalidOptionError(
                    f"consumer_{name}={value}: must be from {low} to {high}, the broker's bounds. "
                    f"Change group.consumer.min.{name.replace('_', '.')} or its maximum too"
                )
        if self.consumer_session_timeout_ms <= self.consumer_heartbeat_interval_ms:
            raise InvalidOptionError(
                f"consumer_session_timeout_ms={self.consumer_session_timeout_ms}: must be more "
                f"than consumer_heartbeat_interval_ms={self.consumer_heartbeat_interval_ms}"
            )
        unknown = set(self.consumer_assignors) - set(ASSIGNORS)
        if unknown or not self.consumer_assignors:
            raise InvalidOptionError(
                f"consumer_assignors={self.consumer_assignors!r}: choose from {ASSIGNORS}"
            )
        if self.consumer_migration_policy.lower() not in _POLICIES:
            raise InvalidOptionError(
                f"consumer_migration_policy={self.consumer_migration_policy!r}: choose from "
                f"{', '.join(_POLICIES)}"
            )
