"""Share groups on the leaders and at the share coordinator (KIP-932).

``SharePartition`` has the records that a group has in flight. ``ShareLeader`` drives those of a
broker, and ``ShareCoordinator`` stores their states.
"""

from __future__ import annotations

from kohort.broker.share._coordinator import (
    NO_OFFSET,
    STATE_PARTITIONS,
    ShareCoordinator,
    ShareCoordinatorEnvironment,
    ShareRecords,
    ShareState,
    parsed_key,
    state_key,
    state_partition,
)
from kohort.broker.share._durations import duration_ms
from kohort.broker.share._leader import Fetched, LedLog, ShareLeader
from kohort.broker.share._partition import AcquireLimit, SharePartition
from kohort.broker.share._sessions import FINAL_EPOCH, INITIAL_EPOCH, SessionKey, ShareSession
from kohort.broker.share._values import (
    Ack,
    AckError,
    Acquired,
    Letter,
    RecordState,
    ShareKey,
    ShareSettings,
    StateBatch,
)

__all__ = [
    "FINAL_EPOCH",
    "INITIAL_EPOCH",
    "NO_OFFSET",
    "STATE_PARTITIONS",
    "Ack",
    "AckError",
    "AcquireLimit",
    "Acquired",
    "Fetched",
    "LedLog",
    "Letter",
    "RecordState",
    "SessionKey",
    "ShareCoordinator",
    "ShareCoordinatorEnvironment",
    "ShareKey",
    "ShareLeader",
    "SharePartition",
    "ShareRecords",
    "ShareSession",
    "ShareSettings",
    "ShareState",
    "StateBatch",
    "duration_ms",
    "parsed_key",
    "state_key",
    "state_partition",
]
