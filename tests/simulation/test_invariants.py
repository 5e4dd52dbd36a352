"""Each invariant is violated by a log that breaks it, and by no good log."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from kohort.types import TopicPartition
from tests.simulation import epoch_invariants, fetch_invariants, invariants
from tests.simulation.events import (
    Assigned,
    Broke,
    CallbackBegan,
    CallbackEnded,
    CommitAccepted,
    Committed,
    ConnectionFailed,
    CorePaused,
    Crashed,
    Delivered,
    EpochStored,
    Event,
    EventLog,
    Failed,
    FetchEnded,
    FetchSent,
    GenerationStored,
    Grown,
    Healed,
    LinesSlowed,
    LoginsFail,
    Lost,
    MemberRemoved,
    MemberStored,
    NeverSettled,
    OffsetStored,
    Operation,
    OwnedReported,
    Processed,
    Produced,
    RebalanceForgotten,
    Recreated,
    Revoked,
    Revoking,
    Settled,
    Stalled,
    Started,
    Steady,
    Stopped,
    Stopping,
    TargetReceived,
    Throttled,
)
from tests.simulation.invariants import Check
from tests.simulation.world import TOPICS

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
BOTH = frozenset({T0, T1})
ONE, OTHER = frozenset({T0}), frozenset({T1})


def produced(count: int, tp: TopicPartition = T0) -> list[Event]:
    return [Produced(partition=tp, offset=at, value=f"v{at}") for at in range(count)]


def delivered(who: str, first: int, end: int, tp: TopicPartition = T0) -> Delivered:
    offsets = tuple(range(first, end))
    return Delivered(
        who=who, partition=tp, offsets=offsets, values=tuple(f"v{at}" for at in offsets)
    )


def processed(who: str, first: int, end: int, tp: TopicPartition = T0) -> Processed:
    return Processed(who=who, partition=tp, offsets=tuple(range(first, end)))


def read(who: str, first: int, end: int) -> list[Event]:
    return [delivered(who, first, end), processed(who, first, end)]


def generation(number: int, **shares: frozenset[TopicPartition]) -> GenerationStored:
    return GenerationStored(
        generation=number, assignments=tuple((name, name, share) for name, share in shares.items())
    )


def accepted(who: str, number: int, offset: int, tp: TopicPartition = T0) -> list[Event]:
    taken = CommitAccepted(member_id=who, generation=number, offsets=((tp, offset),))
    return [OffsetStored(partition=tp, offset=offset), taken]


def stored(
    who: str,
    epoch: int,
    assigned: frozenset[TopicPartition],
    pending: frozenset[TopicPartition] = frozenset(),
) -> MemberStored:
    return MemberStored(who=who, member_id=who, epoch=epoch, assigned=assigned, pending=pending)


def fetch(
    connection: str, *requests: tuple[TopicPartition, int], unassigned: frozenset[Any] = frozenset()
) -> FetchSent:
    """Return a fetch of partitions with their epochs from broker 1."""
    return FetchSent(
        who="a",
        node=1,
        connection=connection,
        requests=frozenset(requests),
        unassigned=unassigned,
    )


GOOD: list[Event] = [
    LinesSlowed(rate=100_000),
    *produced(6),
    Started(who="a", topics=frozenset({"t"}), settings=""),
    generation(1, a=BOTH),
    Assigned(who="a", partitions=BOTH),
    Steady(generation=1),
    fetch("fetch", (T0, 1)),
    fetch("fetch-1", (T1, 1), (T0, 2)),
    replace(fetch("fetch-2", (T0, 1)), node=2),
    FetchEnded(who="a", node=1, connection="fetch"),
    Throttled(who="a", node=1, seconds=2.0, at=1.0),
    replace(fetch("fetch", (T0, 1)), node=3, at=2.0),
    replace(fetch("fetch", (T0, 3)), at=3.0),
    replace(fetch("fetch", (T0, 1)), who="b", at=2.0),
    *read("a", 0, 3),
    *accepted("a", 1, 3),
    Committed(who="a", seconds=0.0),
    Healed(),
    CallbackBegan(who="a"),
    Revoking(who="a", partitions=ONE),
    Revoked(who="a", partitions=ONE),
    CallbackEnded(who="a"),
    generation(2, a=OTHER, b=ONE),
    Assigned(who="a", partitions=frozenset()),
    Assigned(who="b", partitions=ONE),
    *read("b", 3, 6),
    Failed(who="b", call="commit", error="CommitFailedError", seconds=0.0),
    Settled(assignments=(("a", OTHER), ("b", ONE))),
    Operation(at=9.0, what="one Fetch hangs", fault=True, takes_time=True),
    OffsetStored(at=9.5, partition=T0, offset=1),
    Stopping(who="a", at=10.0),
    Stalled(at=11.0, seconds=3.0),
    CorePaused(who="a", at=12.0, seconds=2.0),
    Stopped(who="a", at=19.0),
    Crashed(who="b"),
]

GOOD_EPOCHS: list[Event] = [
    *produced(6),
    EpochStored(epoch=2),
    stored("a", 2, BOTH),
    TargetReceived(who="a", partitions=BOTH),
    Assigned(who="a", partitions=BOTH),
    OwnedReported(who="a", partitions=BOTH),
    *read("a", 0, 3),
    *accepted("a", 2, 3),
    EpochStored(epoch=3),
    *accepted("a", 2, 3),
    stored("a", 2, OTHER, ONE),
    stored("b", 3, frozenset()),
    TargetReceived(who="a", partitions=OTHER, at=1.0),
    replace(delivered("a", 3, 4), at=1.0),
    processed("a", 3, 4),
    CallbackBegan(who="a"),
    Revoking(who="a", partitions=ONE),
    *accepted("a", 2, 4),
    OwnedReported(who="a", partitions=BOTH),
    Revoked(who="a", partitions=ONE),
    CallbackEnded(who="a"),
    OwnedReported(who="a", partitions=OTHER),
    stored("a", 3, OTHER),
    stored("b", 3, ONE),
    Assigned(who="b", partitions=ONE),
    *read("b", 4, 6),
    TargetReceived(who="a", partitions=frozenset(), at=2.0),
    TargetReceived(who="a", partitions=OTHER, at=3.0),
    *produced(1, T1),
    replace(delivered("a", 0, 1, T1), at=4.0),
    processed("a", 0, 1, T1),
    Revoking(who="b", partitions=ONE),
    MemberRemoved(who="b", member_id="b"),
    OwnedReported(who="b", partitions=frozenset()),
    Revoked(who="b", partitions=ONE),
    Assigned(who="b", partitions=ONE),
    stored("a", 4, BOTH),
    Recreated(topic="t", number=2),
    stored("b", 5, frozenset({TopicPartition("t@2", 1)})),
    GenerationStored(generation=5, assignments=(("a", "a", BOTH),)),
    *accepted("a", 5, 0),
]

owned = [Assigned(who="a", partitions=BOTH)]
assigned_b = Assigned(who="b", partitions=ONE)
BAD: dict[str, tuple[Check, list[Event]]] = {
    "a partition over two connections": (
        fetch_invariants.partitions_are_in_flight_once,
        [fetch("fetch", (T0, 1)), fetch("fetch-1", (T0, 1), (T1, 1))],
    ),
    "two fetches over one connection": (
        fetch_invariants.partitions_are_in_flight_once,
        [fetch("fetch", (T0, 1)), fetch("fetch", (T1, 1))],
    ),
    "a fetch of an unassigned partition": (
        fetch_invariants.only_assigned_partitions_are_fetched,
        [fetch("fetch-1", (T0, 1), unassigned=ONE)],
    ),
    "a fetch during a throttle time": (
        fetch_invariants.throttles_stop_all_fetches,
        [
            Throttled(who="a", node=1, seconds=2.0, at=1.0),
            Throttled(who="a", node=1, seconds=0.5, at=1.2),
            replace(fetch("fetch-1", (T0, 1)), at=2.0),
        ],
    ),
    "records that a slow line holds back": (
        invariants.slow_lines_deliver,
        [LinesSlowed(rate=100_000), *owned, *produced(1), Healed(at=20.0)],
    ),
    "delivered without an assignment": (
        invariants.only_owned_partitions_are_delivered,
        [delivered("a", 0, 1)],
    ),
    "delivered after on_revoked": (
        invariants.only_owned_partitions_are_delivered,
        [*owned, Revoked(who="a", partitions=ONE), delivered("a", 0, 1)],
    ),
    "delivered after on_lost": (
        invariants.only_owned_partitions_are_delivered,
        [*owned, Lost(who="a", partitions=BOTH), delivered("a", 0, 1)],
    ),
    "an offset left out": (
        invariants.positions_are_contiguous,
        [*owned, delivered("a", 0, 2), delivered("a", 3, 4)],
    ),
    "an offset again": (
        invariants.positions_are_contiguous,
        [*owned, delivered("a", 0, 2), delivered("a", 1, 4)],
    ),
    "a hole in a batch": (
        invariants.positions_are_contiguous,
        [*owned, Delivered(who="a", partition=T0, offsets=(0, 2), values=("v0", "v2"))],
    ),
    "committed ahead of what is processed": (
        invariants.commits_are_of_what_is_done,
        [generation(1, a=ONE), *read("a", 0, 2), *accepted("a", 1, 3)],
    ),
    "committed a partition of another's": (
        invariants.commits_are_of_what_is_done,
        [generation(1, a=ONE, b=OTHER), *accepted("b", 1, 0)],
    ),
    "committed a partition that was given away": (
        invariants.commits_are_of_what_is_done,
        [generation(1, a=ONE), generation(2, b=ONE), *accepted("a", 2, 0)],
    ),
    "committed in a generation that is over": (
        invariants.commits_are_of_what_is_done,
        [generation(1, a=ONE), generation(2, a=ONE), *accepted("a", 1, 0)],
    ),
    "committed what the coordinator gave to another": (
        invariants.commits_are_of_what_is_done,
        [stored("a", 2, ONE), stored("b", 3, ONE), *accepted("a", 2, 0)],
    ),
    "two members of a partition": (
        epoch_invariants.members_share_nothing,
        [stored("a", 2, OTHER, ONE), stored("b", 2, ONE)],
    ),
    "a partition is given away before its callback ends": (
        epoch_invariants.owners_release_first,
        [
            stored("a", 2, ONE),
            *owned,
            CallbackBegan(who="a"),
            Revoking(who="a", partitions=ONE),
            Revoked(who="a", partitions=ONE),
            stored("b", 2, ONE),
            CallbackEnded(who="a"),
        ],
    ),
    "a revocation is acknowledged before its callback ends": (
        epoch_invariants.nothing_is_acknowledged_early,
        [
            Revoking(who="a", partitions=ONE),
            OwnedReported(who="a", partitions=OTHER),
            CallbackEnded(who="a"),
        ],
    ),
    "delivered after the response that takes it away": (
        epoch_invariants.withheld_partitions_are_not_delivered,
        [
            *owned,
            TargetReceived(who="a", partitions=OTHER, at=1.0),
            replace(delivered("a", 0, 1), at=1.5),
        ],
    ),
    "a group by epochs rebalances": (
        invariants.steady_groups_stay,
        [EpochStored(epoch=2), Steady(generation=2), EpochStored(epoch=3)],
    ),
    "a commit goes back": (
        invariants.commits_never_go_back,
        [OffsetStored(partition=T0, offset=2), OffsetStored(partition=T0, offset=1)],
    ),
    "a record that nobody processed": (
        invariants.everything_is_processed,
        [*produced(2), *read("a", 0, 1), Settled(assignments=(("a", ONE),))],
    ),
    "two owners of a partition": (
        invariants.each_partition_has_one_owner,
        [generation(1, a=BOTH, b=ONE)],
    ),
    "an owner starts ahead": (
        invariants.nobody_starts_ahead,
        [*owned, delivered("a", 0, 3), processed("a", 0, 2), assigned_b, delivered("b", 3, 4)],
    ),
    "an owner starts before what is committed": (
        invariants.nobody_rewinds,
        [OffsetStored(partition=T0, offset=2), *owned, delivered("a", 0, 3)],
    ),
    "an owner starts behind what is committed": (
        invariants.nobody_rewinds,
        [OffsetStored(partition=T0, offset=2), *owned, delivered("a", 3, 4)],
    ),
    "a record comes twice": (
        invariants.nothing_comes_twice,
        [*read("a", 0, 2), *read("b", 1, 3)],
    ),
    "stopping takes long": (
        invariants.stopping_takes_its_time_at_most,
        [Stopping(who="a", at=1.0), Stopped(who="a", at=7.0)],
    ),
    "stopping does not end": (
        invariants.stopping_takes_its_time_at_most,
        [Stopping(who="a", at=1.0)],
    ),
    "a steady group rebalances": (
        invariants.steady_groups_stay,
        [generation(1, a=BOTH), Steady(generation=1), generation(2, a=BOTH)],
    ),
    "another value than was written": (
        invariants.records_are_what_was_produced,
        [*produced(1), Delivered(who="a", partition=T0, offsets=(0,), values=("v7",))],
    ),
    "a record that was never written": (
        invariants.records_are_what_was_produced,
        [*produced(1), delivered("a", 0, 2)],
    ),
    "on_revoked hangs": (
        invariants.revocation_does_not_hang,
        [Revoking(who="a", partitions=ONE, at=1.0), Revoked(who="a", partitions=ONE, at=31.0)],
    ),
    "a callback beside another": (
        invariants.callbacks_run_alone,
        [CallbackBegan(who="a"), CallbackBegan(who="b"), CallbackBegan(who="a")],
    ),
    "a poll returns while a callback runs": (
        invariants.callbacks_run_alone,
        [*owned, CallbackBegan(who="a"), delivered("a", 0, 1), CallbackEnded(who="a")],
    ),
    "a start waits for a member that rests": (
        invariants.idle_members_hold_nobody_up,
        [Started(who="b", topics=frozenset("t"), settings=""), replace(assigned_b, at=13.0)],
    ),
    "a start without an end": (
        invariants.idle_members_hold_nobody_up,
        [Started(who="b", topics=frozenset("t"), settings="")],
    ),
    "an error out of place": (
        invariants.errors_are_the_ones_told_of,
        [Failed(who="a", call="commit", error="UnknownMemberIdError", seconds=0.0)],
    ),
    "an error of a login without its fault": (
        invariants.errors_are_the_ones_told_of,
        [
            LoginsFail(slot="b", errors=frozenset({"SaslAuthenticationFailedError"}), until=9.0),
            LoginsFail(slot="", errors=frozenset({"SaslServerError"}), until=9.0),
            Failed(who="a.1", call="poll", error="SaslServerError", seconds=0.0),
            Failed(who="b.1", call="start", error="SecurityError", seconds=0.0),
            Failed(who="b.1", call="poll", error="SaslAuthenticationFailedError", seconds=0.0),
            Failed(who="a.1", call="start", error="SaslAuthenticationFailedError", seconds=0.0),
        ],
    ),
    "an error of a login long after its fault": (
        invariants.errors_are_the_ones_told_of,
        [
            LoginsFail(slot="", errors=frozenset({"SaslServerError"}), until=9.0),
            Failed(who="a.1", call="poll", error="SaslServerError", seconds=0.0, at=60.0),
        ],
    ),
    "a connection fails": (
        invariants.connections_last,
        [ConnectionFailed(who="a.1", error="KafkaConnectionError", lost=False)],
    ),
    "the group never gets well": (
        invariants.all_is_well_in_the_end,
        [NeverSettled(why="the group is PreparingRebalance")],
    ),
    "something breaks": (invariants.nothing_breaks, [Broke(who="a", error="KeyError()")]),
}


def log_of(events: Iterable[Event]) -> EventLog:
    log = EventLog()
    for event in events:
        log.add(event)
    return log


@pytest.mark.parametrize("name", BAD)
def test_a_bad_log_is_found_by_its_check_alone(name: str) -> None:
    check, events = BAD[name]
    assert len(check(log_of(events))) == 1


def test_a_good_log_violates_nothing() -> None:
    for profile in ("storm", *invariants.IN_PROFILE):
        assert invariants.violations(log_of(GOOD), profile) == []


def test_a_good_log_of_epochs_violates_nothing() -> None:
    assert invariants.violations(log_of(GOOD_EPOCHS), "storm") == []


def test_every_check_has_its_bad_log() -> None:
    checks = {*invariants.ALWAYS, *(c for some in invariants.IN_PROFILE.values() for c in some)}
    assert checks == {check for check, _ in BAD.values()}


def test_violations_name_their_check() -> None:
    bad = log_of([NeverSettled(why="w")])
    (sentence,) = invariants.violations(bad, "storm")
    assert sentence.startswith("all_is_well_in_the_end: ")
    assert "why=w" in sentence


UNOWNED = NeverSettled(why="nobody owns t-1")


def test_a_forgotten_rebalance_is_excused_until_the_next_epoch() -> None:
    forgotten = RebalanceForgotten(generation=5)
    stuck = [forgotten, EpochStored(epoch=5), UNOWNED]
    assert invariants.all_is_well_in_the_end(log_of(stuck)) == []
    for later in (EpochStored(epoch=6), GenerationStored(generation=6, assignments=())):
        assert len(invariants.all_is_well_in_the_end(log_of([forgotten, later, UNOWNED]))) == 1
    unread = NeverSettled(why="records of t-0 are not processed")
    assert len(invariants.all_is_well_in_the_end(log_of([forgotten, unread]))) == 1
    left = [*stuck, GenerationStored(generation=6, assignments=())]  # the members stop at the end
    assert invariants.all_is_well_in_the_end(log_of(left)) == []


def test_upgrade_excuses_new_partitions_until_the_next_epoch() -> None:
    every = frozenset(TopicPartition(t, n) for t, count in TOPICS.items() for n in range(count))
    stable = GenerationStored(generation=5, assignments=(("a", "A", every),))
    grown, upgrade = Grown(topic="t", count=5), EpochStored(epoch=5)
    stuck = NeverSettled(why="nobody owns t-4")

    def found(*events: Event) -> int:
        return len(invariants.all_is_well_in_the_end(log_of([stable, *events])))

    assert found(grown, upgrade, stuck) == 0
    assert found(grown, upgrade, stable, stuck) == 0, "the same generation after a downgrade"
    assert found(upgrade, grown, stuck) == 1, "a heartbeat finds it"
    assert found(grown, upgrade, EpochStored(epoch=6), stuck) == 1
    assert found(grown, upgrade, replace(stable, generation=6), stuck) == 1
    assert found(grown, stuck) == 1
    assert found(grown, upgrade, NeverSettled(why="nobody owns t-0")) == 1


def test_classic_member_not_stored_by_an_upgrade_owns_nothing() -> None:
    events = [
        GenerationStored(generation=5, assignments=(("a", "A", ONE), ("b", "B", frozenset()))),
        Assigned(who="a", partitions=ONE),
        EpochStored(epoch=5),
        stored("b", 5, frozenset()),
        TargetReceived(who="b", partitions=frozenset()),
        stored("b", 6, ONE),
    ]
    assert epoch_invariants.owners_release_first(log_of(events)) == []
    events[4] = EpochStored(epoch=6)  # of the newcomer, in the same batch of records
    assert epoch_invariants.owners_release_first(log_of(events)) == []
    events.insert(3, stored("a", 5, ONE))
    assert len(epoch_invariants.owners_release_first(log_of(events))) == 1


def test_a_static_member_that_left_owns_nothing() -> None:
    left = MemberStored(who="a", member_id="A", epoch=-2, assigned=frozenset(), pending=frozenset())
    events = [stored("a", 2, ONE), Assigned(who="a", partitions=ONE), left, stored("b", 3, ONE)]
    assert epoch_invariants.owners_release_first(log_of(events)) == []
    without = [event for event in events if event is not left]
    assert len(epoch_invariants.owners_release_first(log_of(without))) == 1


def test_a_partition_of_a_deleted_topic_is_another_one() -> None:
    new = frozenset({TopicPartition("t@2", 0)})
    old = frozenset({TopicPartition("t", 0)})
    events: list[Event] = [
        Recreated(topic="t", number=2),
        stored("a", 2, new),
        Assigned(who="a", partitions=old),
    ]
    replaced = stored("b", 0, old)
    assert epoch_invariants.owners_release_first(log_of([*events, replaced])) == []
    shared = stored("b", 3, new)
    assert len(epoch_invariants.owners_release_first(log_of([*events, shared]))) == 1
