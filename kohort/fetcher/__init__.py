"""Offset look-ups, fetches in flight, and the buffer of completed fetches.

The background task runs :class:`Fetcher`. The caller drains its :class:`FetchBuffer`, which decodes
the records. The subscription's lock guards the state that both use.
"""
# Private: see docs/reference/api.md for the public names.

from __future__ import annotations

from kohort.fetcher._environment import FetcherEvents, FetcherOptions
from kohort.fetcher._errors import Failure, FailureAction, denied_topics_error
from kohort.fetcher._failure_reports import LOGGED_POLICIES
from kohort.fetcher._fetcher import Fetcher
from kohort.fetcher._offsets import EARLIEST, LATEST, OffsetLookup, OffsetResult
from kohort.fetcher.buffer._buffer import FetchBuffer
from kohort.fetcher.buffer._drain import Records, RecordTarget, TableTarget
from kohort.fetcher.requests._parallel import is_distant

__all__ = [
    "EARLIEST",
    "LATEST",
    "LOGGED_POLICIES",
    "Failure",
    "FailureAction",
    "FetchBuffer",
    "Fetcher",
    "FetcherEvents",
    "FetcherOptions",
    "OffsetLookup",
    "OffsetResult",
    "RecordTarget",
    "Records",
    "TableTarget",
    "denied_topics_error",
    "is_distant",
]
