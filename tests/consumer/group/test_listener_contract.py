"""The rebalance listener's contract, on both APIs and both group protocols.

Classic groups have eager and cooperative rebalances.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kohort import TopicPartition
from kohort.errors import CommitFailedError, ErrorCode, RebalanceListenerError
from tests.consumer.both_apis import Driven, Partitions, Stage, perform

EAGER, COOPERATIVE, CONSUMER = "range", "cooperative-sticky", "consumer"
"""Assignors of classic groups, and the protocol of consumer groups, which is cooperative."""
Script = Callable[[Stage, str], Awaitable[None]]
ALL = frozenset(TopicPartition("t", number) for number in range(4))
TP = TopicPartition("t", 0)


@pytest.fixture(params=["sync", "async"])
def api(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=[EAGER, COOPERATIVE, CONSUMER])
def style(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def options(style: str, **more: Any) -> dict[str, Any]:
    if style == CONSUMER:
        return {"group_protocol": CONSUMER, **more}
    return {"partition_assignment_strategy": [style], **more}


def end_membership(stage: Stage, style: str, code: ErrorCode) -> None:
    """Let the coordinator refuse the next heartbeat as one of a removed member."""
    if style != CONSUMER:
        stage.cluster.fail("Heartbeat", code)
        return
    if code == ErrorCode.ILLEGAL_GENERATION:  # the code of classic groups
        code = ErrorCode.FENCED_MEMBER_EPOCH
    stage.cluster.fail("ConsumerGroupHeartbeat", code)


def owned(*members: Driven) -> list[int]:
    return [len(member.consumer.assignment()) for member in members]


async def share(stage: Stage, *members: Driven) -> None:
    """Poll until the members share the four partitions evenly and stop rebalancing."""
    each = [4 // len(members)] * len(members)
    await stage.until(lambda: owned(*members) == each, *members)
    for _ in range(5):
        for member in members:
            await member.poll()
    assert owned(*members) == each


def test_the_first_join_assigns_and_revokes_nothing(api: str, style: str) -> None:
    async def script(stage: Stage) -> None:
        one = await stage.join("t", **options(style))
        await stage.until(lambda: one.calls, one)
        assert one.calls == [("assigned", ALL)]

    perform(api, script, {"t": 4})


def test_eager_revokes_all_and_cooperative_only_what_moves(api: str, style: str) -> None:
    async def script(stage: Stage) -> None:
        one = await stage.join("t", **options(style))
        await stage.until(lambda: one.calls, one)
        two = await stage.join("t", **options(style))
        await share(stage, one, two)
        kept = frozenset(one.consumer.assignment())
        if style == EAGER:
            assert one.calls[1:] == [("revoked", ALL), ("assigned", kept)]
            assert two.calls == [("assigned", ALL - kept)]
        else:
            revoked = [some for name, some in one.calls if name == "revoked"]
            assert revoked == [ALL - kept], "one call, with these partitions only"
            assigned = [some for name, some in two.calls if name == "assigned"]
            assert frozenset().union(*assigned) == ALL - kept
            assert sum(map(len, assigned)) == len(ALL - kept), "each partition is added once"

    perform(api, script, {"t": 4})


def test_each_rebalance_calls_assigned_even_without_changes(api: str, style: str) -> None:
    if style == CONSUMER:
        pytest.skip("a member cannot request a rebalance")

    async def script(stage: Stage) -> None:
        one = await stage.join("t", **options(style))
        await stage.until(lambda: one.calls, one)
        one.consumer.enforce_rebalance("to see")
        await stage.until(lambda: len([n for n, _ in one.calls if n == "assigned"]) == 2, one)
        again = [("revoked", ALL), ("assigned", ALL)]
        assert one.calls[1:] == (again if style == EAGER else [("assigned", frozenset())])

    perform(api, script, {"t": 4})


def test_cooperative_revokes_unsubscribed_topics_before_joining(api: str) -> None:
    async def script(stage: Stage) -> None:
        generations: list[int] = []

        async def revoked(member: Driven, partitions: Partitions) -> None:
            generations.append(stage.cluster.group("g").generation)

        one = await stage.join("t", "u", revoked=revoked, **options(COOPERATIVE))
        await stage.until(lambda: one.calls, one)
        u = frozenset(TopicPartition("u", number) for number in range(2))
        assert one.calls == [("assigned", ALL | u)]
        one.want("t")
        await stage.until(lambda: len(one.calls) == 3, one)
        assert one.calls[1:] == [("revoked", u), ("assigned", frozenset())]
        assert generations == [1], "nothing was joined yet"
        assert one.consumer.assignment() == ALL

    perform(api, script, {"t": 4, "u": 2})


@pytest.mark.parametrize("style", [COOPERATIVE, CONSUMER])
def test_kept_partitions_are_read_in_a_cooperative_rebalance(api: str, style: str) -> None:
    async def script(stage: Stage) -> None:
        one = await stage.join("t", **options(style))
        await stage.until(lambda: one.calls, one)
        two = await stage.join("t", **options(style))
        await stage.until(lambda: len(stage.cluster.group("g").members) == 2, one, two)
        for number in range(4):
            stage.cluster.produce("t", [b"%d" % number], partition=number)
        values = await stage.until(lambda: owned(one, two) == [2, 2], one, two)
        while len(set(values)) < 4:
            values += await one.poll() + await two.poll()
        assert sorted(values) == [b"0", b"1", b"2", b"3"], "each once"

    perform(api, script, {"t": 4})


def test_revoked_sees_old_assignment_and_position_and_commits(api: str, style: str) -> None:
    async def script(stage: Stage) -> None:
        seen: list[Any] = []

        async def revoked(member: Driven, partitions: Partitions) -> None:
            seen.append((partitions, member.consumer.assignment()))
            seen.append({tp: await member.consumer.position(tp) for tp in partitions})
            await member.consumer.commit()
            seen.append(stage.cluster.committed("g"))

        one = await stage.join("t", revoked=revoked, **options(style, enable_auto_commit=False))
        for number in range(4):
            stage.cluster.produce("t", [b"x"], partition=number)
        values: list[bytes] = []
        while len(values) < 4:
            values += await one.poll()
        two = await stage.join("t", **options(style))
        await share(stage, one, two)
        (partitions, before), positions, committed = seen[:3]
        assert before == ALL and partitions == (ALL if style == EAGER else ALL - owned_by(one))
        assert positions == dict.fromkeys(partitions, 1)
        assert {tp: at.offset for tp, at in committed.items()} == dict.fromkeys(ALL, 1)

    perform(api, script, {"t": 4})


def test_callbacks_may_look_up_seek_pause_and_commit(api: str) -> None:
    """kafka-python 3.0.12 raises RuntimeError from position() and commit()."""

    async def script(stage: Stage) -> None:
        seen: list[Any] = []
        other = TopicPartition("t", 1)

        async def assigned(member: Driven, partitions: Partitions) -> None:
            seen.append(await member.consumer.position(TP))
            member.consumer.seek(TP, 1)
            member.consumer.pause(other)

        async def revoked(member: Driven, partitions: Partitions) -> None:
            seen.append((member.consumer.assignment(), await member.consumer.position(TP)))
            await member.consumer.commit()
            seen.append(await member.consumer.committed(TP))

        stage.cluster.produce("t", [b"0", b"1", b"2"], partition=0)
        one = await stage.join("t", assigned=assigned, revoked=revoked, enable_auto_commit=False)
        values: list[bytes] = []
        while len(values) < 2:
            values += await one.poll()
        assert values == [b"1", b"2"]
        assert one.consumer.paused() == {other}
        await one.consumer.close()
        assert seen == [0, (ALL, 3), 3]
        assert stage.cluster.committed("g")[TP].offset == 3

    perform(api, script, {"t": 4})


def owned_by(member: Driven) -> Partitions:
    return frozenset(member.consumer.assignment())


def test_automatic_commits_come_before_revoked(api: str, style: str) -> None:
    async def script(stage: Stage) -> None:
        committed: list[Any] = []

        async def revoked(member: Driven, partitions: Partitions) -> None:
            known = stage.cluster.committed("g")
            committed.append({known[tp].offset for tp in partitions if tp in known})

        more = {"auto_commit_interval_ms": 600_000}
        one = await stage.join("t", revoked=revoked, **options(style, **more))
        for number in range(4):
            stage.cluster.produce("t", [b"x"], partition=number)
        values: list[bytes] = []
        while len(values) < 4:
            values += await one.poll()
        two = await stage.join("t", **options(style))
        await share(stage, one, two)
        assert committed[0] == {1}

    perform(api, script, {"t": 4})


def test_a_seek_in_assigned_comes_before_the_first_record(api: str, style: str) -> None:
    async def script(stage: Stage) -> None:
        async def assigned(member: Driven, partitions: Partitions) -> None:
            if TP in partitions:
                member.consumer.seek(TP, 2)

        stage.cluster.produce("t", [b"a", b"b", b"c"], partition=0)
        one = await stage.join("t", assigned=assigned, **options(style))
        values: list[bytes] = []
        while not values:
            values += await one.poll()
        assert values == [b"c"]

    perform(api, script, {"t": 4})


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION])
def test_lost_membership_calls_lost_and_then_assigned_with_all(
    api: str, style: str, code: ErrorCode
) -> None:
    async def script(stage: Stage) -> None:
        refused: list[Exception] = []

        async def lost(member: Driven, partitions: Partitions) -> None:
            try:
                await member.consumer.commit()
            except CommitFailedError as error:
                refused.append(error)

        settings = options(style, enable_auto_commit=False, session_timeout_ms=2_000)
        one = await stage.join("t", lost=lost, **settings)
        stage.cluster.produce("t", [b"a"], partition=0)
        values: list[bytes] = []
        while not values:
            values += await one.poll()
        end_membership(stage, style, code)
        await stage.until(lambda: len(one.calls) == 3, one)
        assert one.calls[1:] == [("lost", ALL), ("assigned", ALL)]
        assert len(refused) == 1, "a commit of what is lost fails, typed"

    perform(api, script, {"t": 4})


@pytest.mark.parametrize("way", ["close", "unsubscribe"])
def test_close_and_unsubscribe_revoke_before_the_member_leaves(
    api: str, style: str, way: str
) -> None:
    async def script(stage: Stage) -> None:
        members: list[int] = []

        async def revoked(member: Driven, partitions: Partitions) -> None:
            members.append(len(stage.cluster.group("g").members))
            assert member.consumer.assignment() == partitions

        one = await stage.join("t", revoked=revoked, **options(style))
        await stage.until(lambda: one.calls, one)
        await (one.consumer.close() if way == "close" else one.consumer.unsubscribe())
        assert one.calls[1:] == [("revoked", ALL)]
        assert members == [1] and stage.cluster.group("g").members == ()

    perform(api, script, {"t": 4})


def test_closing_a_static_member_revokes_and_does_not_leave(api: str, style: str) -> None:
    async def script(stage: Stage) -> None:
        one = await stage.join("t", **options(style, group_instance_id="first"))
        await stage.until(lambda: one.calls, one)
        await one.consumer.close()
        assert one.calls[1:] == [("revoked", ALL)]
        assert len(stage.cluster.group("g").members) == 1

    perform(api, script, {"t": 4})


def test_callbacks_run_where_the_caller_polls(api: str, style: str) -> None:
    async def script(stage: Stage) -> None:
        threads: list[threading.Thread] = []

        async def note(member: Driven, partitions: Partitions) -> None:
            threads.append(threading.current_thread())

        one = await stage.join("t", assigned=note, revoked=note, **options(style))
        await stage.until(lambda: one.calls, one)
        await one.consumer.close()
        assert threads == [threading.current_thread()] * 2

    perform(api, script, {"t": 4})


@pytest.mark.parametrize("callback", ["assigned", "revoked", "lost"])
def test_an_exception_changes_nothing_and_comes_out_of_poll_once(
    api: str, style: str, callback: str
) -> None:
    async def script(stage: Stage) -> None:
        async def fail(member: Driven, partitions: Partitions) -> None:
            if len([name for name, _ in member.calls if name == callback]) == 1:
                raise ZeroDivisionError

        callbacks: dict[str, Any] = {callback: fail}
        one = await stage.join("t", **callbacks, **options(style, session_timeout_ms=2_000))
        if callback != "assigned":
            await stage.until(lambda: one.calls, one)
        if callback == "revoked":
            if style != EAGER:
                two = await stage.join("t", **options(style))
                error = await _error_while(stage, one, two)
            else:
                one.consumer.enforce_rebalance("to see")
                error = await stage.error(RebalanceListenerError, one)
        else:
            if callback == "lost":
                end_membership(stage, style, ErrorCode.UNKNOWN_MEMBER_ID)
            error = await stage.error(RebalanceListenerError, one)
        assert error.callback == f"on_partitions_{callback}"
        assert isinstance(error.__cause__, ZeroDivisionError)
        await stage.until(lambda: one.calls[-1][0] == "assigned", one)
        for _ in range(3):
            await one.poll()  # raised only once, and the member has joined
        assert one.consumer.assignment()

    perform(api, script, {"t": 4})


async def _error_while(stage: Stage, one: Driven, two: Driven) -> Any:
    """Poll both until the first one raises the error of its listener."""
    for _ in range(2_000):
        await two.poll()
        try:
            await one.poll()
        except RebalanceListenerError as error:
            return error
    raise AssertionError("nothing was raised")
