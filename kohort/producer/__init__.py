"""An idempotent producer, for dead letters and for the command ``kohort``. It is not public."""
# Private: see docs/reference/api.md for the public names.

from __future__ import annotations

from kohort.producer._producer import Delivery, Posted, RecordProducer
from kohort.records import NewRecord

__all__ = ["Delivery", "NewRecord", "Posted", "RecordProducer"]
