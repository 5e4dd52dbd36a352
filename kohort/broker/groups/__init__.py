"""The group coordinator: classic groups as a state machine, and the code that drives it.

A group takes a request and the time, and appends effects. An effect sends a response or appends a
record. Deadlines are in a table of timers. So tests can drive a group without network and time.
"""

from __future__ import annotations

from kohort.broker.groups._coordinator import (
    PARTITIONS,
    GroupCoordinator,
    GroupRecords,
    OpenRecords,
)
from kohort.broker.groups._environment import (
    Append,
    GroupEnvironment,
    SendResponse,
    TimerKey,
)
from kohort.broker.groups._limits import BOUNDED_LIMITS, GroupLimits
from kohort.broker.groups._loading import load_groups
from kohort.broker.groups._member import CommittedOffset, Member
from kohort.broker.groups._offsets import OffsetToCommit
from kohort.broker.groups._steering import subscribed_topics
from kohort.broker.groups._topic_view import TopicInfo
from kohort.broker.groups.classic._group import ClassicGroup
from kohort.broker.groups.classic._join import Caller
from kohort.broker.groups.classic._state import TRANSITIONS, GroupState
from kohort.broker.groups.consumer._group import AnyGroup, ConsumerGroup, ConsumerGroupState
from kohort.broker.groups.consumer._member import ConsumerMember
from kohort.broker.groups.consumer._offset_checks import validate_consumer_fetch
from kohort.broker.groups.share._group import ShareGroup, ShareMember, StateTopic
from kohort.broker.groups.share._heartbeat import MAX_MEMBER_ID as MAX_SHARE_MEMBER_ID

__all__ = [
    "BOUNDED_LIMITS",
    "MAX_SHARE_MEMBER_ID",
    "PARTITIONS",
    "TRANSITIONS",
    "AnyGroup",
    "Append",
    "Caller",
    "ClassicGroup",
    "CommittedOffset",
    "ConsumerGroup",
    "ConsumerGroupState",
    "ConsumerMember",
    "GroupCoordinator",
    "GroupEnvironment",
    "GroupLimits",
    "GroupRecords",
    "GroupState",
    "Member",
    "OffsetToCommit",
    "OpenRecords",
    "SendResponse",
    "ShareGroup",
    "ShareMember",
    "StateTopic",
    "TimerKey",
    "TopicInfo",
    "load_groups",
    "subscribed_topics",
    "validate_consumer_fetch",
]
