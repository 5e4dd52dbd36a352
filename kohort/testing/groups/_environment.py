"""What all groups of a coordinator share, and what they ask of whoever drives them."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import NamedTuple

from kohort.protocol import Response
from kohort.testing.groups._timers import Timers


@dataclass(frozen=True, slots=True)
class GroupLimits:
    """The broker's settings for classic groups; names and defaults are Kafka's, but the delay."""

    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    initial_rebalance_delay_ms: int = 0
    new_member_join_timeout_ms: int = 300_000
    max_size: int = (1 << 31) - 1
    offset_metadata_max_bytes: int = 4_096
    offsets_retention_minutes: int = 10_080
    offsets_retention_check_interval_ms: int = 600_000


class SendResponse(NamedTuple):
    """Answer a request: ``reply`` is what came with it."""

    parked: object
    response: Response


class Append(NamedTuple):
    """Append a record to the group's partition of ``__consumer_offsets``; None is a tombstone."""

    group_id: str
    key: bytes
    value: bytes | None


class TimerKey(NamedTuple):
    """``kind``: session (of a member, or of a pending id), initial, join or sync.

    And expiration, of all groups.
    """

    group_id: str
    kind: str
    member_id: str = ""


@dataclass(slots=True)
class GroupEnvironment:
    """Settings, timers, randomness and the list of effects that the driver carries out in order.

    ``epoch_ms``: wall-clock milliseconds at time 0 of the clock that ``now`` is read from.
    """

    config: GroupLimits
    rng: random.Random
    epoch_ms: int = 0
    timers: Timers[TimerKey] = field(default_factory=Timers)
    effects: list[SendResponse | Append] = field(default_factory=list)

    def wall_ms(self, now: float) -> int:
        return self.epoch_ms + int(now * 1000)

    def respond(self, parked: object, response: Response) -> None:
        self.effects.append(SendResponse(parked, response))

    def append(self, group_id: str, key: bytes, value: bytes | None) -> None:
        self.effects.append(Append(group_id, key, value))
