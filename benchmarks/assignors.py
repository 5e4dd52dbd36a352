"""Time of each assignor, and the longest time that the event loop waits for it.

    python -m benchmarks.assignors [--short] [--output FOLDER]

The leader of a group reads the members' subscriptions, assigns, checks the result and writes the
members' assignments. "CPU s" is the assignor alone. "leader ms" is the most CPU time between two
turns of another task of the event loop while the leader does all of it. The members own what they
got from the assignment before, and every tenth of them is new. "racks" have each member in one of
three racks and two replicas of each partition. "mixed" have each member leave out one topic. Peers
run in separate processes, and are ended after 10 CPU seconds. The runtime of each is the best of
three runs, or of one if that takes more than 5 s.
"""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import random
import resource
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from typing import Any, NamedTuple

from benchmarks._machine import hardware, versions
from benchmarks._program import about, parser, publish
from benchmarks._rounds import table
from kohort.coordinator_client.assignors import (
    BUILT_IN,
    BuiltInAssignor,
    ClusterTopics,
    Subscription,
    finish_in_slices,
)
from kohort.coordinator_client.assignors._user_data import write_claim, write_generation
from kohort.coordinator_client.classic._assignment_check import check_in_steps
from kohort.coordinator_client.classic._embedded_protocol import (
    read_members,
    write_assignments,
    write_subscription,
)
from kohort.protocol import decode, encode
from kohort.protocol.messages import JoinGroupResponse
from kohort.types import TopicPartition

LIMIT_S = 10
TICK_S = 0.001
GOAL_MS, LIMIT_MS = 100, 250
JOIN_VERSION = 9
RACKS = ("a", "b", "c")


class Size(NamedTuple):
    """Group: its members, their topics, the partitions of each topic, and its kind."""

    members: int
    topics: int
    partitions: int
    kind: str = ""

    def __str__(self) -> str:
        return f"{self.members:,} x {self.topics} x {self.partitions:,} {self.kind}".strip()


SMALL = (Size(100, 10, 100), Size(1_000, 10, 1_000))
LARGE = Size(2_000, 100, 1_000)
SIZES = (*SMALL, LARGE, Size(2_000, 100, 1_000, "racks"), Size(2_000, 100, 1_000, "mixed"))

Members = dict[str, Subscription]


def cluster_of(size: Size) -> ClusterTopics:
    """Return the topics of a group."""
    counts = {f"topic-{number:03}": size.partitions for number in range(size.topics)}
    if size.kind != "racks":
        return ClusterTopics(counts)
    pairs = [frozenset(RACKS[:2]), frozenset(RACKS[1:]), frozenset(RACKS[::2])]
    racks = {
        TopicPartition(topic, number): pairs[number % 3]
        for topic, count in counts.items()
        for number in range(count)
    }
    return ClusterTopics(counts, racks)


def members_of(size: Size, assignor: type[BuiltInAssignor], cluster: ClusterTopics) -> Members:
    """Return the members of a group after one assignment. Every tenth of them is new."""
    rng, topics = random.Random(1), sorted(cluster.partitions)
    fresh: Members = {}
    for number in range(size.members):
        wanted = set(topics)
        if size.kind == "mixed":
            wanted.remove(rng.choice(topics))
        rack = RACKS[number % 3] if size.kind == "racks" else None
        name = f"consumer-{rng.getrandbits(64):016x}"
        fresh[name] = Subscription(tuple(sorted(wanted)), rack=rack)
    old = {name: said for number, (name, said) in enumerate(fresh.items()) if number % 10}
    owned = assignor().assign(cluster, old)
    for name, said in old.items():
        mine = tuple(sorted(owned[name]))
        if assignor.name == "sticky":
            fresh[name] = said._replace(user_data=write_claim(mine, 1))
        elif assignor.name == "cooperative-sticky":
            user_data = write_generation(1)
            fresh[name] = said._replace(owned=mine, generation=1, user_data=user_data)
    return fresh


def best(run: Callable[[], object]) -> float:
    """Return the CPU seconds of a run."""
    found: list[float] = []
    while len(found) < 3 and sum(found) < 5:
        gc.collect()
        begun = time.thread_time()
        run()
        found.append(time.thread_time() - begun)
    return min(found)


async def longest_wait(work: Callable[[], Any]) -> float:
    """Return the most CPU seconds of the thread between two turns of another task."""
    longest, over = 0.0, False

    async def tick() -> None:
        nonlocal longest
        last = time.thread_time()
        while not over:
            await asyncio.sleep(TICK_S)
            now = time.thread_time()
            longest, last = max(longest, now - last), now

    ticking = asyncio.create_task(tick())
    await asyncio.sleep(10 * TICK_S)
    longest = 0.0
    await work()
    await asyncio.sleep(10 * TICK_S)
    over = True
    await ticking
    return longest


async def lead(assignor: BuiltInAssignor, cluster: ClusterTopics, frame: bytes) -> None:
    """Run the leader's duties, from the JoinGroup response to the SyncGroup request."""
    response = decode(JoinGroupResponse, JOIN_VERSION, frame)
    members = await finish_in_slices(read_members(response, "g"))
    dealt = await finish_in_slices(assignor.steps(cluster, members))
    checked = await finish_in_slices(
        check_in_steps(assignor, cluster, members, dealt, cooperative=assignor.name[0] == "c")
    )
    await finish_in_slices(write_assignments(checked))


def join_answer(members: Members) -> bytes:
    """Return the coordinator's response to the leader."""
    kind = JoinGroupResponse.JoinGroupResponseMember
    return encode(
        JoinGroupResponse(
            members=[
                kind(member_id=name, metadata=write_subscription(said))
                for name, said in members.items()
            ]
        ),
        JOIN_VERSION,
    )


# -- peers ------------------------------------------------------------------------------------


class PeerCluster:
    """Cluster metadata in the form that the assignors of aiokafka and kafka-python read."""

    def __init__(self, cluster: ClusterTopics) -> None:
        self._sets = {topic: set(range(n)) for topic, n in cluster.partitions.items()}

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        return self._sets.get(topic)

    def topics(self, *_: object) -> set[str]:
        return set(self._sets)


CLASSES = {
    "range": "range.RangePartitionAssignor",
    "roundrobin": "roundrobin.RoundRobinPartitionAssignor",
    "sticky": "sticky.sticky_assignor.StickyPartitionAssignor",
    "cooperative-sticky": "cooperative_sticky.CooperativeStickyAssignor",
}
"""Places of the assignors in the packages of both peers."""


def peer_class(package: str, name: str) -> Any:
    """Return the assignor of a peer."""
    module, _, kind = f"{package}.coordinator.assignors.{CLASSES[name]}".rpartition(".")
    return getattr(import_module(module), kind)


def aiokafka_assign(name: str, cluster: ClusterTopics, members: Members) -> Callable[[], object]:
    from aiokafka.coordinator.protocol import ConsumerProtocolMemberMetadata

    kind = peer_class("aiokafka", name)
    subscribed = {
        member: ConsumerProtocolMemberMetadata(0, list(said.topics), said.user_data or b"")
        for member, said in members.items()
    }
    return lambda: kind.assign(PeerCluster(cluster), subscribed)


class PeerMember(NamedTuple):
    """Member in the form that the assignors of kafka-python read."""

    member_id: str
    group_instance_id: str | None
    metadata: Any


def kafka_python_assign(
    name: str, cluster: ClusterTopics, members: Members
) -> Callable[[], object]:
    from kafka.protocol.consumer.metadata import ConsumerProtocolSubscription

    subscribed = []
    for member, said in members.items():
        by_topic: dict[str, list[int]] = {}
        for topic, number in said.owned:
            by_topic.setdefault(topic, []).append(number)
        owned = [
            ConsumerProtocolSubscription.TopicPartition(topic=topic, partitions=numbers)
            for topic, numbers in by_topic.items()
        ]
        metadata = ConsumerProtocolSubscription(
            topics=list(said.topics),
            user_data=said.user_data,
            owned_partitions=owned,
            generation_id=said.generation,
            version=2,
        )
        subscribed.append(PeerMember(member, None, metadata))
    kind = peer_class("kafka", name)
    assignor = kind() if "sticky" in name else kind
    return lambda: assignor.assign(PeerCluster(cluster), subscribed)


PEERS = {"aiokafka": aiokafka_assign, "kafka-python": kafka_python_assign}


def _measure_peer(
    peer: str, name: str, cluster: ClusterTopics, members: Members, answer: Any
) -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (LIMIT_S, LIMIT_S))
    try:
        answer.send(best(PEERS[peer](name, cluster, members)))
    except Exception as error:
        answer.send(f"{type(error).__name__}")


def peer_time(peer: str, name: str, cluster: ClusterTopics, members: Members) -> str:
    """Return CPU seconds, measured in a process that can be ended.

    The result is "-" for an assignor that the peer lacks.
    """
    if peer == "aiokafka" and name == "cooperative-sticky":
        return "-"
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe(duplex=False)
    arguments = (peer, name, cluster, members, there)
    process = context.Process(target=_measure_peer, args=arguments, daemon=True)
    process.start()
    there.close()
    try:
        found = here.recv()
        return found if isinstance(found, str) else f"{found:.3f}"
    except EOFError:  # the limit ended it
        return f"> {LIMIT_S}"
    finally:
        process.kill()
        process.join()


# -- the table --------------------------------------------------------------------------------


@contextmanager
def collected() -> Iterator[None]:
    """Freeze all objects that exist before the block, so that garbage collection skips them."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def rows(sizes: Iterable[Size], *, peers: bool) -> Iterator[list[str]]:
    """Yield the cells of the table."""
    for size in sizes:
        cluster = cluster_of(size)
        for assignor in BUILT_IN:
            members = members_of(size, assignor, cluster)
            with collected():
                took = best(lambda: assignor().assign(cluster, members))  # noqa: B023
                frame = join_answer(members)
                work = partial(lead, assignor(), cluster, frame)
                gap = asyncio.run(longest_wait(work))
            theirs = [
                peer_time(peer, assignor.name, cluster, members) if peers and not size.kind else ""
                for peer in PEERS
            ]
            cells = [str(size), assignor.name, f"{took:.3f}", f"{1000 * gap:.0f}", *theirs]
            print(*cells, sep=", ", flush=True)
            yield cells


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--short", action="store_true", help="without peers and large groups")
    args = arguments.parse_args()
    head = "members x topics x partitions", "assignor", "CPU s", "leader ms"
    columns = [*head, *(f"{peer} CPU s" for peer in PEERS)]
    found = table(columns, "l" * 6, rows(SMALL if args.short else SIZES, peers=not args.short))
    publish(
        args.output,
        "assignors",
        "Assignors",
        about(__doc__),
        f"Goal: at most {GOAL_MS} ms between two turns, and never more than {LIMIT_MS}.",
        found,
        "\n".join(f"- {each}" for each in [hardware(), *versions("aiokafka", "kafka-python")]),
    )


if __name__ == "__main__":
    main()
