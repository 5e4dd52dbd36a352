"""The options of a share consumer that its requests need."""

from __future__ import annotations

from typing import Literal, TypeAlias

from kohort.types import NamedTuple

AcquireMode: TypeAlias = Literal["batch_optimized", "record_limit"]
"""What limits the records of a poll: whole batches around it, or exactly their number (KIP-1206).
"""


class ShareSettings(NamedTuple):
    """The options of a share consumer that its requests need."""

    group_id: str
    acquire_mode: AcquireMode
    start: str | None
    """``earliest``, or None to leave the start to the group."""
    rack: str | None
    max_records: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    request_timeout_ms: int
    max_poll_interval: float
    """Seconds."""
