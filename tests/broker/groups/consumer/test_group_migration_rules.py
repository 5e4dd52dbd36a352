"""Rules of the change between the protocols: policies, refusals, errors, timers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

from kohort.broker.groups import ClassicGroup, ConsumerGroup
from kohort.protocol import encode
from kohort.protocol.messages import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from tests.broker.groups.coordinator_driver import CoordinatorDriver
from tests.support.virtual import run_virtual

Scene = Callable[[CoordinatorDriver], Awaitable[None]]

ALL = [0, 1, 2, 3]
CANNOT = "Cannot upgrade classic group g to consumer group because "


def play(scene: Scene, **settings: Any) -> None:
    """Run a scene with a coordinator whose timers run on a virtual clock."""

    async def main() -> None:
        driver = CoordinatorDriver(**settings)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(driver.coordinator.run)
            await scene(driver)
            tasks.cancel_scope.cancel()

    run_virtual(main)


def metadata(owned: list[int] | None = None, topics: tuple[str, ...] = ("ka",)) -> bytes:
    cls = ConsumerProtocolSubscription
    partitions = [cls.TopicPartition(topic="ka", partitions=owned)] if owned else []
    message = cls(topics=list(topics), owned_partitions=partitions)
    return b"\0\1" + encode(message, 1)


def assignment(partitions: list[int], user_data: bytes | None = None) -> bytes:
    cls = ConsumerProtocolAssignment
    assigned = [cls.TopicPartition(topic="ka", partitions=partitions)] if partitions else []
    return b"\0\1" + encode(cls(assigned_partitions=assigned, user_data=user_data), 1)


async def join(
    driver: CoordinatorDriver,
    member_id: str = "",
    owned: list[int] | None = None,
    *,
    names: tuple[str, ...] = ("range",),
    instance: str | None = None,
) -> tuple[int, str, int]:
    """Join, also with the second round; return error, member id and generation."""
    protocols = [(name, metadata(owned)) for name in names]
    response = await driver.join(member_id, protocols, instance=instance)
    if response.error_code == 79:
        response = await driver.join(response.member_id, protocols)
    return response.error_code, response.member_id, response.generation_id


async def stable_classic(driver: CoordinatorDriver, data: bytes | None = None) -> str:
    """Return the id of the only member of a stable classic group. It has all partitions."""
    _, member_id, generation = await join(driver)
    assigned = assignment(ALL) if data is None else data
    await driver.sync(member_id, generation, {member_id: assigned})
    assert driver.state == "classic Stable"
    return member_id


# Refused upgrades


@pytest.mark.parametrize("policy", ["disabled", "downgrade"])
def test_upgrade_is_refused_when_policy_forbids(policy: str) -> None:
    async def scene(driver: CoordinatorDriver) -> None:
        member_id = await stable_classic(driver)
        response = driver.join_consumer("n")
        assert response.error_code == 69
        assert response.error_message == CANNOT + "online upgrade is disabled."
        assert driver.heartbeat(member_id, 1) == 0
        assert driver.state == "classic Stable"

    play(scene, consumer_migration_policy=policy)


def test_upgrade_is_refused_when_assignment_has_user_data() -> None:
    async def scene(driver: CoordinatorDriver) -> None:
        await stable_classic(driver, assignment(ALL, b"x"))
        driver.batches.clear()
        response = driver.join_consumer("n")
        assert response.error_code == 69
        assert response.error_message == (
            CANNOT + "an unsupported custom assignor is in use. Please refer to the "
            "documentation or switch to a default assignor before re-attempting the upgrade."
        )
        assert driver.batches == []

    play(scene)


def test_upgrade_accepts_empty_user_data() -> None:
    async def scene(driver: CoordinatorDriver) -> None:
        await stable_classic(driver, assignment(ALL, b""))
        assert driver.join_consumer("n").error_code == 0

    play(scene)


def test_upgrade_is_refused_when_data_is_malformed() -> None:
    async def scene(driver: CoordinatorDriver) -> None:
        await stable_classic(driver, b"\0")
        response = driver.join_consumer("n")
        assert response.error_code == 69
        assert response.error_message == CANNOT + "the embedded consumer protocol is malformed."

    play(scene)


def test_upgrade_is_refused_when_group_is_not_of_consumers() -> None:
    async def scene(driver: CoordinatorDriver) -> None:
        member_id = await stable_classic(driver)
        group = driver.coordinator.groups["g"]
        assert isinstance(group, ClassicGroup)
        group.protocol_type = "connect"
        response = driver.join_consumer("n")
        assert response.error_message == (
            CANNOT + "the group does not use the consumer embedded protocol."
        )
        assert driver.heartbeat(member_id, 1) == 0

    play(scene)


def test_upgrade_is_refused_when_group_is_larger_than_allowed() -> None:
    async def scene(driver: CoordinatorDriver) -> None:
        await stable_classic(driver)
        group = driver.coordinator.groups["g"]
        assert isinstance(group, ClassicGroup)
        group.members["x"] = next(iter(group.members.values()))
        response = driver.join_consumer("n")
        assert response.error_message == (
            CANNOT + "the group size exceeds the consumer group maximum size."
        )
        del group.members["x"]
        assert driver.join_consumer("n").error_code == 81, "the newcomer has no room"
        assert driver.state == "classic Stable"

    play(scene, consumer_max_size=1)


def test_upgrade_fails_when_two_members_have_a_partition() -> None:
    async def scene(driver: CoordinatorDriver) -> None:
        _, first, _ = await join(driver)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(join, driver)
            await anyio.sleep(0.1)
            _, _, generation = await join(driver, first)
        doubled = {each: assignment(ALL) for each in driver.coordinator.groups["g"].members}
        await driver.sync(first, generation, doubled)
        count = len(driver.batches)
        assert driver.join_consumer("n").error_code == -1
        assert driver.state == "classic Stable"
        assert len(driver.batches) == count
        assert driver.heartbeat(first, generation) == 0

    play(scene)


def test_upgrade_fails_in_the_first_rebalance() -> None:
    async def scene(driver: CoordinatorDriver) -> None:
        joined = []

        async def join_static() -> None:
            joined.append(await join(driver, instance="a"))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(join_static)
            await anyio.sleep(0.1)
            response = driver.join_consumer("n")
            assert (response.error_code, response.error_message) == (-1, None)
        assert joined[0][0] == 27
        assert driver.state == "classic PreparingRebalance"
        error, _, generation = await join(driver, instance="a")
        assert (error, generation) == (0, 1)

    play(scene, initial_rebalance_delay_ms=3000)


def test_upgrade_fails_if_waiting_member_lacks_current_protocol() -> None:
    async def scene(driver: CoordinatorDriver) -> None:
        _, first, generation = await join(driver, names=("range", "roundrobin"))
        await driver.sync(first, generation, {first: assignment(ALL)})
        joined = []

        async def join_other() -> None:
            joined.append(await join(driver, names=("roundrobin",)))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(join_other)
            await anyio.sleep(0.1)
            assert driver.state == "classic PreparingRebalance"
            response = driver.join_consumer("n")
            assert (response.error_code, response.error_message) == (-1, None)
        assert joined[0][0] == 27
        assert driver.state == "classic PreparingRebalance"

    play(scene)


@pytest.mark.parametrize(
    ("settings", "data", "fields", "error"),
    [
        ({}, assignment(ALL, b"x"), {}, 69),
        ({}, b"\0", {}, 69),
        ({}, None, {"subscribed_topic_regex": "("}, 128),
        ({"consumer_max_size": 2}, None, {}, 81),
    ],
)
def test_refused_upgrade_ends_waiting_joins(
    settings: dict[str, Any], data: bytes | None, fields: dict[str, Any], error: int
) -> None:
    async def scene(driver: CoordinatorDriver) -> None:
        first = await stable_classic(driver, data)
        joined = []

        async def join_other() -> None:
            joined.append(await join(driver))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(join_other)
            await anyio.sleep(0.1)
            assert driver.state == "classic PreparingRebalance"
            count = len(driver.batches)
            assert driver.join_consumer("n", **fields).error_code == error
        assert joined[0][0] == 27
        assert driver.state == "classic PreparingRebalance"
        assert len(driver.batches) == count
        assert driver.heartbeat(first, 1) == 27

    play(scene, **settings)


@pytest.mark.parametrize(
    ("settings", "fields", "error"),
    [
        ({"consumer_migration_policy": "disabled"}, {}, 69),
        ({"consumer_max_size": 1}, {}, 69),
        ({}, {"server_assignor": "unknown"}, 112),
    ],
)
def test_refusal_before_an_upgrade_lets_members_wait(
    settings: dict[str, Any], fields: dict[str, Any], error: int
) -> None:
    async def scene(driver: CoordinatorDriver) -> None:
        first = await stable_classic(driver)
        joined = []

        async def join_other() -> None:
            joined.append(await join(driver))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(join_other)
            await anyio.sleep(0.1)
            assert driver.join_consumer("n", **fields).error_code == error
            await anyio.sleep(0.1)
            assert joined == []
            await join(driver, first)
        assert (joined[0][0], joined[0][2]) == (0, 2)

    play(scene, **settings)


def test_heartbeat_and_leave_are_refused_by_a_classic_group() -> None:
    async def scene(driver: CoordinatorDriver) -> None:
        await stable_classic(driver)
        for epoch in (1, -1):
            response = driver.beat("n", epoch)
            assert response.error_code == 69
            assert response.error_message == "Group g is not a consumer group."

    play(scene)


# Classic members in a consumer group


def test_classic_member_without_common_protocol_is_refused() -> None:
    async def scene(driver: CoordinatorDriver) -> None:
        driver.join_consumer("n")
        assert (await join(driver, names=("cooperative-sticky",)))[0] == 0
        assert (await join(driver, names=("range",)))[0] == 23
        assert (await join(driver, names=("range", "cooperative-sticky")))[0] == 0

    play(scene)


@pytest.mark.parametrize(
    ("policy", "error"),
    [("disabled", 23), ("upgrade", 0), ("downgrade", 0), ("bidirectional", 0)],
)
def test_classic_member_joins_as_the_policy_says(policy: str, error: int) -> None:
    async def scene(driver: CoordinatorDriver) -> None:
        driver.join_consumer("n")
        assert (await join(driver))[0] == error

    play(scene, consumer_migration_policy=policy)


def test_sync_of_a_classic_member_is_checked() -> None:
    async def scene(driver: CoordinatorDriver) -> None:
        driver.join_consumer("n")
        _, member_id, generation = await join(driver)
        assert (await driver.sync(member_id, generation + 1)).error_code == 22
        assert (await driver.sync("x", generation)).error_code == 25
        assert (await driver.sync("n", generation)).error_code == 25
        wrong = await driver.sync(member_id, generation, protocol="roundrobin")
        assert wrong.error_code == 23
        driver.join_consumer("m")
        assert (await driver.sync(member_id, generation)).error_code == 27

    play(scene)


def test_static_classic_member_is_fenced_by_its_successor() -> None:
    async def scene(driver: CoordinatorDriver) -> None:
        driver.join_consumer("n")
        _, member_id, generation = await join(driver, instance="i")
        error, successor, _ = await join(driver, instance="i")
        assert error == 0
        assert successor != member_id
        assert driver.heartbeat(member_id, generation, instance="i") == 82
        assert driver.heartbeat(member_id, generation, instance="x") == 25
        assert (await driver.sync(member_id, generation, instance="i")).error_code == 82

    play(scene)


def test_classic_member_that_does_not_rejoin_is_fenced() -> None:
    async def scene(driver: CoordinatorDriver) -> None:
        driver.join_consumer("n")
        _, member_id, generation = await join(driver)
        await driver.sync(member_id, generation)
        driver.join_consumer("m")
        for _ in range(3):
            assert driver.heartbeat(member_id, generation) == 27
            await anyio.sleep(9.9)
        await anyio.sleep(0.4)
        assert driver.heartbeat(member_id, generation) == 25

    play(scene)


def test_classic_member_that_does_not_sync_is_fenced() -> None:
    async def scene(driver: CoordinatorDriver) -> None:
        driver.join_consumer("n")
        _, member_id, generation = await join(driver)
        for _ in range(3):
            driver.heartbeat(member_id, generation)
            await anyio.sleep(9.9)
        await anyio.sleep(0.4)
        assert driver.heartbeat(member_id, generation) == 25

    play(scene)


def test_silent_classic_member_is_fenced_after_its_session() -> None:
    async def scene(driver: CoordinatorDriver) -> None:
        driver.join_consumer("n")
        _, member_id, generation = await join(driver)
        await driver.sync(member_id, generation)
        await anyio.sleep(19.9)
        driver.beat("n", 2)
        await anyio.sleep(0.2)
        assert driver.heartbeat(member_id, generation) == 25
        assert driver.state == "consumer Assigning"

    play(scene)


def test_classic_member_turns_into_a_consumer_member_in_place() -> None:
    async def scene(driver: CoordinatorDriver) -> None:
        member_id = await stable_classic(driver)
        driver.join_consumer("n")
        response = driver.beat(member_id, 1, ALL)
        assert response.error_code == 0
        group = driver.coordinator.groups["g"]
        assert isinstance(group, ConsumerGroup)
        assert group.classic_members == []
        assert driver.heartbeat(member_id, 1) == 25

    play(scene)


def test_eager_member_gives_up_everything_when_it_rejoins() -> None:
    async def scene(driver: CoordinatorDriver) -> None:
        member_id = await stable_classic(driver)
        driver.join_consumer("n")
        assert driver.heartbeat(member_id, 1) == 27
        error, _, generation = await join(driver, member_id)
        assert (error, generation) == (0, 2)
        synced = await driver.sync(member_id, 2)
        assert bytes(synced.assignment) == assignment([0, 1])
        response = driver.beat("n", 2)
        assert response.assignment is not None
        assert list(response.assignment.topic_partitions[0].partitions) == [2, 3]

    play(scene)


# Downgrades


@pytest.mark.parametrize(
    ("policy", "state"),
    [
        ("bidirectional", "classic PreparingRebalance"),
        ("downgrade", "classic PreparingRebalance"),
        ("upgrade", "consumer Assigning"),
    ],
)
def test_last_consumer_member_leaves_as_the_policy_says(policy: str, state: str) -> None:
    async def scene(driver: CoordinatorDriver) -> None:
        driver.join_consumer("n")
        _, member_id, generation = await join(driver)
        await driver.sync(member_id, generation)
        assert driver.beat("n", -1).error_code == 0
        assert driver.state == state
        assert driver.heartbeat(member_id, generation) == 27

    play(scene, consumer_migration_policy=policy)


def test_fenced_consumer_member_downgrades_the_group() -> None:
    async def scene(driver: CoordinatorDriver) -> None:
        driver.join_consumer("n")
        _, member_id, generation = await join(driver)
        await driver.sync(member_id, generation)
        for _ in range(5):
            await anyio.sleep(9.5)
            driver.heartbeat(member_id, generation)
        assert driver.state == "classic PreparingRebalance"
        error, _, again = await join(driver, member_id)
        assert (error, again) == (0, generation + 1)

    play(scene)


def test_classic_member_leaving_too_downgrades_the_group() -> None:
    async def scene(driver: CoordinatorDriver) -> None:
        driver.join_consumer("n")
        _, gone, _ = await join(driver)
        _, left, generation = await join(driver)
        assert driver.leave_together("n", gone) == [0, 0]
        assert driver.state == "classic PreparingRebalance"
        assert driver.heartbeat(left, generation) == 27

    play(scene)


def test_classic_member_leaving_downgrades_a_group_too_large() -> None:
    async def scene(driver: CoordinatorDriver) -> None:
        driver.join_consumer("n")
        _, gone, _ = await join(driver)
        await join(driver)
        driver.beat("n", -1)
        assert driver.state == "consumer Assigning"
        assert driver.leave(gone) == 0
        assert driver.state == "classic PreparingRebalance"

    play(scene, max_size=1)


def test_downgrade_is_refused_when_group_is_larger_than_allowed() -> None:
    async def scene(driver: CoordinatorDriver) -> None:
        driver.join_consumer("n")
        await join(driver)
        await join(driver)
        driver.beat("n", -1)
        assert driver.state == "consumer Assigning"

    play(scene, max_size=1)


@pytest.mark.parametrize("policy", ["disabled", "upgrade", "downgrade", "bidirectional"])
def test_empty_groups_change_protocol_by_any_policy(policy: str) -> None:
    async def scene(driver: CoordinatorDriver) -> None:
        driver.join_consumer("n")
        driver.beat("n", -1)
        error, member_id, generation = await join(driver)
        assert (error, generation) == (0, 1)
        assert driver.leave(member_id) == 0
        assert driver.state == "classic Empty"
        assert driver.join_consumer("n").member_epoch == 2
        assert driver.state == "consumer Stable"

    play(scene, consumer_migration_policy=policy)


def test_known_member_id_is_unknown_to_an_empty_consumer_group() -> None:
    async def scene(driver: CoordinatorDriver) -> None:
        driver.join_consumer("n")
        driver.beat("n", -1)
        assert (await join(driver, "m"))[0] == 25
        assert driver.state == "consumer Empty"

    play(scene)


def test_downgrade_succeeds_when_a_protocol_is_named_twice() -> None:
    async def scene(driver: CoordinatorDriver) -> None:
        driver.join_consumer("n")
        _, member_id, generation = await join(driver, names=("range", "range"))
        await driver.sync(member_id, generation)
        assert driver.beat("n", -1).error_code == 0
        assert driver.state == "classic PreparingRebalance"
        assert driver.heartbeat(member_id, generation) == 27

    play(scene)


def test_protocol_named_twice_is_supported_by_all_only_once() -> None:
    async def scene(driver: CoordinatorDriver) -> None:
        driver.join_consumer("n")
        assert (await join(driver, names=("range", "sticky", "sticky")))[0] == 0
        assert (await join(driver, names=("range",)))[0] == 0
        assert (await join(driver, names=("sticky",)))[0] == 23

    play(scene)


def test_downgrade_succeeds_when_metadata_is_unreadable() -> None:
    async def scene(driver: CoordinatorDriver) -> None:
        driver.join_consumer("n")
        required = await driver.join("", [("range", metadata())])
        first, protocols = required.member_id, [("range", metadata()), ("x", b"")]
        assert (await driver.join(first, protocols)).error_code == 0
        assert (await join(driver, names=("x",)))[0] == 0
        assert driver.beat("n", -1).error_code == 0
        assert driver.state == "classic PreparingRebalance"
        group = driver.coordinator.groups["g"]
        assert isinstance(group, ClassicGroup)
        assert group.protocol == "x"
        assert group.members[first].assignment[:2] == b"\0\0"

    play(scene)


def test_sync_succeeds_when_first_protocol_is_unreadable() -> None:
    async def scene(driver: CoordinatorDriver) -> None:
        required = await driver.join("", [("range", metadata())])
        member_id, protocols = required.member_id, [("x", b""), ("range", metadata())]
        joined = await driver.join(member_id, protocols)
        group = driver.coordinator.groups["g"]
        assert isinstance(group, ClassicGroup)
        group.protocol = "range"  # as if another member did not support x
        await driver.sync(member_id, joined.generation_id, {member_id: assignment(ALL)})
        driver.join_consumer("n", subscribed_topic_names=[])
        synced = await driver.sync(member_id, joined.generation_id, protocol="x")
        assert (synced.error_code, bytes(synced.assignment)[:2]) == (0, b"\0\0")

    play(scene)


def test_upgrade_in_place_starts_the_session_of_the_member() -> None:
    async def scene(driver: CoordinatorDriver) -> None:
        member_id = await stable_classic(driver)
        assert driver.join_consumer(member_id).error_code == 0
        assert driver.state == "consumer Stable"
        await anyio.sleep(46)
        assert driver.state == "consumer Empty"

    play(scene)


def test_turning_classic_in_place_ends_the_rebalance_timeout() -> None:
    async def scene(driver: CoordinatorDriver) -> None:
        driver.join_consumer("n")
        driver.join_consumer("m")
        driver.beat("n", 2)
        error, _, generation = await join(driver, "n")
        assert error == 0
        await driver.sync("n", generation)
        for _ in range(7):
            driver.beat("m", generation)
            assert driver.heartbeat("n", generation) == 0
            await anyio.sleep(9.5)
        assert driver.heartbeat("n", generation) == 0

    play(scene)


def test_classic_join_of_a_consumer_group_checks_its_metadata() -> None:
    async def scene(driver: CoordinatorDriver) -> None:
        assert driver.join_consumer("n").error_code == 0
        for malformed in (b"", b"\0", b"\0\1nonsense"):
            response = await driver.join("", [("range", malformed)], instance="i")
            assert response.error_code == 23

    play(scene)


def test_full_consumer_group_accepts_a_static_classic_member() -> None:
    async def scene(driver: CoordinatorDriver) -> None:
        assert driver.join_consumer("n").error_code == 0
        assert (await join(driver, instance="i"))[0] == 0
        assert (await join(driver, instance="j"))[0] == 81
        assert (await join(driver, instance="i"))[0] == 0

    play(scene, consumer_max_size=2)
