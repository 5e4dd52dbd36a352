"""Groups that change between the protocols, step by step as Apache Kafka 4.3.1 has recorded it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import pytest
import trio
import trio.testing

from kohort.broker.groups import Append, ClassicGroup
from kohort.protocol import decode
from kohort.protocol.messages import ConsumerGroupMemberMetadataValue
from tests.broker.groups.consumer.group_lives import lives, record_type, shown
from tests.broker.groups.coordinator_driver import CoordinatorDriver
from tests.support.virtual import run_virtual

LIVES = lives()
C1 = "raw:mig classic-31563c2a-1535-415a-887c-a2ba6b62cbe8"
C2 = "raw:mig classic-2751d96b-ff2a-4843-a76b-e9936616ce08"
N1, N2 = "6a689db5-4728-4d2b-bbd5-c5af79753f23", "d73c3cea-c1e1-4619-8500-3538c8fb319d"
D1, D2 = "d7AO76OsRBute_CPEt1V5g", "zPBGnzzqQJmzTjGOOnAUfg"
LATER = "4a0b1d03-3e47-4115-87d9-e389cc92f9c0"
LAST = "9348c0eb-0330-436c-ab96-67f7ada64757"
MIDDLE = "c14b8ea1-8beb-44f6-aa48-7ab7aba9f72b"

Act = Callable[[CoordinatorDriver, "Metadata"], Awaitable[None]]


class Metadata:
    """Protocols of classic members, taken from the records that a step appends."""

    def __init__(self, records: Sequence[Append]) -> None:
        self._records = [record for record in records if record_type(record) == 5]

    def next_of(self, member_id: str) -> list[tuple[str, bytes]]:
        """Return the protocols of the member's next record."""
        for index, record in enumerate(self._records):
            if record.value is None or not record.key.endswith(member_id.encode()):
                continue
            value = decode(ConsumerGroupMemberMetadataValue, 0, record.value[2:])
            if value.classic_member_metadata is not None:
                del self._records[index]
                protocols = value.classic_member_metadata.supported_protocols
                return [(each.name, bytes(each.metadata)) for each in protocols]
        raise AssertionError(f"no protocols of {member_id}")


def run_step(group_id: str, index: int, act: Act, loaded: int = 0) -> None:
    """Load the records before a step, run it, and compare the records that it appends.

    ``loaded`` is the number of records of the step that are loaded, too.
    """

    async def main() -> None:
        steps = LIVES[group_id]
        driver = CoordinatorDriver(group_id)
        first, expected = steps[index].records[:loaded], steps[index].records[loaded:]
        driver.load([record for step in steps[:index] for record in step.records] + first)
        expected = [record for record in expected if record_type(record) != 1]
        await act(driver, Metadata(expected))
        got = driver.appended
        assert [record_type(each) for each in got] == [record_type(each) for each in expected]
        assert sorted(driver.shown(each) for each in got) == sorted(map(shown, expected))

    run_virtual(main)


def restore_protocols(driver: CoordinatorDriver, metadata: Metadata, member_id: str) -> None:
    """Give a loaded member all of its protocols, of which the record has only the selected one."""
    group = driver.coordinator.groups[driver.group_id]
    assert isinstance(group, ClassicGroup)
    group.update(group.members[member_id], metadata.next_of(member_id), (30_000, 20_000))


async def rejoin(
    driver: CoordinatorDriver, metadata: Metadata, member_id: str, client: str
) -> tuple[int, bytes]:
    """Join again and sync; return the generation and the assignment."""
    joined = await driver.join(member_id, metadata.next_of(member_id), client=client)
    assert (joined.error_code, joined.leader, joined.members) == (0, "", [])
    synced = await driver.sync(member_id, joined.generation_id)
    assert synced.error_code == 0
    return joined.generation_id, bytes(synced.assignment)


async def upgrade(driver: CoordinatorDriver, metadata: Metadata) -> None:
    classic, member = (C1, N1) if driver.group_id == "mig" else (C2, N2)
    restore_protocols(driver, metadata, classic)
    response = driver.join_consumer(member)
    assert (response.error_code, response.member_epoch) == (0, 2)
    assert response.assignment is not None
    assert response.assignment.topic_partitions == []
    assert len(driver.batches) == 1
    assert driver.state == "consumer Reconciling"


async def classic_member_gives_up(driver: CoordinatorDriver, metadata: Metadata) -> None:
    classic, member = (C1, N1) if driver.group_id == "mig" else (C2, N2)
    assert driver.heartbeat(classic, 1) == 27
    generation, before = await rejoin(driver, metadata, classic, "raw:mig classic")
    assert generation == 1
    generation, after = await rejoin(driver, metadata, classic, "raw:mig classic")
    assert (generation, after) == (2, before)
    assert driver.heartbeat(classic, 2) == 0
    response = driver.beat(member, 2, [])
    assert response.assignment is not None
    assert driver.state == "consumer Stable"


async def second_classic_member(driver: CoordinatorDriver, metadata: Metadata) -> None:
    generation, assignment = await rejoin(driver, metadata, D1, "raw:mig D")
    assert (generation, assignment) == (3, b"\0\3\0\0\0\0\xff\xff\xff\xff")
    assert driver.heartbeat(C1, 2) == 25, "it uses the consumer protocol now"
    assert driver.heartbeat(D1, 3) == 0
    driver.beat(N1, 2)
    driver.beat(N1, 2, [2])
    assert driver.heartbeat(D1, 3) == 27
    await rejoin(driver, metadata, D1, "raw:mig D")
    assert driver.heartbeat(D1, 3) == 0


async def second_classic_member_again(driver: CoordinatorDriver, metadata: Metadata) -> None:
    await rejoin(driver, metadata, D2, "raw:mig D")
    assert driver.heartbeat(C2, 2) == 27
    await rejoin(driver, metadata, C2, "raw:mig classic")
    await rejoin(driver, metadata, C2, "raw:mig classic")
    driver.beat(N2, 2)
    driver.beat(N2, 2, [2])
    await rejoin(driver, metadata, D2, "raw:mig D")


async def consumer_member_leaves_before_the_others(
    driver: CoordinatorDriver, metadata: Metadata
) -> None:
    assert driver.beat(N1, -1).error_code == 0
    assert driver.state == "consumer Assigning"
    await rejoin(driver, metadata, C1, "raw:mig classic")
    await rejoin(driver, metadata, D1, "raw:mig D")


async def classic_members_leave(driver: CoordinatorDriver, _: Metadata) -> None:
    driver.join_consumer(LATER)
    assert driver.leave(C1) == 0
    assert driver.leave(D1) == 0
    response = driver.beat(LATER, 5)
    assert response.member_epoch == 7


async def empty_group_becomes_consumer(driver: CoordinatorDriver, _: Metadata) -> None:
    assert driver.join_consumer(LAST).member_epoch == 2
    assert driver.beat(LAST, -1).error_code == 0


async def downgrade(driver: CoordinatorDriver, _: Metadata) -> None:
    assert driver.beat(N2, -1).error_code == 0
    assert driver.state == "classic PreparingRebalance"
    assert len(driver.batches) == 1
    assert driver.heartbeat(D2, 3) == 27


async def upgrade_during_rebalance(driver: CoordinatorDriver, _: Metadata) -> None:
    async with trio.open_nursery() as nursery:
        results: list[int] = []

        async def park() -> None:
            protocols = [(name, METADATA_4) for name in ("range", "cooperative-sticky")]
            response = await driver.join(C2, protocols, client="raw:mig classic")
            results.append(response.error_code)

        nursery.start_soon(park)
        await trio.testing.wait_all_tasks_blocked()
        driver.batches.clear()
        assert driver.join_consumer(MIDDLE).member_epoch == 5
    assert results == [27]


METADATA_4 = bytes.fromhex(
    "00030000000100026b61ffffffff0000000100026b6100000002000000000000000100000004ffff"
)


async def all_leave(driver: CoordinatorDriver, _: Metadata) -> None:
    assert driver.leave(C2) == driver.leave(D2) == 0
    assert driver.beat(MIDDLE, -1).error_code == 0
    assert driver.state == "consumer Empty"


async def static_member_changes_protocol(driver: CoordinatorDriver, metadata: Metadata) -> None:
    first = "st-1-e98c8e83-6c03-4a18-98bd-35d466b4f460"
    second, third = "ac050dcc-a054-4a5b-8f7a-370c1f8e82c1", "PojAKx2vRl2UG73cQnJr2A"
    restore_protocols(driver, metadata, first)
    response = driver.join_consumer(second, client="raw-st-1", instance_id="st-1")
    assert (response.error_code, response.member_epoch) == (0, 1)
    assert response.assignment is not None
    assert list(response.assignment.topic_partitions[0].partitions) == [0, 1, 2, 3]
    assert driver.heartbeat(first, 1, instance="st-1") == 82
    assert driver.beat(second, -2, instance_id="st-1").member_epoch == -2
    protocols = metadata.next_of(third)
    joined = await driver.join("", protocols, instance="st-1", client="raw:mig static back")
    assert (joined.error_code, joined.generation_id) == (0, 1)
    driver.renamed[joined.member_id] = third
    assert driver.state == "classic Stable"
    synced = await driver.sync(joined.member_id, 1, instance="st-1")
    assert bytes(synced.assignment).hex() == (
        "00030000000100026b610000000400000000000000010000000200000003ffffffff"
    )
    assert driver.heartbeat(joined.member_id, 1, instance="st-1") == 0


def test_static_member_keeps_partitions_across_protocols() -> None:
    run_step("migs", 9, static_member_changes_protocol, loaded=2)


@pytest.mark.parametrize(
    ("group_id", "index", "act"),
    [
        ("mig", 1, upgrade),
        ("mig", 2, classic_member_gives_up),
        ("mig", 4, second_classic_member),
        ("mig", 5, consumer_member_leaves_before_the_others),
        ("mig", 6, classic_members_leave),
        ("mig", 8, empty_group_becomes_consumer),
        ("mig2", 1, upgrade),
        ("mig2", 2, classic_member_gives_up),
        ("mig2", 3, second_classic_member_again),
        ("mig2", 4, downgrade),
        ("mig2", 6, upgrade_during_rebalance),
        ("mig2", 7, all_leave),
    ],
)
def test_records_of_a_migration_match_kafka(group_id: str, index: int, act: Act) -> None:
    run_step(group_id, index, act)
