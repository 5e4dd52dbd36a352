"""Invariants of every log. Each is one function, named as in docs/simulation.md.

Each takes the log and returns a sentence for each violation.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable

from kohort.fetcher.requests._sizes import START_BYTES
from kohort.types import TopicPartition
from tests.simulation.epoch_invariants import (
    members_share_nothing,
    nothing_is_acknowledged_early,
    owners_release_first,
    rebalance_is_forgotten,
    unassigned_since_upgrade,
    withheld_partitions_are_not_delivered,
)
from tests.simulation.events import (
    Assigned,
    Broke,
    CallbackBegan,
    CallbackEnded,
    CommitAccepted,
    ConnectionFailed,
    CorePaused,
    Crashed,
    Delivered,
    EpochStored,
    Event,
    EventLog,
    Failed,
    GenerationStored,
    Healed,
    LinesSlowed,
    LoginsFail,
    Lost,
    MemberStored,
    NeverSettled,
    OffsetStored,
    Operation,
    Partitions,
    Processed,
    Produced,
    Recreated,
    Revoked,
    Revoking,
    Settled,
    Stalled,
    Started,
    Steady,
    Stopped,
    Stopping,
    Subscribed,
)
from tests.simulation.fetch_invariants import (
    only_assigned_partitions_are_fetched,
    partitions_are_in_flight_once,
    throttles_stop_all_fetches,
)
from tests.simulation.incarnations import by_incarnation, named_alike

Check = Callable[[EventLog], list[str]]

NOTHING: Partitions = frozenset()
STOP_LIMIT = 5.5
"""Time limit of close() in seconds. close() takes at most five."""
COMMIT_LIMIT = 9.0
"""Time limit of a commit in seconds. request_timeout_ms is eight."""
SLOW_FOR = 30.0
"""Seconds for which a fault may delay responses, and the requests that wait for these."""
JOIN_LIMIT = 12.0
"""Seconds from a start to the first assignment. A member does not poll for up to 18."""
DELIVERY_MARGIN = 4.0
"""Seconds beyond the delivery of its bytes that a fetch over a slow line may take."""
ERRORS = {
    "commit": {"CommitFailedError", "RebalanceInProgressError", "KafkaTimeoutError"},
    "poll": {"UnknownTopicOrPartitionError", "UnreleasedInstanceIdError"},
    "start": set[str](),
    "block": set[str](),
}
"""Errors that a call may raise in any state of the cluster."""
RIGHTS = {"TopicAuthorizationFailedError", "GroupAuthorizationFailedError"}
"""Further errors that a call may raise where rights are denied."""


TOLD_FOR = 45.0
"""Seconds after a fault of logins in which members may still get its error, or wait to retry."""


class _Done:
    """Processed offsets of each partition, without a gap."""

    def __init__(self) -> None:
        self._done: defaultdict[TopicPartition, set[int]] = defaultdict(set)
        self._ends: defaultdict[TopicPartition, int] = defaultdict(int)

    def add(self, tp: TopicPartition, offsets: tuple[int, ...]) -> None:
        done = self._done[tp]
        done.update(offsets)
        while self._ends[tp] in done:
            self._ends[tp] += 1

    def end(self, tp: TopicPartition) -> int:
        return self._ends[tp]


def only_owned_partitions_are_delivered(log: EventLog) -> list[str]:
    """Check I1 and I16: records are delivered only to the owner of their partition.

    Ownership lasts from on_assigned to the end of on_revoked or the start of on_lost.
    """
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
    """Check I2: within one ownership no offset is skipped, and none is repeated."""
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
    """Check I3 and I18: accepted commits are of this generation, of owned partitions, and not
    ahead.

    A cooperative member commits revoked partitions when it learns of the revocation. That may be a
    generation or two later, as long as the partition has no other owner. It also owns what it owned
    in a generation that was replaced before its assignment was stored. A consumer that assigns
    manually is in no generation.

    In a group of the consumer protocol, a member owns what the coordinator has stored for it, also
    what it has to revoke. Coordinators accept older epochs there. The owner of a deleted topic's
    partition may read the new topic and commit for it, until it learns of its new assignment. A
    group that returns to the classic protocol is stored with the assignments that members were
    about to get.
    """
    found: list[str] = []
    done = _Done()
    holds: defaultdict[str, Partitions] = defaultdict(frozenset)
    current = -1
    by_epoch = False
    recreated: dict[str, float] = {}
    for event in log:
        match event:
            case Recreated(topic=topic, at=at):
                recreated[topic] = at
            case Processed(partition=tp, offsets=offsets):
                done.add(tp, offsets)
            case MemberStored(member_id=member_id, assigned=assigned, pending=pending):
                by_epoch = True
                holds[member_id] = assigned | pending
                for other in holds.keys() - {member_id}:
                    holds[other] -= holds[member_id]
            case GenerationStored(generation=generation, assignments=assignments) if by_epoch:
                by_epoch, current = False, generation
                for _, member_id, share in assignments:
                    holds[member_id] |= share
            case GenerationStored(generation=generation, assignments=assignments):
                current = generation
                dealt = NOTHING.union(*(share for _, _, share in assignments))
                for member_id in holds:
                    holds[member_id] -= dealt
                for _, member_id, share in assignments:
                    holds[member_id] |= share
            case CommitAccepted(member_id=member_id, generation=generation, offsets=offsets):
                alone = generation < 0 and not member_id
                if generation < current and not by_epoch:
                    found.append(f"{event}: the generation is {current}")
                for tp, offset in offsets:
                    plain = named_alike(tp)
                    own = tp in holds[member_id] or plain in map(named_alike, holds[member_id])
                    if by_epoch and event.at < recreated.get(plain.topic, -math.inf) + SLOW_FOR:
                        own = True
                    if not own and not alone:
                        found.append(f"{event}: {tp.topic}-{tp.partition} is not its own")
                    if offset > done.end(tp):
                        found.append(f"{event}: processed is up to {done.end(tp)}")
    return found


def commits_never_go_back(log: EventLog) -> list[str]:
    """Check I4: committed offsets never decrease.

    The check is off while brokers delay responses. A commit may wait there behind another request
    of its connection. Its client closes the connection and commits more over the next one, and the
    old commit is applied last. No client can prevent that.

    It is also off after a topic was recreated in a group of the consumer protocol. The owner of the
    deleted topic's partition reads the new topic until its next heartbeat, beside the new owner.
    """
    found: list[str] = []
    stored: dict[TopicPartition, int] = {}
    has_epochs = bool(log.of(EpochStored))
    patient = -1.0
    for event in log:
        match event:
            case Operation(takes_time=True, at=at):
                patient = at + SLOW_FOR
            case Recreated(at=at) if has_epochs:
                patient = at + SLOW_FOR
            case OffsetStored(partition=tp, offset=offset, at=at):
                if offset < stored.get(tp, 0) and at > patient:
                    found.append(f"{event}: it was {stored[tp]}")
                stored[tp] = offset
    return found


def everything_is_processed(log: EventLog) -> list[str]:
    """Check I5 and I15: every record of a partition with an owner at the end was processed."""
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
    """Check I6: each partition has one owner in each generation, and all have one at the end."""
    found: list[str] = []
    for event in log.of(GenerationStored):
        given: set[TopicPartition] = set()
        for _, member_id, share in event.assignments:
            for tp in sorted(share & given):
                found.append(f"{event}: {tp.topic}-{tp.partition} twice, at last to {member_id}")
            given |= share
    return found


def nobody_starts_ahead(log: EventLog) -> list[str]:
    """Check I7: an owner never starts after the processed offsets, so no record is skipped."""
    found: list[str] = []
    done = _Done()
    fresh: set[tuple[str, TopicPartition]] = set()
    for event in log:
        match event:
            case Assigned(who=who, partitions=partitions):
                fresh |= {(who, tp) for tp in partitions}
            case Processed(partition=tp, offsets=offsets):
                done.add(tp, offsets)
            case Delivered(who=who, partition=tp, offsets=offsets) if (who, tp) in fresh:
                fresh.discard((who, tp))
                if offsets[0] > done.end(tp):
                    found.append(f"{event}: processed is up to {done.end(tp)}")
    return found


def nobody_rewinds(log: EventLog) -> list[str]:
    """Check I17: an owner starts at the committed offset, and never before."""
    found: list[str] = []
    stored: dict[TopicPartition, int] = {}
    starts: dict[tuple[str, TopicPartition], int] = {}
    for event in log:
        match event:
            case OffsetStored(partition=tp, offset=offset):
                stored[tp] = offset
            case Assigned(who=who, partitions=partitions):
                starts |= {(who, tp): stored.get(tp, 0) for tp in partitions}
            case Delivered(who=who, partition=tp, offsets=offsets) if (who, tp) in starts:
                start = starts.pop((who, tp))
                if not start <= offsets[0] <= stored.get(tp, 0):
                    found.append(f"{event}: committed was {start} when it was assigned")
    return found


def nothing_comes_twice(log: EventLog) -> list[str]:
    """Check I8: each record is delivered once if members only start, stop normally
    and resubscribe.

    The check ends when a group of the consumer protocol returns to the classic one. Classic members
    that are behind the group epoch then lose their partitions, as on Apache Kafka.
    """
    found: list[str] = []
    seen: defaultdict[TopicPartition, set[int]] = defaultdict(set)
    has_epochs = False
    for event in log:
        match event:
            case EpochStored():
                has_epochs = True
            case GenerationStored(assignments=assignments) if has_epochs and assignments:
                break
            case Processed(partition=tp, offsets=offsets):
                if seen[tp].intersection(offsets):
                    found.append(f"{event}: processed before")
                seen[tp].update(offsets)
    return found


def stopping_takes_its_time_at_most(log: EventLog) -> list[str]:
    """Check I10: a member leaves its block within five seconds."""
    return _too_long(log, Stopping, Stopped, STOP_LIMIT)


def steady_groups_stay(log: EventLog) -> list[str]:
    """Check I11 and I12: restarts of brokers and of static members cause no rebalance."""
    found: list[str] = []
    steady: int | None = None
    for event in log:
        match event:
            case Steady(generation=generation):
                steady = generation
            case Healed():
                steady = None
            case GenerationStored(generation=generation) | EpochStored(epoch=generation):
                if steady not in (None, generation):
                    found.append(f"{event}: it was {steady}")
    return found


def records_are_what_was_produced(log: EventLog) -> list[str]:
    """Check I14: all members read the record that was written at an offset."""
    written = {(event.partition, event.offset): event.value for event in log.of(Produced)}
    return [
        f"{event}: at {offset} there is {written.get((event.partition, offset))}"
        for event in log.of(Delivered)
        for offset, value in zip(event.offsets, event.values, strict=True)
        if written.get((event.partition, offset)) != value
    ]


def revocation_does_not_hang(log: EventLog) -> list[str]:
    """Check I16: a commit in on_revoked ends, successfully or not."""
    return _too_long(log, Revoking, Revoked, COMMIT_LIMIT)


def _too_long(log: EventLog, begins: type[Event], ends: type[Event], limit: float) -> list[str]:
    """Return actions that a living member did not end within the limit, stalls left out."""
    found: list[str] = []
    since: dict[str, float] = {}
    paused: dict[str, float] = {}
    for event in log:
        if isinstance(event, CorePaused):
            paused[event.who] = max(paused.get(event.who, 0.0), event.at + event.seconds)
        elif isinstance(event, Stalled):
            since = {who: began + event.seconds for who, began in since.items()}
        elif isinstance(event, Crashed):
            since.pop(event.who, None)
        elif isinstance(event, begins):
            since[event.who] = event.at
        elif isinstance(event, ends | Stopped):  # stopping cancels everything else
            took = event.at - max(since.pop(event.who, event.at), paused.get(event.who, 0.0))
            if took > limit:
                found.append(f"{event}: after {took:.1f} s")
    never = (f"{who}: no {ends.__name__} after {begins.__name__}" for who in sorted(since))
    return [*found, *never]


def callbacks_run_alone(log: EventLog) -> list[str]:
    """Check I19: callbacks of a member do not overlap, and no poll returns records during one."""
    found: list[str] = []
    inside: set[str] = set()
    for event in log:
        match event:
            case CallbackBegan(who=who):
                if who in inside:
                    found.append(f"{event}: another one runs")
                inside.add(who)
            case CallbackEnded(who=who) | Crashed(who=who) | Stopped(who=who):
                inside.discard(who)
            case Delivered(who=who) if who in inside:
                found.append(f"{event}: while a callback runs")
    return found


def idle_members_hold_nobody_up(log: EventLog) -> list[str]:
    """Check I20: a member that starts gets its share soon, even if other members do not poll."""
    return _too_long(log, Started, Assigned, JOIN_LIMIT)


def errors_are_the_ones_told_of(log: EventLog) -> list[str]:
    """Check I18: commits and polls raise only documented errors, and a zombie's
    commit is refused.
    """
    denied = any("is denied" in event.what for event in log.of(Operation))
    refused = log.of(LoginsFail)
    return [
        f"{event}: not one of {sorted(ERRORS[event.call])}"
        for event in log.of(Failed)
        if event.error not in ERRORS[event.call] | (RIGHTS if denied else set())
        and event.error not in _refusals(refused, event)
    ]


def _refusals(faults: list[LoginsFail], failed: Failed) -> set[str]:
    """Return the errors of logins and of TLS that a member may see at that time."""
    errors: set[str] = set()
    for fault in faults:
        is_about_it = fault.slot in ("", failed.who.partition(".")[0])
        if is_about_it and fault.at <= failed.at <= fault.until + TOLD_FOR:
            errors |= fault.errors
    if failed.call == "start" and len(errors) > 1:
        errors.add("SecurityError")  # the bootstrap servers refuse logins for different reasons
    return errors


def connections_last(log: EventLog) -> list[str]:
    """Check I21: without faults no connection fails, however short sessions are."""
    return [str(event) for event in log.of(ConnectionFailed)]


def slow_lines_deliver(log: EventLog) -> list[str]:
    """Check I26: without faults, a member gets records of each partition that has some in time.

    The time is that of two first fetches, because one may be in flight for former partitions.
    """
    slowed = log.of(LinesSlowed)
    if not slowed:
        return []
    limit = DELIVERY_MARGIN + 2 * START_BYTES / slowed[0].rate
    found: list[str] = []
    ends: defaultdict[TopicPartition, int] = defaultdict(int)
    positions: defaultdict[TopicPartition, int] = defaultdict(int)
    owned: defaultdict[str, set[TopicPartition]] = defaultdict(set)
    topics: dict[str, frozenset[str]] = {}
    since: dict[tuple[str, TopicPartition], float] = {}
    for event in log:
        for (who, tp), began in since.items():
            if tp.topic not in topics.get(who, {tp.topic}):
                continue  # owned until the rebalance, but no longer fetched
            if event.at - began > limit and ends[tp] > positions[tp]:
                late = f"{who} gets nothing of {tp.topic}-{tp.partition} since {began:.1f}"
                found.append(f"{event}: {late}")
                since[who, tp] = event.at
        match event:
            case Subscribed(who=who, topics=chosen, at=at):
                topics[who] = chosen
                since |= {(who, tp): at for tp in owned[who]}
            case Assigned(who=who, partitions=partitions, at=at):
                owned[who] |= partitions
                since |= {(who, tp): at for tp in sorted(partitions)}
            case Revoked(who=who, partitions=partitions) | Lost(who=who, partitions=partitions):
                owned[who] -= partitions
                since = {key: at for key, at in since.items() if key[1] in owned[key[0]]}
            case Stopping(who=who) | Stopped(who=who) | Crashed(who=who):
                owned[who].clear()
                since = {key: at for key, at in since.items() if key[1] in owned[key[0]]}
            case Delivered(who=who, partition=tp, offsets=offsets, at=at):
                positions[tp] = max(positions[tp], offsets[-1] + 1)
                since[who, tp] = at
            case Produced(partition=tp, offset=offset, at=at):
                if positions[tp] == ends[tp]:
                    since |= {(who, tp): at for who, theirs in owned.items() if tp in theirs}
                ends[tp] = offset + 1
    return found


def all_is_well_in_the_end(log: EventLog) -> list[str]:
    """Check I9 and I15: after the faults the group becomes stable and reads everything in time.

    A change of the group's protocol may leave an assignment that fits no longer, as on Apache
    Kafka. No member learns of it.
    """
    stuck = ("nobody owns", "another assignment") if rebalance_is_forgotten(log) else ()
    unowned = {f"nobody owns {tp.topic}-{tp.partition}" for tp in unassigned_since_upgrade(log)}
    return [
        str(event)
        for event in log.of(NeverSettled)
        if not any(words in event.why for words in stuck) and event.why not in unowned
    ]


def nothing_breaks(log: EventLog) -> list[str]:
    """Check that calls raise no other errors than kohort's."""
    return [str(event) for event in log.of(Broke)]


ALWAYS: tuple[Check, ...] = (
    only_owned_partitions_are_delivered,
    positions_are_contiguous,
    commits_are_of_what_is_done,
    commits_never_go_back,
    everything_is_processed,
    each_partition_has_one_owner,
    nobody_starts_ahead,
    nobody_rewinds,
    stopping_takes_its_time_at_most,
    records_are_what_was_produced,
    revocation_does_not_hang,
    callbacks_run_alone,
    errors_are_the_ones_told_of,
    all_is_well_in_the_end,
    nothing_breaks,
    members_share_nothing,
    owners_release_first,
    nothing_is_acknowledged_early,
    withheld_partitions_are_not_delivered,
    partitions_are_in_flight_once,
    only_assigned_partitions_are_fetched,
    throttles_stop_all_fetches,
)
"""Checks for every seed."""
IN_PROFILE: dict[str, tuple[Check, ...]] = {
    "calm": (
        nothing_comes_twice,
        idle_members_hold_nobody_up,
        connections_last,
        slow_lines_deliver,
    ),
    "unpolled": (nothing_comes_twice, idle_members_hold_nobody_up, connections_last),
    "alone": (nothing_comes_twice,),
    "bounce": (steady_groups_stay,),
    "static": (steady_groups_stay,),
}
"""Further checks for seeds of a profile with fewer operations."""


BY_NAME: tuple[Check, ...] = (
    only_owned_partitions_are_delivered,
    owners_release_first,
    nothing_is_acknowledged_early,
    withheld_partitions_are_not_delivered,
    partitions_are_in_flight_once,
    only_assigned_partitions_are_fetched,
    throttles_stop_all_fetches,
)
"""Checks by the names of topics, whether or not they were recreated."""


def violations(log: EventLog, profile: str) -> list[str]:
    """Return all violations, each with its invariant."""
    by_topic = by_incarnation(log)
    return [
        f"{check.__name__}: {sentence}"
        for check in (*ALWAYS, *IN_PROFILE.get(profile, ()))
        for sentence in check(log if check in BY_NAME else by_topic)
    ]
