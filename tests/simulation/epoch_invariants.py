"""Invariants of groups of the consumer protocol, named as in docs/simulation.md.

Each takes a log and returns a sentence for each violation, as those of
:mod:`invariants <tests.simulation.invariants>` do.
"""

from __future__ import annotations

from collections import defaultdict

from kohort.types import TopicPartition
from tests.simulation.events import (
    Assigned,
    CallbackEnded,
    Crashed,
    Delivered,
    EpochStored,
    EventLog,
    GenerationStored,
    Grown,
    Lost,
    MemberRemoved,
    MemberStored,
    NeverSettled,
    OwnedReported,
    Partitions,
    RebalanceForgotten,
    Recreated,
    Revoking,
    Stalled,
    Stopped,
    TargetReceived,
)
from tests.simulation.incarnations import name_of, named_alike
from tests.simulation.world import TOPICS

NOTHING: Partitions = frozenset()
STATIC_LEFT = -2
"""Epoch of a static member that has left for a while."""


def rebalance_is_forgotten(log: EventLog) -> bool:
    """True if the group ends in the generation whose rebalance Apache Kafka would forget, too.

    The end is the last attempt to settle. The members leave after it.
    """
    forgotten: int | None = None
    for event in log:
        match event:
            case NeverSettled():
                break
            case RebalanceForgotten(generation=generation):
                forgotten = generation
            case EpochStored(epoch=number) | GenerationStored(generation=number):
                if forgotten is not None and number > forgotten:
                    forgotten = None
    return forgotten is not None


def unassigned_since_upgrade(log: EventLog) -> Partitions:
    """Return the partitions that no member has since an upgrade, with no later assignment.

    An upgraded group keeps the assignment of the classic one, and has the hash of the topics as
    they are. So no heartbeat finds the partitions that the assignment leaves out. A return to the
    classic protocol may keep the assignment, too.
    """
    missing = classic = NOTHING
    counts = dict(TOPICS)
    number = -1
    for event in log:
        match event:
            case NeverSettled():
                break
            case Grown(topic=topic, count=count):
                counts[topic] = count
            case GenerationStored(generation=generation, assignments=assignments):
                classic = NOTHING.union(*(share for _, _, share in assignments))
                missing = missing - classic if generation == number else NOTHING
                number = generation
            case EpochStored(epoch=epoch):
                every = frozenset(
                    TopicPartition(each, n) for each in counts for n in range(counts[each])
                )
                missing = every - classic if epoch == number else NOTHING
                number = epoch
    return missing


def members_share_nothing(log: EventLog) -> list[str]:
    """Check I22: the coordinator stores each partition for one member at a time.

    A partition that a member has to revoke is still its own.
    """
    found: list[str] = []
    held: dict[str, Partitions] = {}
    for event in log:
        match event:
            case MemberStored(member_id=member_id, assigned=assigned, pending=pending):
                held[member_id] = assigned | pending
                for other, theirs in held.items():
                    shared = sorted(theirs & held[member_id])
                    if other != member_id and shared:
                        found.append(f"{event}: {other} has {shared[0]}")
            case MemberRemoved(member_id=member_id):
                held.pop(member_id, None)
            case GenerationStored():
                held.clear()
    return found


def owners_release_first(log: EventLog) -> list[str]:
    """Check I23: a member gets a partition after the callback of its former owner has ended.

    That does not hold for a former owner that the coordinator has removed, or that has left for a
    while as a static member. Its client has stopped the delivery, and its callback waits for
    poll(). Partitions of a deleted topic, which a static member's record may still have, are others
    than those of the new topic. A classic member that an upgrade of the group does not store was
    removed before it.
    """
    found: list[str] = []
    classic: set[str] = set()
    unstored: set[str] = set()
    """Classic members that the upgrade in progress has not stored yet."""
    stored: defaultdict[str, Partitions] = defaultdict(frozenset)
    owned: defaultdict[str, set[TopicPartition]] = defaultdict(set)
    revoking: dict[str, Partitions] = {}
    names: dict[str, str] = {}
    for event in log:
        if unstored and not isinstance(event, MemberStored):
            for who in unstored:
                stored[who] = NOTHING
                owned[who].clear()
            unstored.clear()
        match event:
            case EpochStored():
                unstored |= classic
                classic.clear()
            case Assigned(who=who, partitions=partitions):
                owned[who] |= partitions & stored[who]
            case Revoking(who=who, partitions=partitions):
                revoking[who] = partitions
            case CallbackEnded(who=who):
                owned[who] -= revoking.pop(who, NOTHING)
            case Lost(who=who, partitions=partitions):
                owned[who] -= partitions
            case Stopped(who=who) | Crashed(who=who) | MemberRemoved(who=who):
                stored[who] = NOTHING
                owned[who].clear()
            case Recreated(topic=topic, number=number):
                names[topic] = name_of(topic, number)
                for who in owned:
                    owned[who] -= {tp for tp in owned[who] if tp.topic == topic}
            case GenerationStored(assignments=assignments):
                classic = {client_id for client_id, _, _ in assignments}
                stored.clear()
                stored.update({client_id: share for client_id, _, share in assignments})
                for who in owned:
                    owned[who] &= stored[who]
            case MemberStored(who=who, assigned=assigned, epoch=epoch) if epoch == STATIC_LEFT:
                unstored.discard(who)
                stored[who] = frozenset(map(named_alike, assigned))
                owned[who].clear()
            case MemberStored(who=new, assigned=assigned, pending=pending):
                unstored.discard(new)
                stored[new] = frozenset(map(named_alike, assigned | pending))
                now = [
                    tp for tp in assigned if names.get(named_alike(tp).topic, tp.topic) == tp.topic
                ]
                for tp in sorted(map(named_alike, now)):
                    others = sorted(w for w, mine in owned.items() if tp in mine and w != new)
                    if others:
                        found.append(f"{event}: {others[0]} owns {tp.topic}-{tp.partition}")
    return found


def nothing_is_acknowledged_early(log: EventLog) -> list[str]:
    """Check I24: a heartbeat leaves a revoked partition out after the end of its callback only."""
    found: list[str] = []
    revoking: dict[str, Partitions] = {}
    for event in log:
        match event:
            case Revoking(who=who, partitions=partitions):
                revoking[who] = partitions
            case CallbackEnded(who=who) | Stopped(who=who) | Crashed(who=who):
                revoking.pop(who, None)
            case MemberRemoved(who=who):
                revoking.pop(who, None)  # it joins again without partitions
            case OwnedReported(who=who, partitions=partitions):
                kept = frozenset(map(named_alike, partitions))
                if early := sorted(revoking.get(who, NOTHING) - kept):
                    found.append(f"{event}: the callback for {early[0]} has not ended")
    return found


def withheld_partitions_are_not_delivered(log: EventLog) -> list[str]:
    """Check I25: nothing is delivered of a partition after the response that takes it away.

    So the commit of the revocation contains all that was delivered. A poll that has taken records
    just before returns them at the same time. It returns later where the clock has jumped.
    """
    found: list[str] = []
    withheld: defaultdict[str, dict[TopicPartition, float]] = defaultdict(dict)
    owned: defaultdict[str, set[TopicPartition]] = defaultdict(set)
    for event in log:
        match event:
            case Assigned(who=who, partitions=partitions):
                owned[who] |= partitions
                for tp in partitions:
                    withheld[who].pop(tp, None)
            case TargetReceived(who=who, partitions=partitions, at=at):
                wanted = frozenset(map(named_alike, partitions))
                before = withheld[who]
                withheld[who] = {tp: before.get(tp, at) for tp in owned[who] - wanted}
            case Stalled():
                withheld.clear()
            case Delivered(who=who, partition=tp, at=at) if at > withheld[who].get(tp, at):
                found.append(f"{event}: taken away at {withheld[who][tp]:.6f}")
            case Lost(who=who) | Stopped(who=who):
                owned[who].clear()
                withheld[who].clear()
    return found
