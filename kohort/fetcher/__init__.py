"""From positions to records: look-ups, fetches in flight, and the buffer of completed fetches.

The core runs :class:`Fetcher`; the caller takes records out of its :class:`FetchBuffer`, where
they are decoded. What the two share is guarded by the subscription's lock.
"""

from __future__ import annotations

from kohort.fetcher._buffer import FetchBuffer
from kohort.fetcher._drain_target import TableTarget
from kohort.fetcher._errors import denied_topics_error
from kohort.fetcher._failure_reports import LOGGED_POLICIES
from kohort.fetcher._fetcher import Fetcher
from kohort.fetcher._offsets import EARLIEST, LATEST, OffsetLookup

__all__ = [
    "EARLIEST",
    "LATEST",
    "LOGGED_POLICIES",
    "FetchBuffer",
    "Fetcher",
    "OffsetLookup",
    "TableTarget",
    "denied_topics_error",
]
