"""The settings, timers and effects that all groups of a coordinator share."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from kohort.broker.groups._limits import GroupLimits
from kohort.broker.groups._timers import Timers
from kohort.broker.groups._topic_view import GroupTopicView, NoTopics, TopicInfo
from kohort.errors import ErrorCode
from kohort.protocol import Response
from kohort.types import NamedTuple


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


class ShareStates(Protocol):
    """The share coordinators, as a group coordinator uses them."""

    def initialize(
        self, group_id: str, topic_id: bytes, partition: int, epoch: int, start: int
    ) -> ErrorCode:
        """Store the state of a share-partition; ``start`` is -1 if the first fetch decides."""
        ...

    def delete(self, group_id: str, topic_id: bytes, partition: int) -> ErrorCode:
        """Delete the state of a share-partition if there is one."""
        ...


class NoShareStates:
    """No share coordinators."""

    def initialize(
        self, group_id: str, topic_id: bytes, partition: int, epoch: int, start: int
    ) -> ErrorCode:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE

    def delete(self, group_id: str, topic_id: bytes, partition: int) -> ErrorCode:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE


@dataclass(slots=True)
class GroupEnvironment:
    """Settings, timers, random numbers, and the effects that the coordinator executes in order.

    ``epoch_ms``: wall-clock milliseconds at time 0 of the clock of ``now``. ``settings_of`` returns
    the settings of one group. Without it, ``config`` applies to all groups. ``topic_hashes`` has
    the known hashes of topics by name, as the topics were in ``hashed_version``.
    """

    config: GroupLimits
    rng: random.Random
    epoch_ms: int = 0
    topics: GroupTopicView = field(default_factory=NoTopics)
    timers: Timers[TimerKey] = field(default_factory=Timers)
    effects: list[SendResponse | Append] = field(default_factory=list)
    topic_hashes: dict[str, tuple[TopicInfo, int]] = field(default_factory=dict)
    hashed_version: int = -1
    settings_of: Callable[[str], GroupLimits] | None = None
    share_states: ShareStates = field(default_factory=NoShareStates)

    def wall_ms(self, now: float) -> int:
        return self.epoch_ms + int(now * 1000)

    def group_settings(self, group_id: str) -> GroupLimits:
        """Return the settings of a group: its configs over those of the broker."""
        return self.config if self.settings_of is None else self.settings_of(group_id)

    def respond(self, parked: object, response: Response) -> None:
        self.effects.append(SendResponse(parked, response))

    def append(self, group_id: str, key: bytes, value: bytes | None) -> None:
        self.effects.append(Append(group_id, key, value))

    @contextmanager
    def all_or_nothing(self) -> Iterator[None]:
        """Drop the effects of the block if it raises, because they are incomplete."""
        count = len(self.effects)
        try:
            yield
        except BaseException:
            del self.effects[count:]
            raise
