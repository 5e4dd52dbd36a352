"""The reset of a group's offsets: a plan, and its execution.

1. The plan reads the members, the committed offsets, the bounds of the logs, and for a time the
   offsets there. ``make_plan()`` computes it.
2. The execution describes the group again. Members are an error, because they would go on from
   their own positions and commit these.
3. It reads the committed offsets again. If one differs from the plan, another client has committed
   meanwhile, and nothing is changed.
4. It commits from outside the group. The coordinator refuses that if a member has joined meanwhile.
5. It reads the offsets once more, because another client from outside may commit at the same time.

A reset is one change of one group. So the error of a partition is raised, and before step 4 nothing
is changed.

The steps are the same for a share group, whose start offsets stand for committed ones. A step
without an offset afterwards makes the partition begin again as one that was never read.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeAlias

from kohort.admin._groups import SHARE, describe_group
from kohort.admin._offsets import commit_offsets, committed_offsets, delete_offsets, log_offsets
from kohort.admin._plan import ResetPlan, Target, is_same, make_plan, read_target
from kohort.admin._requests import AdminRequests
from kohort.admin._results import GroupDescription, MemberDescription
from kohort.admin._share_offsets import (
    check_starts,
    other_type_error,
    send_starts,
    start_offsets,
)
from kohort.admin._topics import topics_by_name
from kohort.coordinator_client import describe
from kohort.errors import (
    GroupHasMembersError,
    GroupIdNotFoundError,
    OffsetsChangedError,
)
from kohort.fetcher import EARLIEST, LATEST
from kohort.transport import counted, escaped
from kohort.types import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition

if TYPE_CHECKING:
    from kohort.consumer.engine._engine import Engine

Places: TypeAlias = Mapping[TopicPartition, OffsetAndTimestamp | None]
Offsets: TypeAlias = Mapping[TopicPartition, OffsetAndMetadata | None]
"""Offsets of a group. None stands for a partition without one."""
_MAX_MEMBERS = 5
"""Maximum number of members that an error names."""


async def reset(
    engine: Engine,
    group_id: str,
    to: object,
    topics: list[str] | None,
    partitions: list[TopicPartition] | None,
    only_plan: bool,
    new_type: str | None,
    seconds: float,
) -> ResetPlan:
    """Plan a reset, and carry it out unless ``only_plan`` is True.

    A group that does not exist is of the type ``new_type``, or else that of a plan.
    """
    requests = await AdminRequests.begin(engine, seconds)
    if isinstance(to, ResetPlan):
        group = await _described(requests, group_id)
        kind = _type_of(group, new_type) or to.type
        plan = to._replace(members=group.members if group else (), type=kind)
        offsets = _offsets_of(requests, engine, group_id, kind)
    else:
        target = read_target(to, (engine.config.wall_clock or time.time)())
        chosen = await _chosen(requests, target, topics, partitions)
        group = await _described(requests, group_id, must_exist=chosen is None)
        kind = _type_of(group, new_type)
        offsets = _offsets_of(requests, engine, group_id, kind)
        before = await offsets.read(chosen)
        wanted = chosen if chosen is not None else list(before)
        places = await _places(requests, engine, target, wanted)
        members = group.members if group else ()
        plan = make_plan(group_id, target, wanted, before, *places, members, kind)
    if not only_plan:
        await _execute(offsets, plan)
    return plan


async def find_offsets(
    engine: Engine,
    to: object,
    topics: list[str],
    partitions: list[TopicPartition] | None,
    seconds: float,
) -> dict[TopicPartition, int]:
    """Return the offset at a target for each partition. The error of a partition is raised."""
    requests = await AdminRequests.begin(engine, seconds)
    target = read_target(to, (engine.config.wall_clock or time.time)())
    chosen = await _chosen(requests, target, topics, partitions) or []
    places = await _places(requests, engine, target, chosen)
    plan = make_plan("", target, chosen, {}, *places)
    return {step.partition: step.after.offset for step in plan.steps if step.after is not None}


# -- the plan ---------------------------------------------------------------------------------


async def _places(
    requests: AdminRequests, engine: Engine, target: Target, partitions: list[TopicPartition]
) -> tuple[Places, Places, Places]:
    """Return the starts and the ends of logs, and the offsets at the time of a target."""
    starts = await log_offsets(requests, engine, dict.fromkeys(partitions, EARLIEST))
    ends = await log_offsets(requests, engine, dict.fromkeys(partitions, LATEST))
    found: Places = {}
    if target.kind == "time":
        times = dict.fromkeys(partitions, max(0, target.value))
        found = (await log_offsets(requests, engine, times)).raise_errors()
    return starts.raise_errors(), ends.raise_errors(), found


async def _chosen(
    requests: AdminRequests,
    target: Target,
    topics: list[str] | None,
    partitions: list[TopicPartition] | None,
) -> list[TopicPartition] | None:
    """Return the partitions of the arguments, or None for those with a committed offset."""
    if target.offsets is not None:
        return list(target.offsets)
    if topics is None:
        return partitions
    results = (await topics_by_name(requests, topics)).raise_errors()
    found = {
        TopicPartition(topic.name, each.partition)
        for topic in results.values()
        for each in topic.partitions
    }
    return sorted(found | {*(partitions or ())})


async def _described(
    requests: AdminRequests, group_id: str, *, must_exist: bool = False
) -> GroupDescription | None:
    """Return a group, or None if it does not exist."""
    try:
        return await describe_group(requests, group_id)
    except GroupIdNotFoundError:
        if must_exist:
            raise
        return None


def _type_of(group: GroupDescription | None, new_type: str | None) -> str | None:
    """Return the type of a group. Raise an error if it exists and has not the wanted type."""
    if group is None:
        return new_type
    if new_type not in (None, group.type):
        raise other_type_error(group.group_id, group.type)
    return group.type


# -- offsets by type of group -----------------------------------------------------------------


class _CommittedOffsets:
    """The committed offsets of a group."""

    def __init__(self, requests: AdminRequests, group_id: str) -> None:
        self._requests = requests
        self._group_id = group_id

    async def read(self, partitions: list[TopicPartition] | None) -> Offsets:
        """Return the offsets of partitions, or all that the group has if None."""
        found = await committed_offsets(self._requests, self._group_id, partitions)
        return found.raise_errors()

    async def write(self, offsets: Offsets) -> None:
        """Set offsets, and delete those that are None."""
        requests, group_id = self._requests, self._group_id
        to_commit = {tp: at for tp, at in offsets.items() if at is not None}
        to_delete = [tp for tp, at in offsets.items() if at is None]
        if to_commit:
            (await commit_offsets(requests, group_id, to_commit)).raise_errors()
        if to_delete:
            (await delete_offsets(requests, group_id, to_delete)).raise_errors()


class _StartOffsets:
    """The start offsets of a share group."""

    def __init__(self, requests: AdminRequests, engine: Engine, group_id: str) -> None:
        self._requests = requests
        self._engine = engine
        self._group_id = group_id

    async def read(self, partitions: list[TopicPartition] | None) -> Offsets:
        """Return the starts of partitions, or of all that the group has if None."""
        found = await start_offsets(self._requests, self._engine, self._group_id, partitions)
        return {
            tp: None if at.start is None else OffsetAndMetadata(at.start)
            for tp, at in found.raise_errors().items()
        }

    async def write(self, offsets: Offsets) -> None:
        """Set starts. The partitions whose start is None begin as if they were never read."""
        starts = {tp: None if at is None else at.offset for tp, at in offsets.items()}
        (await check_starts(self._requests, self._engine, starts)).raise_errors()
        (await send_starts(self._requests, self._group_id, starts)).raise_errors()


def _offsets_of(
    requests: AdminRequests, engine: Engine, group_id: str, kind: str | None
) -> _CommittedOffsets | _StartOffsets:
    if kind == SHARE:
        return _StartOffsets(requests, engine, group_id)
    return _CommittedOffsets(requests, group_id)


# -- the execution ----------------------------------------------------------------------------


async def _execute(offsets: _CommittedOffsets | _StartOffsets, plan: ResetPlan) -> None:
    if plan.members:
        raise _members_error(plan.group_id, plan.members)
    before = {step.partition: step.before for step in plan.steps}
    after = {step.partition: step.after for step in plan.steps if step.changes}
    await _compare(
        offsets,
        plan.group_id,
        before,
        "the plan has other offsets. Nothing was changed. Plan again",
    )
    await offsets.write(after)
    await _compare(
        offsets, plan.group_id, after, "another client changed them after the reset. Stop it first"
    )


def _members_error(group_id: str, members: tuple[MemberDescription, ...]) -> GroupHasMembersError:
    names = [
        f"{escaped(each.member_id)} (client id {escaped(each.client_id)}, host "
        f"{escaped(each.host)})"
        for each in members[:_MAX_MEMBERS]
    ]
    if len(members) > _MAX_MEMBERS:
        names.append(f"{len(members) - _MAX_MEMBERS} more")
    return GroupHasMembersError(
        f"the offsets of group {escaped(group_id)!r} cannot be reset: it has "
        f"{counted(len(members), 'member')}: {', '.join(names)}. Stop them, then reset again",
        group_id=group_id,
        members=tuple(each.member_id for each in members),
    )


async def _compare(
    offsets: _CommittedOffsets | _StartOffsets, group_id: str, expected: Offsets, reason: str
) -> None:
    """Raise OffsetsChangedError if the offsets are not the expected ones."""
    if not expected:
        return
    found = await offsets.read(list(expected))
    changed = {tp: found.get(tp) for tp, at in expected.items() if not is_same(at, found.get(tp))}
    if changed:
        raise OffsetsChangedError(
            f"the offsets of group {escaped(group_id)!r} changed for {describe(changed)}: {reason}",
            found=changed,
        )
