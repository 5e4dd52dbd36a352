"""The settings, timers and effects that all groups of a coordinator share."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import NamedTuple

from kohort.broker.groups._timers import Timers
from kohort.broker.groups._topic_view import GroupTopicView, NoTopics
from kohort.protocol import Response


@dataclass(frozen=True, slots=True)
class GroupLimits:
    """The broker's settings for groups.

    Names and defaults are Kafka's, except for the initial rebalance delay. Settings of groups of
    the consumer protocol begin with ``consumer_``.
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
    consumer_max_size: int = (1 << 31) - 1
    consumer_assignors: tuple[str, ...] = ("uniform", "range")
    consumer_migration_policy: str = "bidirectional"
    consumer_regex_refresh_interval_ms: int = 600_000


class SendResponse(NamedTuple):
    """Effect that sends a response to a parked request."""

    parked: object
    response: Response


class Append(NamedTuple):
    """Effect that appends a record to the group's partition of ``__consumer_offsets``.

    The value None is a tombstone.
    """

    group_id: str
    key: bytes
    value: bytes | None


class TimerKey(NamedTuple):
    """Key of a timer.

    ``kind`` of a classic group is session, initial, join or sync. A session timer is for a member
    or a pending member id. ``kind`` of a consumer group is regex, or one of a member: session,
    rebalance, member-join or member-sync. The timer of kind expiration is for all groups.
    """

    group_id: str
    kind: str
    member_id: str = ""


@dataclass(slots=True)
class GroupEnvironment:
    """Settings, timers, random numbers, and the effects that the coordinator executes in order.

    ``epoch_ms``: wall-clock milliseconds at time 0 of the clock of ``now``.
    """

    config: GroupLimits
    rng: random.Random
    epoch_ms: int = 0
    topics: GroupTopicView = field(default_factory=NoTopics)
    timers: Timers[TimerKey] = field(default_factory=Timers)
    effects: list[SendResponse | Append] = field(default_factory=list)

    def wall_ms(self, now: float) -> int:
        return self.epoch_ms + int(now * 1000)

    def group_settings(self, group_id: str) -> GroupLimits:
        """Return the settings of a group: its configs over those of the broker."""
        return self.config

    def respond(self, parked: object, response: Response) -> None:
        self.effects.append(SendResponse(parked, response))

    def append(self, group_id: str, key: bytes, value: bytes | None) -> None:
        self.effects.append(Append(group_id, key, value))
