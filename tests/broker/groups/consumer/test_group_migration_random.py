"""Members of both protocols come and go at random, and the group changes its protocol with them."""

from __future__ import annotations

import random
from collections import Counter

import anyio
import pytest

from kohort.broker.groups import AnyGroup, ConsumerGroup, GroupEnvironment, GroupLimits, load_groups
from kohort.protocol import decode, encode
from kohort.protocol.messages import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    JoinGroupResponse,
)
from tests.broker.groups.consumer.group_lives import TOPICS, uuid_bytes
from tests.broker.groups.coordinator_driver import CoordinatorDriver
from tests.support.virtual import run_virtual

PARTITIONS = range(TOPICS["ka"][0])
KA = uuid_bytes(TOPICS["ka"][1])


class RandomMember:
    """A member that runs until its cancel scope ends. ``owned`` has its partitions of ka."""

    def __init__(self, driver: CoordinatorDriver, name: str) -> None:
        self.driver = driver
        self.member_id = name
        self.owned: list[int] = []
        self.scope = anyio.CancelScope()

    async def run(self) -> None:
        with self.scope:
            await self.serve()

    async def serve(self) -> None:
        raise NotImplementedError

    def leave(self) -> None:
        raise NotImplementedError


class ConsumerProtocolMember(RandomMember):
    """A member that uses the consumer protocol."""

    epoch = 0

    async def serve(self) -> None:
        while True:
            if self.epoch == 0:
                self.owned = []
                response = self.driver.join_consumer(self.member_id)
            else:
                response = self.driver.beat(self.member_id, self.epoch, self.owned)
            if response.error_code in (25, 110, 69):
                self.epoch = 0
                await anyio.sleep(0.1)
                continue
            assert response.error_code == 0
            self.epoch = response.member_epoch
            if response.assignment is not None:
                parts = response.assignment.topic_partitions
                self.owned = list(parts[0].partitions) if parts else []
            await anyio.sleep(1)

    def leave(self) -> None:
        self.driver.beat(self.member_id, -1)


class ClassicProtocolMember(RandomMember):
    """A member that uses the classic protocol: an eager one, or a cooperative one."""

    def __init__(self, driver: CoordinatorDriver, name: str, *, cooperative: bool) -> None:
        super().__init__(driver, name)
        self.cooperative = cooperative
        self.member_id = ""
        self.generation = -1

    async def serve(self) -> None:
        while True:
            if not self.cooperative:
                self.owned = []
            response = await self.driver.join(self.member_id, self._protocols())
            self.member_id = response.member_id
            if response.error_code:
                assert response.error_code in (79, 27, 25, 22), response
                if response.error_code == 25:
                    self.member_id, self.owned = "", []
                continue
            self.generation = response.generation_id
            synced = await self.driver.sync(
                self.member_id, self.generation, self._assignments(response)
            )
            if synced.error_code:
                assert synced.error_code in (27, 25, 22), synced
                if synced.error_code != 27:
                    self.owned = []
                    self.member_id = "" if synced.error_code == 25 else self.member_id
                continue
            before = self.owned
            self.owned = partitions_of(bytes(synced.assignment))
            if self.cooperative and set(before) - set(self.owned):
                continue  # It has given up partitions, so it joins again.
            await self._stay()

    async def _stay(self) -> None:
        while True:
            error = self.driver.heartbeat(self.member_id, self.generation)
            if error:
                break
            await anyio.sleep(1)
        if error != 27:
            self.owned = []
            self.member_id = "" if error == 25 else self.member_id

    def _protocols(self) -> list[tuple[str, bytes]]:
        cls = ConsumerProtocolSubscription
        owned = [cls.TopicPartition(topic="ka", partitions=self.owned)] if self.owned else []
        data = b"\0\1" + encode(cls(topics=["ka"], owned_partitions=owned), 1)
        return [("range", data)]

    def _assignments(self, response: JoinGroupResponse) -> dict[str, bytes]:
        """Return the assignments that a leader makes: partitions in turn, to each member."""
        cls = ConsumerProtocolAssignment
        members = sorted(each.member_id for each in response.members)
        return {
            member_id: b"\0\1"
            + encode(
                cls(
                    assigned_partitions=[
                        cls.TopicPartition(
                            topic="ka", partitions=list(PARTITIONS)[index :: len(members)]
                        )
                    ]
                ),
                1,
            )
            for index, member_id in enumerate(members)
        }

    def leave(self) -> None:
        if self.member_id:
            self.driver.leave(self.member_id)


def partitions_of(data: bytes) -> list[int]:
    if not data:
        return []
    message = decode(ConsumerProtocolAssignment, min(data[1], 1), data[2:])
    return [index for each in message.assigned_partitions for index in each.partitions]


def check_records(driver: CoordinatorDriver, group: AnyGroup) -> None:
    """Check that the records load to a group of the same protocol with the same members."""
    env = GroupEnvironment(GroupLimits(), random.Random(1), topics=driver.topics)
    records = [(record.key, record.value) for record in driver.appended]
    loaded = load_groups(records, env, 0.0)["g"]
    assert loaded.type_name == group.type_name
    if isinstance(group, ConsumerGroup):
        assert isinstance(loaded, ConsumerGroup)
        assert loaded.members == group.members
        assert loaded.targets == group.targets
        held = Counter(each for member in group.members.values() for each in member.held)
        assert not held or max(held.values()) == 1, "a partition has two owners"


async def play(seed: int) -> None:
    rng = random.Random(seed)
    driver = CoordinatorDriver()
    members: list[RandomMember] = []
    count = 0
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(driver.coordinator.run)
        for _ in range(40):
            action = rng.random()
            if action < 0.35 and len(members) < 5:
                count += 1
                member: RandomMember
                if rng.random() < 0.5:
                    member = ConsumerProtocolMember(driver, f"m{count}")
                else:
                    cooperative = rng.random() < 0.5
                    member = ClassicProtocolMember(driver, f"m{count}", cooperative=cooperative)
                members.append(member)
                tasks.start_soon(member.run)
            elif action < 0.55 and members:
                member = members.pop(rng.randrange(len(members)))
                member.scope.cancel()
                if rng.random() < 0.7:
                    member.leave()
            await anyio.sleep(rng.choice([0.05, 0.5, 3, 30]))
            if (group := driver.coordinator.groups.get("g")) is not None:
                check_records(driver, group)
        await anyio.sleep(200)
        group = driver.coordinator.groups.get("g")
        if members and group is not None:
            assert group.state.value == "Stable", (group.type_name, group.state)
            assert sorted(each for member in members for each in member.owned) == list(PARTITIONS)
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize("seed", range(12))
def test_mixed_group_settles_after_random_changes(seed: int) -> None:
    run_virtual(play, seed, seed=seed)
