"""History of a group: who owned which partition when, and why that changed.

Theory of operation. A coordinator stores all that it knows of a group in one partition of
``__consumer_offsets``, for both group protocols. ``read_history()`` reads that partition from its
start. ``Timeline`` replays the records of the group in their order. After the records of one
millisecond it compares the owners with those before. So a change that takes several records, such
as the conversion of a group to the other protocol, is one change.

Invariants:

1. A member owns what it has and what it has still to give up. Classic members own their partitions
   from one generation to the next.
2. A span of ownership ends in the millisecond in which the owner changes. Spans of a partition do
   not overlap.
3. Nothing is guessed. A cause that the log does not have is called unknown. ``complete_since`` has
   the time from which no record can be missing. Compaction deletes older ones.
"""

from __future__ import annotations

from kohort.history._pictures import to_html, to_svg
from kohort.history._read import read_history
from kohort.history._read import read_history_with as read_history_with  # for the command
from kohort.history._read import replay_history as replay_history  # for the pytest plugin
from kohort.history._samples import GroupSampler as GroupSampler  # for the command
from kohort.history._text import span_rows as span_rows
from kohort.history._text import to_json, to_text
from kohort.history._timeline import (
    Commit,
    GroupEvent,
    GroupHistory,
    LagPoint,
    OwnershipSpan,
    PastMember,
)

__all__ = [
    "Commit",
    "GroupEvent",
    "GroupHistory",
    "LagPoint",
    "OwnershipSpan",
    "PastMember",
    "read_history",
    "to_html",
    "to_json",
    "to_svg",
    "to_text",
]
