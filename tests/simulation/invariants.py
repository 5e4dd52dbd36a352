"""What must hold of every log, whatever happened. One function an invariant, named as in the page.

Each takes the log and returns a sentence for each violation.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

from kohort.types import TopicPartition
from tests.simulation.events import (
    Assigned,
    Broke,
    CommitAccepted,
    Crashed,
    Delivered,
    EventLog,
    GenerationStored,
    Lost,
    NeverSettled,
    OffsetStored,
    Processed,
    Produced,
    Revoked,
    Settled,
    Stopped,
)

Check = Callable[[EventLog], list[str]]


def only_owned_partitions_are_delivered(log: EventLog) -> list[str]:
    """I1, I16: between on_assigned, and the end of on_revoked or the beginning of on_lost."""
    found: list[str] = []
    owned: defaultdict[str, set[TopicPartition]] = defaultdict(set)
    for event in log:
        match event:
            case Assigned(who=who, partitions=partitions):
                owned[who] |= partitions
            case Revoked(who=who, partitions=partitions) | Lost(who=who, partitions=partitions):
                owned[who] -= partitions
            case Stopped(who=who) | Crashed(who=who):
                owned[who].clear()
            case Delivered(who=who, partition=tp) if tp not in owned[who]:
                found.append(f"{event}: not its partition")
    return found


def positions_are_contiguous(log: EventLog) -> list[str]:
    """I2: inside one ownership no offset is left out, and none comes again."""
    found: list[str] = []
    last: dict[tuple[str, TopicPartition], int] = {}
    for event in log:
        match event:
            case Assigned(who=who, partitions=partitions):
                for tp in partitions:
                    last.pop((who, tp), None)
            case Delivered(who=who, partition=tp, offsets=offsets):
                before = last.get((who, tp), offsets[0] - 1)
                if list(offsets) != list(range(before + 1, offsets[-1] + 1)):
                    found.append(f"{event}: after offset {before}")
                last[who, tp] = offsets[-1]
    return found


def commits_are_of_what_is_done(log: EventLog) -> list[str]:
    """I3: committed offsets are of owned partitions, in the current generation, and not ahead."""
    found: list[str] = []
    done: defaultdict[TopicPartition, set[int]] = defaultdict(set)
    ends: defaultdict[TopicPartition, int] = defaultdict(int)
    shares: dict[str, frozenset[TopicPartition]] = {}
    current = -1
    for event in log:
        match event:
            case Processed(partition=tp, offsets=offsets):
                done[tp].update(offsets)
                while ends[tp] in done[tp]:
                    ends[tp] += 1
            case GenerationStored(generation=current, assignments=assignments):
                shares = {member_id: owned for _, member_id, owned in assignments}
            case CommitAccepted(member_id=member_id, generation=generation, offsets=offsets):
                if generation != current:
                    found.append(f"{event}: the generation is {current}")
                for tp, offset in offsets:
                    if tp not in shares.get(member_id, ()):
                        found.append(f"{event}: {tp.topic}-{tp.partition} is not its own")
                    if offset > ends[tp]:
                        found.append(f"{event}: processed is up to {ends[tp]}")
    return found


def commits_never_go_back(log: EventLog) -> list[str]:
    """I4: what the coordinator has of a partition only grows."""
    found: list[str] = []
    stored: dict[TopicPartition, int] = {}
    for event in log.of(OffsetStored):
        if event.offset < stored.get(event.partition, 0):
            found.append(f"{event}: it was {stored[event.partition]}")
        stored[event.partition] = event.offset
    return found


def everything_is_processed(log: EventLog) -> list[str]:
    """I5, I15: of what has an owner in the end, every record was processed by somebody."""
    found: list[str] = []
    settled = log.of(Settled)
    owned = {tp for event in settled for _, share in event.assignments for tp in share}
    done: defaultdict[TopicPartition, set[int]] = defaultdict(set)
    for event in log.of(Processed):
        done[event.partition].update(event.offsets)
    for record in log.of(Produced):
        if record.partition in owned and record.offset not in done[record.partition]:
            found.append(f"{record}: nobody processed it")
    return found


def each_partition_has_one_owner(log: EventLog) -> list[str]:
    """I6: in each generation, and in the end all of them have one."""
    found: list[str] = []
    for event in log.of(GenerationStored):
        given: set[TopicPartition] = set()
        for _, member_id, share in event.assignments:
            for tp in sorted(share & given):
                found.append(f"{event}: {tp.topic}-{tp.partition} twice, at last to {member_id}")
            given |= share
    return found


def nobody_starts_ahead(log: EventLog) -> list[str]:
    """I7: an owner never starts beyond what was processed; so what it is given is never ahead."""
    found: list[str] = []
    done: defaultdict[TopicPartition, set[int]] = defaultdict(set)
    ends: defaultdict[TopicPartition, int] = defaultdict(int)
    fresh: set[tuple[str, TopicPartition]] = set()
    for event in log:
        match event:
            case Assigned(who=who, partitions=partitions):
                fresh |= {(who, tp) for tp in partitions}
            case Processed(partition=tp, offsets=offsets):
                done[tp].update(offsets)
                while ends[tp] in done[tp]:
                    ends[tp] += 1
            case Delivered(who=who, partition=tp, offsets=offsets) if (who, tp) in fresh:
                fresh.discard((who, tp))
                if offsets[0] > ends[tp]:
                    found.append(f"{event}: processed is up to {ends[tp]}")
    return found


def all_is_well_in_the_end(log: EventLog) -> list[str]:
    """I9, I15: once the faults are over, the group is stable and has read everything in time."""
    return [str(event) for event in log.of(NeverSettled)]


def nothing_breaks(log: EventLog) -> list[str]:
    """No call raises anything but kohort's errors."""
    return [str(event) for event in log.of(Broke)]


ALWAYS: tuple[Check, ...] = (
    only_owned_partitions_are_delivered,
    positions_are_contiguous,
    commits_are_of_what_is_done,
    commits_never_go_back,
    everything_is_processed,
    each_partition_has_one_owner,
    nobody_starts_ahead,
    all_is_well_in_the_end,
    nothing_breaks,
)
"""What holds of every seed."""
IN_PROFILE: dict[str, tuple[Check, ...]] = {}
"""What holds besides, where no more is done than the profile says."""


def violations(log: EventLog, profile: str) -> list[str]:
    """All of them, each with the invariant that it violates."""
    return [
        f"{check.__name__}: {sentence}"
        for check in (*ALWAYS, *IN_PROFILE.get(profile, ()))
        for sentence in check(log)
    ]
