"""A history as lines, and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

from kohort.history._timeline import GroupEvent, GroupHistory
from kohort.types import TopicPartition, escaped


def time_text(at_ms: int, *, digits: bool = True) -> str:
    """Return a time in UTC, with milliseconds or without."""
    when = datetime.fromtimestamp(at_ms / 1000, UTC)
    return when.strftime("%Y-%m-%d %H:%M:%S") + (f".{at_ms % 1000:03}" if digits else "")


def to_text(history: GroupHistory) -> str:
    """Return the history as lines: a heading, a line for each change, and the commits."""
    lines = [_heading(history)]
    if missing := missing_text(history):
        lines.append(missing)
    if history.unread:
        lines.append(f"{history.unread} records are in a version that this release does not know")
    lines.append("")
    word = "epoch" if history.protocol == "consumer" else "generation"
    for event in history.events:
        mark = f"{word} {event.epoch}" if is_numbered(event) else ""
        lines.append(f"{time_text(event.at_ms)}  {mark:<{len(word) + 5}}  {escaped(event.text)}")
    if not history.events:
        lines.append("no change in this time")
    commits = [
        f"{tp.topic}:{tp.partition}  {count} {'commit' if count == 1 else 'commits'}, "
        f"{moved} {'offset' if moved == 1 else 'offsets'}, {rate:.1f} offsets/s"
        for tp, (count, moved, rate) in commit_rates(history).items()
    ]
    return "\n".join([*lines, *([""] if commits else []), *commits])


def is_numbered(event: GroupEvent) -> bool:
    """True for a rebalance with a known generation or epoch."""
    return event.kind == "rebalance" and event.epoch >= 0


def missing_text(history: GroupHistory) -> str:
    """Return what may be missing in a history, or nothing."""
    if history.samples:
        seconds = longest_gap(history) / 1000
        if len(history.samples) == 1:
            return "incomplete: from one sample. What happened before it is not known"
        return (
            f"incomplete: from {len(history.samples)} samples, at most {seconds:g} s apart. What "
            "happened between two samples is not known"
        )
    if history.complete_since_ms > history.since_ms:
        return f"complete since {time_text(history.complete_since_ms)} (compacted before)"
    return ""


def longest_gap(history: GroupHistory) -> int:
    """Return the longest time between two samples in milliseconds."""
    times = history.samples
    return max((after - before for before, after in pairwise(times)), default=0)


def _heading(history: GroupHistory) -> str:
    begin, end = time_text(history.since_ms), time_text(history.until_ms)
    return f"{escaped(history.group_id)}: {history.protocol} protocol, {begin} to {end} UTC"


def commit_rates(history: GroupHistory) -> dict[TopicPartition, tuple[int, int, float]]:
    """Return for each partition the number of commits, their offsets, and offsets per second.

    Only commits of the time of the history count. The rate is that between the first and the last.
    """
    found: dict[TopicPartition, list[tuple[int, int]]] = {}
    for each in history.commits:
        if each.at_ms >= history.since_ms and each.offset is not None:
            found.setdefault(each.partition, []).append((each.at_ms, each.offset))
    rates = {}
    for tp, commits in sorted(found.items()):
        (begin, low), (end, high) = commits[0], commits[-1]
        moved = high - low
        rates[tp] = len(commits), moved, 1000 * moved / (end - begin) if end > begin else 0.0
    return rates


def to_json(history: GroupHistory) -> str:
    """Return the history as JSON, with times in milliseconds since the epoch."""
    return json.dumps(as_dict(history), indent=1)


def as_dict(history: GroupHistory) -> dict[str, Any]:
    """Return the history as values of JSON."""
    names = history.names
    return {
        "group": history.group_id,
        "protocol": history.protocol,
        "since": history.since_ms,
        "until": history.until_ms,
        "complete_since": history.complete_since_ms,
        "members": [
            {
                "member": each.member_id,
                "name": names[each.member_id],
                "client": each.client_id,
                "host": each.host,
                "instance": each.group_instance_id,
                "topics": sorted(each.topics),
            }
            for each in history.members.values()
        ],
        "events": [each._asdict() for each in history.events],
        "spans": list(span_rows(history)),
        "commits": [
            {
                "at": each.at_ms,
                "topic": each.partition.topic,
                "partition": each.partition.partition,
                "offset": each.offset,
            }
            for each in history.commits
        ],
        "lags": [
            {
                "at": each.at_ms,
                "topic": each.partition.topic,
                "partition": each.partition.partition,
                "lag": each.lag,
            }
            for each in history.lags
        ],
        "unread": history.unread,
        "samples": history.samples,
    }


def span_rows(history: GroupHistory) -> Iterator[dict[str, Any]]:
    """Yield the spans of ownership as rows of a table."""
    names = history.names
    for each in history.spans:
        yield {
            "topic": each.partition.topic,
            "partition": each.partition.partition,
            "member": each.member_id,
            "name": names[each.member_id],
            "start": each.start_ms,
            "end": each.end_ms,
        }
