"""The sticky assignors in cases that the vectors of Apache Kafka leave out."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping

import pytest

from kohort.coordinator_client.assignors import (
    Assignment,
    ClusterTopics,
    CooperativeStickyAssignor,
    StickyAssignor,
    Subscription,
)
from kohort.coordinator_client.assignors._base import PartitionsByMember
from kohort.coordinator_client.assignors._user_data import write_claim
from kohort.coordinator_client.classic._assignment_check import check_assignments
from kohort.types import ConsumerGroupMetadata, TopicPartition


def _parts(*numbers: int, topic: str = "t") -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(topic, number) for number in numbers)


def _sizes(assigned: PartitionsByMember) -> list[int]:
    return sorted(len(partitions) for partitions in assigned.values())


def test_sticky_members_carry_old_assignment_to_the_next_leader() -> None:
    cluster = ClusterTopics({"t": 6})
    assignors = {"a": StickyAssignor(), "b": StickyAssignor()}
    members = {name: Subscription(("t",)) for name in assignors}
    first = assignors["a"].assign(cluster, members)
    for name, assignor in assignors.items():
        assignor.on_assignment(Assignment(tuple(first[name])), ConsumerGroupMetadata("g", 1, name))
    members = {
        name: Subscription(("t",), assignor.subscription_user_data(["t"]))
        for name, assignor in assignors.items()
    }
    members["c"] = Subscription(("t",), StickyAssignor().subscription_user_data(["t"]))
    second = assignors["b"].assign(cluster, members)
    assert _sizes(second) == [2, 2, 2]
    assert set(second["a"]) < set(first["a"])
    assert set(second["b"]) < set(first["b"])


def test_cooperative_sticky_assigns_moves_only_once_revoked() -> None:
    cluster = ClusterTopics({"t": 4})
    members = {
        "a": Subscription(("t",), owned=_parts(0, 1, 2, 3), generation=1),
        "b": Subscription(("t",)),
    }
    first = CooperativeStickyAssignor().assign(cluster, members)
    assert first == {"a": list(_parts(0, 1)), "b": []}
    members = {
        "a": Subscription(("t",), owned=_parts(0, 1), generation=2),
        "b": Subscription(("t",), generation=2),
    }
    second = CooperativeStickyAssignor().assign(cluster, members)
    assert second == {"a": list(_parts(0, 1)), "b": list(_parts(2, 3))}


def test_generation_of_old_cooperative_member_is_in_user_data() -> None:
    cluster = ClusterTopics({"t": 2})
    new, old = CooperativeStickyAssignor(), CooperativeStickyAssignor()
    new.on_assignment(Assignment(()), ConsumerGroupMetadata("g", 5))
    old.on_assignment(Assignment(()), ConsumerGroupMetadata("g", 4))
    members = {
        "a": Subscription(("t",), old.subscription_user_data(["t"]), owned=_parts(0, 1)),
        "b": Subscription(("t",), new.subscription_user_data(["t"]), owned=_parts(0)),
    }
    assert new.assign(cluster, members) == {"a": list(_parts(1)), "b": list(_parts(0))}


def test_user_data_that_cannot_be_read_claims_nothing() -> None:
    good = write_claim(_parts(0, 1), 3)
    for bad in [good[:7], b"\x7f\xff\xff\xff", b"\x00\x00\x00\x01\x00\x01t\x7f\xff\xff\xff", b"\0"]:
        members = {"a": Subscription(("t",), bad), "b": Subscription(("t",), good)}
        assigned = StickyAssignor().assign(ClusterTopics({"t": 2}), members)
        assert _sizes(assigned) == [1, 1]
        assert set(assigned["b"]) < {*_parts(0, 1)}


def test_version_0_of_stickys_user_data_has_no_generation() -> None:
    old = write_claim(_parts(1, 3), 9)[:-4]
    new = write_claim(_parts(0, 1), 2)
    members = {"a": Subscription(("t",), old), "b": Subscription(("t",), new, generation=2)}
    assigned = StickyAssignor().assign(ClusterTopics({"t": 4}), members)
    assert set(assigned["b"]) == {*_parts(0, 1)}


@pytest.mark.parametrize("cls", [StickyAssignor, CooperativeStickyAssignor])
def test_partitions_that_are_not_there_any_more_are_not_dealt(
    cls: type[StickyAssignor | CooperativeStickyAssignor],
) -> None:
    owned = (*_parts(0, 1, 7), *_parts(0, topic="gone"))
    said = Subscription(("t", "gone"), write_claim(owned, 1), owned=owned, generation=1)
    assigned = cls().assign(ClusterTopics({"t": 2}), {"a": said})
    assert assigned == {"a": list(_parts(0, 1))}


def test_a_member_whose_pattern_matches_nothing_is_given_nothing() -> None:
    for names in (("a", "b"), ("b", "a")):
        members = {name: Subscription(() if name == "a" else ("t",)) for name in names}
        assigned = CooperativeStickyAssignor().assign(ClusterTopics({"t": 2}), members)
        assert assigned == {"a": [], "b": list(_parts(0, 1))}


def _random_group(rng: random.Random) -> tuple[ClusterTopics, dict[str, Subscription]]:
    topics = {f"t{n}": rng.randrange(9) for n in range(rng.randrange(1, 5))}
    same = rng.random() < 0.4
    racks = rng.random() < 0.3
    members = {}
    owners: dict[TopicPartition, str] = {}
    for n in range(rng.randrange(1, 7)):
        name = f"m{n}-{rng.randrange(10**6)}"
        wanted = list(topics) if same else rng.sample(list(topics), rng.randrange(len(topics) + 1))
        owned = [
            TopicPartition(topic, number)
            for topic, count in topics.items()
            for number in range(count + 1)
            if rng.random() < 0.3 and owners.setdefault(TopicPartition(topic, number), name) == name
        ]
        generation = rng.choice([-1, 3, 4, 4, 4, 4])
        members[name] = Subscription(
            tuple(wanted),
            write_claim(owned, generation),
            tuple(owned),
            generation,
            rng.choice("xyz") if racks else None,
        )
    found = {
        TopicPartition(topic, number): frozenset(rng.sample("xyz", rng.randrange(1, 3)))
        for topic, count in topics.items()
        for number in range(count)
    }
    return ClusterTopics(topics, found if racks else {}), members


def _owned_after(
    assigned: Mapping[str, Assignment], members: Mapping[str, Subscription], generation: int
) -> dict[str, Subscription]:
    return {
        name: Subscription(
            said.topics,
            write_claim(assigned[name].partitions, generation),
            assigned[name].partitions,
            generation,
            said.rack,
        )
        for name, said in members.items()
    }


@pytest.mark.parametrize("seed", range(100))
def test_every_deal_is_proper_and_settles(seed: int) -> None:
    cluster, members = _random_group(random.Random(seed))
    wanted = {topic for said in members.values() for topic in said.topics}
    everything = sum(cluster.partitions[topic] for topic in wanted)
    eager = check_assignments(
        StickyAssignor(),
        cluster,
        members,
        StickyAssignor().assign(cluster, members),
        cooperative=False,
    )
    assert sum(len(given.partitions) for given in eager.values()) == everything
    for generation in range(5, 10):  # cooperative: one move takes two rebalances
        assignor = CooperativeStickyAssignor()
        computed = assignor.assign(cluster, members)
        assigned = check_assignments(assignor, cluster, members, computed, cooperative=True)
        for name, given in assigned.items():
            others = {tp for other, said in members.items() if other != name for tp in said.owned}
            assert not others & set(given.partitions) - set(members[name].owned)
        members = _owned_after(assigned, members, generation)
    assert sum(len(given.partitions) for given in assigned.values()) == everything
    again = CooperativeStickyAssignor().assign(cluster, members)
    assert {name: set(given) for name, given in again.items()} == {
        name: set(given.partitions) for name, given in assigned.items()
    }


def test_sticky_assigns_10000_partitions_to_1000_in_seconds() -> None:
    rng = random.Random(7)
    topics = [f"topic-{n}" for n in range(100)]
    cluster = ClusterTopics(dict.fromkeys(topics, 100))
    members = {
        f"consumer-{rng.randrange(10**12)}": Subscription(tuple(rng.sample(topics, 1 + n % 99)))
        for n in range(1_000)
    }
    began = time.thread_time()
    first = CooperativeStickyAssignor().assign(cluster, members)
    kept = dict(list(members.items())[100:])
    again = {
        name: Subscription(said.topics, owned=tuple(first[name]), generation=1)
        for name, said in kept.items()
    }
    second = CooperativeStickyAssignor().assign(cluster, again)
    assert time.thread_time() - began < 20
    assert sum(_sizes(first)) == 10_000
    assert sum(len(set(first[name]) - set(second[name])) for name in kept) < 3_000
