"""Cooperative rebalances (KIP-429) in the state machine of the classic protocol."""

from __future__ import annotations

from typing import Any

import pytest

from kohort.coordinator_client import MemberState
from kohort.coordinator_client.assignors import Subscription
from kohort.coordinator_client.classic._leaving import SYNC_WAIT_SECONDS
from kohort.coordinator_client.machine._commands import (
    CallAssigned,
    CallLost,
    CallRevoked,
    JoinGroup,
    LeaveGroup,
    StopDelivery,
    SyncGroup,
)
from kohort.errors import KafkaConnectionError, MessageDecodeError
from tests.coordinator_client.scripts import Script, parts


def _stable(*numbers: int) -> Script:
    script = Script(cooperative=True, protocols=("cooperative-sticky",))
    script.subscribe()
    script.poll()
    script.join_answer(protocol="cooperative-sticky")
    script.sync_answer(parts(*numbers))
    script.poll()
    script.called_back(CallAssigned)
    return script


def test_a_cooperative_member_joins_again_with_what_it_owns() -> None:
    script = _stable(0, 1)
    script.beat(27)
    script.poll()
    assert script.at(MemberState.JOINING)
    assert not script.has(CallRevoked)
    join = script.take(JoinGroup)
    assert (join.owned, join.generation) == (parts(0, 1), 1)
    assert script.machine.owned == parts(0, 1)


def test_moves_are_revoked_after_sync_and_a_second_join_follows() -> None:
    script = _stable(0, 1, 2)
    script.beat(27)
    script.poll()
    script.join_answer(generation=2, protocol="cooperative-sticky")
    script.sync_answer(parts(0, 1))
    assert script.machine.owned == parts(0, 1, 2)
    script.poll()
    assert script.machine.owned == parts(0, 1, 2), "the old assignment is visible in the callback"
    assert script.called_back(CallRevoked) == parts(2)
    assert script.called_back(CallAssigned) == frozenset()
    assert script.at(MemberState.JOINING), "the second round does not wait for a poll"
    join = script.take(JoinGroup)
    assert (join.owned, join.generation) == (parts(0, 1), 2)
    script.commands.append(join)
    script.join_answer(generation=3, protocol="cooperative-sticky")
    script.sync_answer(parts(0, 1))
    script.poll()
    assert script.called_back(CallAssigned) == frozenset()
    assert script.at(MemberState.STABLE)
    assert [(r.gained, r.lost) for r in script.machine.history] == [
        (parts(0, 1, 2), frozenset()),
        (frozenset(), parts(2)),
        (frozenset(), frozenset()),
    ]


def test_only_what_is_new_is_assigned() -> None:
    script = _stable(0)
    script.beat(27)
    script.poll()
    script.join_answer(generation=2, protocol="cooperative-sticky")
    script.sync_answer(parts(0, 5))
    script.poll()
    assert script.called_back(CallAssigned) == parts(5)
    assert script.machine.owned == parts(0, 5)
    assert script.at(MemberState.STABLE)


def test_unsubscribed_topics_are_revoked_before_joining() -> None:
    script = _stable(0, 1)
    script.machine.member.owned |= parts(0, topic="u")
    script.subscribe("u")
    script.poll()
    assert script.at(MemberState.REVOKING)
    assert script.called_back(CallRevoked) == parts(0, 1)
    assert script.take(JoinGroup).owned == parts(0, topic="u")


def test_membership_lost_while_joining_is_lost_at_the_next_poll() -> None:
    script = _stable(0, 1)
    script.beat(27)
    script.poll()
    script.join_answer(25)
    assert script.at(MemberState.JOIN_PENDING)
    script.poll()
    assert script.called_back(CallLost) == parts(0, 1)
    assert script.take(JoinGroup).owned == frozenset()


def test_sync_that_a_rebalance_overtakes_keeps_the_partitions() -> None:
    script = _stable(0, 1)
    script.beat(27)
    script.poll()
    script.join_answer(generation=2, protocol="cooperative-sticky")
    script.sync_answer(error_code=27)
    join = script.take(JoinGroup)
    assert (join.owned, join.generation) == (parts(0, 1), 2)


def _rejoin(script: Script, generation: int, *numbers: int, leader: str = "") -> None:
    """Rejoin a group of the consumer protocol, which names no leader, and get an assignment."""
    script.join_answer(generation=generation, protocol="cooperative-sticky", leader=leader)
    script.sync_answer(parts(*numbers))
    script.poll()


def test_partitions_are_lost_when_a_rejoin_misses_a_generation() -> None:
    script = _stable(0, 1)
    script.beat(27)
    script.poll()
    script.join_answer(27)  # the group changes its protocol
    script.wait(0.2)
    script.join_answer(generation=3, protocol="cooperative-sticky", leader="")
    script.sync_answer(parts(0))
    assert script.take(StopDelivery).partitions == parts(1)
    assert script.machine.owned == parts(0), "partition 1 is not committed"
    script.poll()
    assert script.called_back(CallLost) == parts(1)
    assert script.called_back(CallAssigned) == frozenset()
    assert script.take(JoinGroup).owned == parts(0)


@pytest.mark.parametrize("until", ["reconciling", "revoking"])
def test_leaving_calls_lost_for_rejoin_losses_and_revokes_rest(until: str) -> None:
    script = _stable(0, 1)
    script.beat(27)
    script.poll()
    script.join_answer(generation=3, protocol="cooperative-sticky", leader="")
    script.sync_answer(parts(0))
    if until == "revoking":
        script.poll()
    script.leave()
    assert not script.has(CallRevoked), "the lost partitions are first"
    assert script.called_back(CallLost) == parts(1)
    assert script.called_back(CallRevoked) == parts(0)
    assert script.machine.owned == frozenset()
    script.leave_answer()
    assert script.at(MemberState.UNSUBSCRIBED)


def test_all_partitions_are_lost_if_membership_ends_after_a_gap() -> None:
    script = _stable(0, 1)
    script.beat(27)
    script.poll()
    script.join_answer(generation=3, protocol="cooperative-sticky", leader="")
    script.sync_answer(parts(0))
    script.beat(25)  # before poll()
    script.poll()
    assert script.called_back(CallLost) == parts(0, 1)
    assert script.take(JoinGroup).owned == frozenset()
    assert not script.machine.member.lost


@pytest.mark.parametrize(
    ("epoch", "callback"),
    [
        (3, CallRevoked),  # the coordinator waits in epoch 3 until this member gives something up
        (4, CallLost),  # this member had nothing to give up in epoch 3
    ],
)
def test_partitions_go_by_the_epoch_when_sync_fails_after_a_gap(
    epoch: int, callback: type[CallRevoked] | type[CallLost]
) -> None:
    script = _stable(0, 1)
    script.beat(27)
    script.poll()
    script.join_answer(generation=3, protocol="cooperative-sticky", leader="")
    script.sync_answer(error_code=27)
    _rejoin(script, epoch, 0)
    assert script.called_back(callback) == parts(1)


def test_partitions_are_revoked_if_consumer_group_keeps_epoch() -> None:
    script = _stable(0, 1)
    script.beat(27)
    script.poll()
    _rejoin(script, 1, 0)
    assert script.called_back(CallRevoked) == parts(1)


def test_partitions_are_kept_when_only_the_epoch_is_newer() -> None:
    script = _stable(0, 1)
    script.beat(27)
    script.poll()
    _rejoin(script, 3, 0, 1, 2)
    assert script.called_back(CallAssigned) == parts(2)


def test_partitions_are_revoked_if_rebalance_becomes_an_upgrade() -> None:
    script = _stable(0, 1)
    script.beat(27)
    script.poll()
    script.join_answer(generation=2, protocol="cooperative-sticky")
    script.sync_answer(error_code=27)  # the group is converted and keeps generation 2
    _rejoin(script, 2, 0)
    assert script.called_back(CallRevoked) == parts(1)


def test_heartbeats_of_joining_member_only_check_the_coordinator() -> None:
    script = _stable(0)
    script.beat(27)
    script.poll()
    assert script.at(MemberState.JOINING)
    for code in (27, 22, 25):
        script.beat(code)
        assert script.at(MemberState.JOINING)
    assert script.machine.generation == 1


def _syncing_again() -> Script:
    script = _stable(0, 1)
    script.beat(27)
    script.poll()
    script.join_answer(generation=2, protocol="cooperative-sticky")
    script.leave()
    assert not script.has(CallRevoked), "the coordinator would reject its commit"
    return script


def test_leaving_waits_for_sync_so_that_the_last_commit_counts() -> None:
    script = _syncing_again()
    script.sync_answer(parts(0))
    assert script.called_back(CallRevoked) == parts(0, 1)
    script.leave_answer()
    assert script.at(MemberState.UNSUBSCRIBED)
    assert script.machine.next_deadline() is None


def test_leaving_does_not_wait_long_for_sync() -> None:
    script = _syncing_again()
    assert script.machine.next_deadline() is not None
    script.wait(SYNC_WAIT_SECONDS)
    assert script.called_back(CallRevoked) == parts(0, 1)
    script.leave_answer()
    assert script.at(MemberState.UNSUBSCRIBED)


def test_membership_that_ends_while_leaving_awaits_sync_is_lost() -> None:
    for code, callback in ((25, CallLost), (27, CallRevoked), (22, CallLost), (16, CallRevoked)):
        script = _syncing_again()
        script.sync_answer(error_code=code)
        assert script.called_back(callback) == parts(0, 1)
        if script.has(LeaveGroup):
            script.leave_answer()
        assert script.at(MemberState.UNSUBSCRIBED)


def test_membership_lost_in_revoked_callback_loses_the_rest() -> None:
    script = _stable(0, 1, 2)
    script.beat(27)
    script.poll()
    script.join_answer(generation=2, protocol="cooperative-sticky")
    script.sync_answer(parts(0, 1))
    script.poll()
    script.beat(25)
    assert script.called_back(CallRevoked) == parts(2)
    assert script.machine.owned == parts(0, 1)
    script.poll()
    assert script.called_back(CallLost) == parts(0, 1)


def _joining_again() -> Script:
    """Return a member that leaves with partitions while its JoinGroup is in flight."""
    script = _stable(0, 1)
    script.beat(27)
    script.poll()
    script.leave()
    assert script.has(CallRevoked), "a commit in the old generation is accepted"
    assert script.machine.owned == parts(0, 1)
    return script


def _join_round(script: Script, generation: int = 2, **fields: Any) -> None:
    script.join_answer(generation=generation, protocol="cooperative-sticky", **fields)


def test_leaving_in_a_join_round_ends_it_with_the_callback() -> None:
    script = _joining_again()
    asked = next(one for one in script.commands if isinstance(one, JoinGroup))
    assert script.called_back(CallRevoked) == parts(0, 1)
    assert asked.token in script.cancelled
    script.leave_answer()
    assert script.at(MemberState.UNSUBSCRIBED)
    assert script.machine.next_deadline() is None


def test_leaving_takes_the_generation_of_its_join_round() -> None:
    script = _joining_again()
    assert script.machine.is_finishing_rebalance
    _join_round(script)
    assert script.machine.is_finishing_rebalance
    script.sync_answer(parts(0))
    assert (script.machine.generation, script.machine.is_finishing_rebalance) == (2, False)
    assert script.machine.owned == parts(0, 1), "the callback may commit"
    assert script.called_back(CallRevoked) == parts(0, 1)
    script.leave_answer()
    assert script.at(MemberState.UNSUBSCRIBED)
    assert script.machine.next_deadline() is None


def test_a_leader_that_leaves_ends_its_join_round() -> None:
    script = _joining_again()
    _join_round(script, leader="me", members={"me": Subscription(("t",))})
    script.assign({"me": parts(0, 1)})
    script.sync_answer(parts(0, 1))
    assert (script.machine.generation, script.machine.is_finishing_rebalance) == (2, False)
    script.called_back(CallRevoked)
    script.leave_answer()
    assert script.at(MemberState.UNSUBSCRIBED)


@pytest.mark.parametrize("answered", [False, True])
def test_leaving_does_not_wait_long_for_a_join_round(answered: bool) -> None:
    script = _joining_again()
    if answered:
        _join_round(script)
    script.wait(SYNC_WAIT_SECONDS)
    assert script.at(MemberState.LEAVING)
    assert not script.machine.is_finishing_rebalance
    assert not script.has(JoinGroup)
    assert not script.has(SyncGroup)
    script.called_back(CallRevoked)
    script.leave_answer()
    assert script.at(MemberState.UNSUBSCRIBED)


def test_leaving_takes_no_generation_after_one_without_it() -> None:
    script = _joining_again()
    _join_round(script, generation=3)
    assert (script.machine.generation, script.machine.is_finishing_rebalance) == (1, False)


@pytest.mark.parametrize("code", [16, 22, 25, 79, 82])
def test_leaving_waits_no_longer_when_join_group_fails(code: int) -> None:
    script = _joining_again()
    _join_round(script, error_code=code)
    assert script.at(MemberState.LEAVING)
    assert (script.machine.generation, script.machine.is_finishing_rebalance) == (1, False)
    assert not script.has(JoinGroup)


@pytest.mark.parametrize("error", [KafkaConnectionError("gone"), MessageDecodeError("garbage")])
def test_leaving_waits_no_longer_when_join_group_is_lost(error: Exception) -> None:
    script = _joining_again()
    script.refuse(JoinGroup, error)
    assert script.at(MemberState.LEAVING)
    assert script.machine.generation == 1


def test_a_member_lost_while_it_leaves_has_no_generation() -> None:
    script = _joining_again()
    _join_round(script)
    script.sync_answer(error_code=25)
    assert script.at(MemberState.LEAVING)
    assert (script.machine.generation, script.machine.is_finishing_rebalance) == (-1, False)
    script.called_back(CallRevoked)
    assert script.at(MemberState.UNSUBSCRIBED)
