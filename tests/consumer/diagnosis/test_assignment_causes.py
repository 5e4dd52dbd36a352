"""The reason why a member has no partitions, or waits for some, on a virtual clock."""

from __future__ import annotations

import logging
from contextlib import AsyncExitStack
from typing import Any, Self

import anyio
import pytest

from kohort import TopicPartition
from kohort.consumer import GroupFacts
from kohort.consumer.diagnosis._facts import AssignmentCauseFacts
from kohort.errors import ErrorCode
from kohort.testing import MemoryCluster
from tests.consumer.virtual import ClassicConsumer, MemoryConsumer, poll_for, polled
from tests.support.virtual import run_virtual

LOG = "kohort.coordinator_client"
IDLE = "this member has no partitions: the group has 3 members and 2 partitions"
GUESSES = "this member was assigned no partitions: the group has more members than partitions, "


class EpochConsumer(MemoryConsumer):
    """A consumer of the consumer protocol whose start() waits for no partitions."""

    def __init__(self, cluster: MemoryCluster, *topics: str, **configs: Any) -> None:
        super().__init__(cluster, **{"group_protocol": "consumer", **configs})
        self._topics = topics

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        self.subscribe(self._topics)
        return self


def descriptions(cluster: MemoryCluster) -> int:
    return sum(each.api == "ConsumerGroupDescribe" for each in cluster.requests)


def group_of(consumer: MemoryConsumer) -> GroupFacts:
    group = consumer.explain().as_dict()["group"]
    assert group is not None
    return group


def cause_of(consumer: MemoryConsumer) -> AssignmentCauseFacts:
    cause = group_of(consumer)["assignment_cause"]
    assert cause is not None
    return cause


def cause_lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each for each in caplog.messages if "] this member " in each]


def test_member_beyond_the_partitions_has_figures(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, LOG)

    async def main() -> None:
        async with MemoryCluster(topics={"t": 2}) as cluster, AsyncExitStack() as stack:
            members = [EpochConsumer(cluster, "t") for _ in range(3)]
            for each in members:
                await stack.enter_async_context(each)
                await stack.enter_async_context(polled(each))
            await anyio.sleep(60)
            [idle] = [each for each in members if not each.assignment()]
            begun = descriptions(cluster)
            await anyio.sleep(120)
            assert idle.explain().reasons == (IDLE,)
            assert cause_of(idle) == {
                "text": IDLE,
                "members": 3,
                "partitions": 2,
                "waits_for": [],
            }
            assert 3 <= descriptions(cluster) - begun <= 5  # at most every 30 s
            cluster.add_partitions("t", 3)
            await cluster.wait_until(lambda: bool(idle.assignment()), 600)
            assert group_of(idle)["assignment_cause"] is None
            await anyio.sleep(60)
            begun = descriptions(cluster)
            await anyio.sleep(120)
            assert descriptions(cluster) == begun

    run_virtual(main)
    assert cause_lines(caplog) == [f"[g] {IDLE}"]


def test_member_names_the_holder_of_its_partitions(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, LOG)

    async def main() -> None:
        async with MemoryCluster(topics={"t": 2}) as cluster:
            cluster.produce("t", [b"x"], partition=0)
            async with MemoryConsumer(cluster, "t", client_id="busy") as busy:
                assert len(busy.assignment()) == 2
                assert await busy.poll(timeout_ms=1_000)  # it works on the record from here on
                async with EpochConsumer(cluster, "t") as waiting:
                    await waiting.poll(timeout_ms=20_000)
                    [reason] = waiting.explain().reasons
                    holder = busy.group_metadata().member_id
                    [held] = cause_of(waiting)["waits_for"]
                    assert reason == (
                        f"this member waits for {held['partition']}, which member {holder} "
                        f"(client id busy, host {held['host']}) has not released yet"
                    )
                    assert (held["member_id"], held["client_id"]) == (holder, "busy")
                    assert held["host"]
                    assert cause_lines(caplog) == [f"[g] {reason}"]
                    async with polled(busy):
                        await poll_for(waiting, waiting.assignment)
                        assert "waits for" not in str(waiting.explain())

    run_virtual(main)
    assert len(cause_lines(caplog)) == 1


def test_member_with_some_partitions_names_the_others(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, LOG)

    async def main() -> None:
        async with MemoryCluster(topics={"t": 6}) as cluster, AsyncExitStack() as stack:
            quick = await stack.enter_async_context(MemoryConsumer(cluster, "t"))
            await stack.enter_async_context(polled(quick))
            busy = EpochConsumer(cluster, "t", client_id="busy")
            await stack.enter_async_context(busy)
            await poll_for(busy, lambda: len(busy.assignment()) == 3)
            for number in range(6):
                cluster.produce("t", [b"x"], partition=number)
            assert await busy.poll(timeout_ms=1_000)
            async with EpochConsumer(cluster, "t") as waiting:
                await poll_for(waiting, waiting.assignment)
                await waiting.poll(timeout_ms=20_000)
                assert len(waiting.assignment()) == 1
                cause = cause_of(waiting)
                assert waiting.explain().reasons[0] == cause["text"]
                assert (cause["members"], cause["partitions"]) == (3, 6)
                [held] = cause["waits_for"]
                assert held["client_id"] == "busy"
                assert TopicPartition("t", int(held["partition"][2:])) in busy.assignment()
                async with polled(busy):
                    await poll_for(waiting, lambda: len(waiting.assignment()) == 2)
                    await waiting.poll(timeout_ms=40_000)
                    assert "waits for" not in str(waiting.explain())

    run_virtual(main)
    assert len([each for each in cause_lines(caplog) if "client id busy" in each]) == 1


def test_members_with_partitions_describe_no_group() -> None:
    async def main() -> None:
        async with MemoryCluster(topics={"t": 4}) as cluster:
            async with EpochConsumer(cluster, "t") as first:
                await poll_for(first, first.assignment)
                assert not descriptions(cluster)
                async with polled(first), EpochConsumer(cluster, "t") as second:
                    await poll_for(second, second.assignment)
                    await second.poll(timeout_ms=600_000)
                    assert (len(first.assignment()), len(second.assignment())) == (2, 2)
                    assert descriptions(cluster) <= 1  # of the second, whose join got nothing

    run_virtual(main)


@pytest.mark.parametrize(
    "code", [ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.TOPIC_AUTHORIZATION_FAILED]
)
def test_denied_description_leaves_the_general_reason(
    code: ErrorCode, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, LOG)

    async def main() -> None:
        async with MemoryCluster(topics={"t": 1}) as cluster:
            async with EpochConsumer(cluster, "t") as first:
                await poll_for(first, first.assignment)
                cluster.fail("ConsumerGroupDescribe", code, times=None)
                async with polled(first), EpochConsumer(cluster, "t") as idle:
                    await idle.poll(timeout_ms=300_000)
                    assert idle.explain().reasons[0].startswith(GUESSES)
                    assert descriptions(cluster) <= 2  # one in each epoch

    run_virtual(main)
    assert not [each for each in caplog.messages if "Describe" in each]
    assert not cause_lines(caplog)


def test_failed_description_is_repeated() -> None:
    async def main() -> None:
        async with MemoryCluster(topics={"t": 1}) as cluster:
            async with EpochConsumer(cluster, "t") as first:
                await poll_for(first, first.assignment)
                cluster.fail("ConsumerGroupDescribe", ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
                async with polled(first), EpochConsumer(cluster, "t") as idle:
                    await idle.poll(timeout_ms=60_000)
                    assert idle.explain().reasons == (
                        "this member has no partitions: the group has 2 members and 1 partition",
                    )

    run_virtual(main)


def test_members_with_other_topics_do_not_count() -> None:
    async def main() -> None:
        async with MemoryCluster(topics={"t": 1, "u": 5}) as cluster:
            async with EpochConsumer(cluster, "t") as one, EpochConsumer(cluster, "u") as other:
                await poll_for(one, one.assignment)
                async with polled(one), polled(other), EpochConsumer(cluster, "t") as idle:
                    await idle.poll(timeout_ms=60_000)
                    assert idle.explain().reasons == (
                        "this member has no partitions: 2 members of the group subscribe to its "
                        "topics, which have 1 partition",
                    )

    run_virtual(main)


def test_uneven_assignor_is_named() -> None:
    """Range gives the first partition of every topic to the first member."""

    async def main() -> None:
        topics = ["t", "u", "v"]
        async with MemoryCluster(topics=dict.fromkeys(topics, 1)) as cluster:
            options = {"group_remote_assignor": "range"}
            async with AsyncExitStack() as stack:
                members = [EpochConsumer(cluster, *topics, **options) for _ in range(2)]
                for each in members:
                    await stack.enter_async_context(each)
                    await stack.enter_async_context(polled(each))
                await cluster.wait_until(
                    lambda: any(
                        each.explain().reasons[:1]
                        == (
                            "this member has no partitions: the group has 2 members and 3 "
                            "partitions. Assignor range has assigned all of them to other members",
                        )
                        for each in members
                    ),
                    timeout=120,
                )

    run_virtual(main)


def test_idle_leader_of_a_classic_group_has_figures(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, LOG)

    async def main() -> None:
        async with MemoryCluster(topics={"t": 1}) as cluster, AsyncExitStack() as stack:
            members = [ClassicConsumer(cluster) for _ in range(3)]
            for each in members:
                each.subscribe(["t"])
                await stack.enter_async_context(each)
                await stack.enter_async_context(polled(each))
            await cluster.wait_until(lambda: any(each.assignment() for each in members), 60)
            await anyio.sleep(60)
            for each in members:
                if each.assignment():
                    continue
                found = each.explain()
                if group_of(each)["leads"]:
                    assert found.reasons == (
                        "this member has no partitions: the group has 3 members and 1 partition",
                    )
                else:
                    assert found.reasons[0].startswith(GUESSES)

    run_virtual(main)


def test_classic_member_logs_that_it_waits_for_others_to_rejoin(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, LOG)

    async def main() -> None:
        async with MemoryCluster(topics={"t": 2}) as cluster, ClassicConsumer(cluster, "t") as busy:
            cluster.produce("t", [b"x"], partition=0)
            assert await busy.poll(timeout_ms=10_000)  # it works on the record from here on
            async with ClassicConsumer(cluster) as waiting:
                waiting.subscribe(["t"])
                assert not cause_lines(caplog)
                await waiting.poll(timeout_ms=20_000)
                assert not waiting.assignment()
                assert len(cause_lines(caplog)) == 1
                async with polled(busy):
                    await poll_for(waiting, waiting.assignment)

    run_virtual(main)
    [line] = cause_lines(caplog)
    assert line == (
        "[g] this member waits for other members to rejoin: JoinGroup has had no response for 5 s. "
        "Each of them has its max_poll_interval_ms for that"
    )


def test_quick_rebalance_logs_no_wait_for_other_members(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, LOG)

    async def main() -> None:
        async with MemoryCluster(topics={"t": 2}) as cluster, AsyncExitStack() as stack:
            members = [ClassicConsumer(cluster, "t") for _ in range(2)]
            for each in members:
                await stack.enter_async_context(each)
                await stack.enter_async_context(polled(each))
            await cluster.wait_until(lambda: all(each.assignment() for each in members), 60)
            await anyio.sleep(60)

    run_virtual(main)
    assert not cause_lines(caplog)
