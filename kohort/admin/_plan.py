"""Plans of resets: the target as an argument, and the offsets that follow from it. No I/O."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from typing import Any, Literal, TypeAlias

from kohort.admin._results import MemberDescription
from kohort.types import NamedTuple, OffsetAndMetadata, OffsetAndTimestamp, TopicPartition

TargetKind: TypeAlias = Literal["earliest", "latest", "offset", "offsets", "time", "shift"]

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
_AGO = re.compile(r"-((?:\d+(?:\.\d+)?(?:ms|[smhdw]))+)")
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|[smhdw])")
_FORMS = (
    'Use "earliest", "latest", an offset such as 1200, or a shift such as "+100" or "-100". A time '
    'ago is "-2h", and a time has a zone, as "2026-11-23T09:00:00+01:00" has'
)


class Target(NamedTuple):
    """Place to reset to."""

    kind: TargetKind
    value: int = 0
    """An offset, a number of records, or milliseconds since the epoch."""
    offsets: Mapping[TopicPartition, int] | None = None
    """The offset of each partition, if they are given one by one."""


class ResetStep(NamedTuple):
    """Change of one partition in a plan."""

    partition: TopicPartition
    before: OffsetAndMetadata | None
    """Committed offset, or the start in a share group, when the plan was made; None without one."""
    after: OffsetAndMetadata | None
    """Offset to set. None deletes the offset."""
    start: int
    """First offset of the log."""
    end: int
    """Offset after the last record of the log."""
    is_clamped: bool = False
    """True if the target is outside of the log, so the nearest end is used."""

    @property
    def records(self) -> int | None:
        """Offsets that the group reads again, or skips if negative. None without both ends."""
        if self.before is None or self.after is None:
            return None
        return self.before.offset - self.after.offset

    @property
    def changes(self) -> bool:
        """True if the step changes the committed offset or its metadata."""
        return not is_same(self.before, self.after)


class ResetPlan(NamedTuple):
    """Offsets of a group before and after a reset.

    Give it to ``reset_group_offsets()`` to carry it out. ``undo`` is the plan for the way back.
    """

    group_id: str
    steps: tuple[ResetStep, ...]
    """A step for each partition, sorted."""
    members: tuple[MemberDescription, ...] = ()
    """Members of the group when the plan was made. A reset needs a group without members."""
    type: str | None = None
    """Type of the group, such as ``share``. None if the group did not exist."""

    @property
    def undo(self) -> ResetPlan:
        """The plan that restores the offsets from before, with their metadata."""
        steps = (
            step._replace(before=step.after, after=step.before, is_clamped=False)
            for step in self.steps
        )
        return ResetPlan(self.group_id, tuple(steps), type=self.type)

    def to_json(self) -> str:
        """Return the plan as JSON text, for a file."""
        return json.dumps(
            {
                "group": self.group_id,
                "type": self.type,
                "steps": [
                    {
                        "topic": step.partition.topic,
                        "partition": step.partition.partition,
                        "before": _to_json(step.before),
                        "after": _to_json(step.after),
                        "start": step.start,
                        "end": step.end,
                    }
                    for step in self.steps
                ],
            },
            indent=1,
        )

    @classmethod
    def from_json(cls, text: str) -> ResetPlan:
        """Return the plan of :meth:`to_json`. Raise ValueError if the text is no plan."""
        try:
            found = json.loads(text)
            steps = tuple(
                ResetStep(
                    TopicPartition(str(each["topic"]), int(each["partition"])),
                    _from_json(each["before"]),
                    _from_json(each["after"]),
                    int(each["start"]),
                    int(each["end"]),
                )
                for each in found["steps"]
            )
            kind = None if found["type"] is None else str(found["type"])
            return cls(str(found["group"]), tuple(sorted(steps)), type=kind)
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"the text is not the plan of a reset: {error!r}") from error


def _to_json(at: OffsetAndMetadata | None) -> dict[str, Any] | None:
    return None if at is None else at._asdict()


def _from_json(found: Any) -> OffsetAndMetadata | None:
    if found is None:
        return None
    return OffsetAndMetadata(
        int(found["offset"]), str(found["metadata"]), int(found["leader_epoch"])
    )


def is_same(one: OffsetAndMetadata | None, other: OffsetAndMetadata | None) -> bool:
    """True if both have the same offset and metadata. The leader epoch does not count."""
    return (None if one is None else one[:2]) == (None if other is None else other[:2])


def read_target(to: object, now: float) -> Target:
    """Return a target. ``now`` has seconds since the epoch.

    Raise ValueError for an unknown form and for a time without a zone, and TypeError.
    """
    if isinstance(to, str):
        return _read_text(to.strip(), now)
    if isinstance(to, bool):
        raise TypeError(f"to={to!r} is no target of a reset. {_FORMS}")
    if isinstance(to, int):
        if to < 0:
            raise ValueError(f"to={to} is no offset. For a shift use a text such as '{to}'")
        return Target("offset", to)
    if isinstance(to, timedelta):
        return Target("time", round((now - to.total_seconds()) * 1000))
    if isinstance(to, datetime):
        return Target("time", _milliseconds(to))
    if isinstance(to, Mapping):
        return Target("offsets", offsets=dict(to))
    raise TypeError(f"to={to!r} is no target of a reset. {_FORMS}")


def _read_text(text: str, now: float) -> Target:
    if text in ("earliest", "latest"):
        return Target("earliest" if text == "earliest" else "latest")
    if re.fullmatch(r"\d{1,18}", text):
        return Target("offset", int(text))
    if re.fullmatch(r"[+-]\d{1,18}", text):
        return Target("shift", int(text))
    if (ago := _AGO.fullmatch(text)) is not None:
        seconds = sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(ago[1]))
        return Target("time", round((now - seconds) * 1000))
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"to={text!r} is no target of a reset. {_FORMS}") from None
    return Target("time", _milliseconds(when))


def _milliseconds(when: datetime) -> int:
    if when.tzinfo is None:
        raise ValueError(f"the time {when.isoformat()} has no zone. Add Z, or one such as +01:00")
    return round(when.timestamp() * 1000)


def make_plan(
    group_id: str,
    target: Target,
    partitions: Collection[TopicPartition],
    committed: Mapping[TopicPartition, OffsetAndMetadata | None],
    starts: Mapping[TopicPartition, OffsetAndTimestamp | None],
    ends: Mapping[TopicPartition, OffsetAndTimestamp | None],
    found: Mapping[TopicPartition, OffsetAndTimestamp | None],
    members: tuple[MemberDescription, ...] = (),
    group_type: str | None = None,
) -> ResetPlan:
    """Return the plan. ``found`` has the offsets at the time of the target.

    Raise ValueError for a shift of partitions without a committed offset.
    """
    steps = []
    for tp in sorted(partitions):
        first, last = _known(starts[tp]), _known(ends[tp])
        before = committed.get(tp)
        wanted = _wanted(target, tp, before, first, last, found)
        offset = min(max(wanted.offset, first.offset), last.offset)
        is_clamped = offset != wanted.offset
        epoch = -1 if is_clamped else wanted.leader_epoch
        after = OffsetAndMetadata(offset, leader_epoch=epoch)
        steps.append(ResetStep(tp, before, after, first.offset, last.offset, is_clamped))
    return ResetPlan(group_id, tuple(steps), members, group_type)


def _known(at: OffsetAndTimestamp | None) -> OffsetAndTimestamp:
    assert at is not None  # a log has both ends
    return at


def _wanted(
    target: Target,
    tp: TopicPartition,
    before: OffsetAndMetadata | None,
    first: OffsetAndTimestamp,
    last: OffsetAndTimestamp,
    found: Mapping[TopicPartition, OffsetAndTimestamp | None],
) -> OffsetAndTimestamp:
    if target.kind == "earliest":
        return first
    if target.kind == "latest":
        return last
    if target.kind == "time":
        return found.get(tp) or last  # there is no later record
    if target.kind == "offset":
        return OffsetAndTimestamp(target.value, -1)
    if target.kind == "offsets":
        assert target.offsets is not None
        return OffsetAndTimestamp(target.offsets[tp], -1)
    if before is None:
        raise ValueError(
            f"{tp.topic}-{tp.partition} has no committed offset to shift. Name the topics or "
            "partitions that have one, or reset to another target"
        )
    return OffsetAndTimestamp(before.offset + target.value, -1)
