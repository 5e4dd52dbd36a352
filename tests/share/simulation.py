"""Random lives of a share group on the virtual clock.

A seed draws the options of the members and of the group, what handlers do with records, and the
faults. Members come, leave, crash, rest and lose their network. Brokers end and return, and leaders
and coordinators move. Locks expire, requests fail or lose their responses, and writes of states
fail. Records are deleted, and transactions are aborted. In the end all faults stop, and the group
has to finish every record. The witness checks these invariants:

1. No offset below the start of a window is unfinished, in memory and as stored.
2. Each record is handed to a member, unless it is deleted, hidden, or had all its deliveries.
3. No offset is acquired by two members at once, or acknowledged by another one than its owner.
4. The delivery count rises by one with each acquisition, and never passes the limit. A new leader
   has the stored counts.
5. What was accepted is never acquired again. Also the member knows it after a commit.
6. A refused list of acknowledgements changes nothing but the deadlines of renewals.
7. Starts, stored starts and snapshot epochs never fall.
8. The window has at most the limit of locks at an acquisition, and the rest of a record batch.
9. The records of ``__share_group_state`` give the state of the coordinator after each write.
10. The epochs of a session agree after each response, or the next request opens a session. A
    session has no partition that its member has not, except for acknowledgements.
11. No acknowledgement is sent after its deadline, or a second time. No lock of an offset without a
    record expires.
12. A member hands out what it has acquired, each once, and acknowledges no record as a gap.
13. A poll ends in time, and a closed member holds no lock, but what a fetch waited for in
    partitions that it has lost.
14. Assignments cover each partition, and members share them evenly.
15. No lock expires before its deadline, also of renewed records.
16. An archived record has at most one letter in the memory of a leader.

Run one seed by ``python -m tests.share.simulation --seed 7``, many by ``--seeds 1000``.
"""

from __future__ import annotations

import argparse
import itertools
import logging
import math
import random
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import anyio

from kohort import TopicPartition
from kohort.broker.cluster._topics import Topic
from kohort.broker.log import Marker, PartitionLog
from kohort.broker.share import SessionKey, ShareKey, ShareLeader, ShareState
from kohort.errors import ErrorCode
from kohort.records import NewRecord, encode_batch
from kohort.share.client import _member
from kohort.testing import MemoryCluster
from tests.broker.share.members import SHARE_STATE
from tests.share.simulated_member import POISON, POLL, Member
from tests.share.witness import Witness
from tests.support.virtual import run_virtual

TOPICS = {"a": 2, "b": 1}
GROUP = "g"
LETTERS = "dlq.g"
LIMIT = 1_200.0
"""Seconds of virtual time in which the group finishes after the faults."""
SESSION = 6.0
HEARTBEAT = 2.0
FAILABLE = (
    ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.SHARE_SESSION_NOT_FOUND,
    ErrorCode.INVALID_SHARE_SESSION_EPOCH,
)


@dataclass
class Plan:
    """What a seed has drawn."""

    seed: int
    rng: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self.rng = rng = random.Random(self.seed)
        self.profile = rng.choice(["calm", "members", "brokers", "requests", "storm"])
        self.lock = rng.choice([2.0, 5.0, 15.0])
        self.limit = rng.choice([2, 3, 5, 10])
        self.max_locks = rng.choice([100, 100, 2_000])
        self.batch = rng.choice([1, 5, 20])
        """Most records of a batch."""
        self.records = rng.choice([60, 120, 240])
        self.is_committed = rng.random() < 0.5
        self.aborts = rng.choice([0.0, 0.1, 0.3])
        self.has_letters = rng.random() < 0.4
        self.poison = rng.choice([0.0, 0.02])
        self.longest = rng.choice([0.0, 0.2, 0.5])
        """Longest handler, as a share of the lock."""
        self.updates = rng.choice([2, 10, 500])

    @property
    def has_crashes(self) -> bool:
        return self.profile in ("members", "storm")

    def configs(self) -> dict[str, str]:
        """Return the configs of the group."""
        configs = {
            "share.auto.offset.reset": "earliest",
            "share.delivery.count.limit": str(self.limit),
            "share.partition.max.record.locks": str(self.max_locks),
            "share.record.lock.duration.ms": str(int(1000 * self.lock)),
            "share.session.timeout.ms": str(int(1000 * SESSION)),
            "share.heartbeat.interval.ms": str(int(1000 * HEARTBEAT)),
            "share.isolation.level": "read_committed" if self.is_committed else "read_uncommitted",
        }
        if self.has_letters:
            configs["errors.deadletterqueue.topic.name"] = LETTERS
        return configs


class World:
    """A cluster, its members, and what a seed does with them."""

    def __init__(self, cluster: MemoryCluster, plan: Plan, tasks: Any) -> None:
        self.cluster = cluster
        self.plan = plan
        self.rng = plan.rng
        self.group = GROUP
        self.stop = tasks.cancel_scope.cancel
        self.members: list[Member] = []
        self.records: defaultdict[ShareKey, dict[int, bytes]] = defaultdict(dict)
        self.aborted: defaultdict[ShareKey, set[int]] = defaultdict(set)
        self.disturbed_until = -math.inf
        self.is_resting = False
        self.write_faults = 0
        self.produced = 0
        self._tasks = tasks
        self._made = itertools.count(1)
        state = cluster._read(lambda state: state)
        self.state = state
        self.names = {self.topic(name).id: name for name in TOPICS}
        self._ids = {name: id for id, name in self.names.items()}
        self._sequence: Counter[ShareKey] = Counter()
        self.witness = Witness(self)

    # -- what the witness asks ----------------------------------------------------------------

    def key(self, topic: str, partition: int) -> ShareKey:
        return ShareKey(GROUP, self._ids[topic], partition)

    def topic(self, name: str) -> Topic:
        found = self.state.topics.get(name)
        assert found is not None
        return found

    def log(self, key: ShareKey) -> PartitionLog:
        return self.topic(self.names[key.topic_id]).partitions[key.partition].log

    def log_start(self, key: ShareKey) -> int:
        return self.log(key).start_offset

    def is_hidden(self, key: ShareKey, offset: int) -> bool:
        """Return True if no member may see the record of an offset."""
        return self.plan.is_committed and offset in self.aborted[key]

    def is_gap(self, key: ShareKey, offset: int) -> bool:
        return offset not in self.records[key]

    def fails_write(self) -> bool:
        if self.write_faults and self.rng.random() < 0.5:
            self.write_faults -= 1
            return True
        return False

    def leader(self, node: int) -> ShareLeader:
        return self.state.brokers[node].share_leader

    def stored_state(self, key: ShareKey) -> ShareState | None:
        coordinator = self.state.share_router.coordinator(key)
        return None if coordinator is None else coordinator.states.get(key)

    def new_state_records(self, positions: Counter[int]) -> list[tuple[Any, Any]]:
        """Return the records of states that were written since the last call."""
        found = []
        topic = self.topic(SHARE_STATE)
        for partition in topic.partitions:
            for batch in partition.log.batches(positions[partition.index]):
                for record in batch.records():
                    if record.offset >= positions[partition.index]:
                        found.append((record.key, record.value))
            positions[partition.index] = partition.log.end_offset
        return found

    def is_calm(self, member_id: str, since: float) -> bool:
        """Return True if no fault has touched a member since a time, and it still works."""
        member = next((each for each in self.members if each.id == member_id), None)
        return (
            member is not None
            and not member.ended.is_set()
            and not member.leaving
            and member.is_calm(since)
        )

    def disturb(self, seconds: float) -> None:
        """Note a fault that ends after some seconds. Members need a while to recover."""
        until = anyio.current_time() + seconds + 15
        self.disturbed_until = max(self.disturbed_until, until)

    # -- operations ---------------------------------------------------------------------------

    def start(self, *, is_last: bool = False) -> Member:
        member = Member(self, 1000 * self.plan.seed + next(self._made), is_last=is_last)
        self.members.append(member)
        self._tasks.start_soon(member.run)
        return member

    def live(self) -> list[Member]:
        return [
            each
            for each in self.members
            if not (each.ended.is_set() or each.leaving or each.disturbed_until == math.inf)
        ]

    def produce(self, count: int) -> None:
        """Append batches to random partitions. Some belong to a transaction."""
        rng, plan = self.rng, self.plan
        while count > 0:
            topic = rng.choice(list(TOPICS))
            partition = rng.randrange(len(self.topic(topic).partitions))
            key, size = self.key(topic, partition), rng.randint(1, plan.batch)
            count -= size
            self.produced += size
            values = [POISON if rng.random() < plan.poison else b"x" for _ in range(size)]
            is_open = rng.random() < plan.aborts
            options: dict[str, Any] = {}
            if is_open:
                options = {
                    "producer_id": 7,
                    "producer_epoch": 0,
                    "base_sequence": self._sequence[key],
                    "transactional": True,
                }
                self._sequence[key] += size
            first = self.log(key).end_offset
            raw = encode_batch([NewRecord(0, None, value) for value in values], **options)
            self.cluster._append(topic, partition, raw)
            self.records[key].update(enumerate(values, first))
            if is_open:
                is_aborted = rng.random() < 0.6
                place = self.topic(topic).partitions[partition]
                marker = Marker(7, 0, committed=not is_aborted, coordinator_epoch=0)
                self.state.transaction_router.write_marker(place, marker)
                if is_aborted:
                    self.aborted[key].update(range(first, first + size))

    def delete_records(self) -> None:
        topic = self.rng.choice(list(TOPICS))
        key = self.key(topic, 0)
        log = self.log(key)
        log.advance_start(self.rng.randint(log.start_offset, log.end_offset))

    async def bounce_broker(self) -> None:
        node = self.rng.choice(self.cluster.live_brokers)
        if len(self.cluster.live_brokers) < 2:
            return
        away = self.rng.uniform(0, 8)
        self.disturb(away)
        self.cluster.kill_broker(node)
        await anyio.sleep(away)
        self.cluster.start_broker(node)
        self.disturb(0)

    def fail_request(self) -> None:
        rng, cluster = self.rng, self.cluster
        self.disturb(5)
        api = rng.choice(["ShareFetch", "ShareFetch", "ShareAcknowledge", "ShareGroupHeartbeat"])
        times = rng.randint(1, 3)
        match rng.choice(["fail", "drop", "lose", "delay", "counted"]):
            case "fail" if api == "ShareGroupHeartbeat":
                code = rng.choice(
                    [
                        ErrorCode.UNKNOWN_MEMBER_ID,
                        ErrorCode.FENCED_MEMBER_EPOCH,
                        ErrorCode.NOT_COORDINATOR,
                        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
                    ]
                )
                cluster.fail(api, code, times=times)
            case "fail":
                cluster.fail(api, rng.choice(FAILABLE), times=times)
            case "drop":
                cluster.disconnect(api, times=times)
            case "lose":
                cluster.disconnect(api, after=True, times=times)
            case "delay":
                cluster.delay(api, (0.1, 3.0), times=times)
            case "counted" if api != "ShareGroupHeartbeat":
                cluster.on(api, self._fail_counted, keep=times)

    async def _fail_counted(self, call: Any) -> Any:
        """Let a broker count a request, and respond with an error to all of it."""
        message = call.message
        key = SessionKey(message.group_id, message.member_id)
        if message.share_session_epoch <= 0:
            return None
        session = self.leader(call.node_id).sessions.use(key, message.share_session_epoch)
        if isinstance(session, ErrorCode):
            return call.error(session)
        return call.error(ErrorCode.INVALID_REQUEST)

    async def live_on(self) -> None:
        plan, rng = self.plan, self.rng
        for _ in range(rng.randint(1, 3)):
            self.start()
        for _ in range(rng.randint(4, 10)):
            await anyio.sleep(rng.uniform(0.1, 1.0) * min(plan.lock, 6.0))
            self.produce(plan.records // 8)
            await self.operate(rng.choice(self.operations()))
            if self.witness.violations:
                return

    def operations(self) -> list[str]:
        profile = self.plan.profile
        found = ["start", "start", "leave", "expire", "delete", "grow"]
        if profile in ("members", "storm"):
            found += ["crash", "cut", "break", "crash"]
        if profile in ("brokers", "storm"):
            found += ["bounce", "leader", "leader", "coordinator", "state leader", "writes"]
        if profile in ("requests", "storm"):
            found += ["request"] * 4
        return found

    async def operate(self, doing: str) -> None:
        rng, live = self.rng, self.live()
        self.witness.figures[doing] += 1
        match doing:
            case "start" if len(live) < 4:
                self.start()
            case "leave" if live:
                await rng.choice(live).leave()
            case "expire":
                self.cluster.expire_locks(GROUP)
            case "delete":
                self.delete_records()
            case "grow":
                have = len(self.topic("b").partitions)
                if have < 3:
                    self.cluster.add_partitions("b", have + 1)
            case "crash" if live:
                await rng.choice(live).crash()
            case "cut" if live:
                self._tasks.start_soon(rng.choice(live).cut, rng.uniform(1, 30))
            case "break" if live:
                member = rng.choice(live)
                member.disturbed_until = anyio.current_time() + 30
                member.network.break_one()
            case "bounce":
                self._tasks.start_soon(self.bounce_broker)
            case "leader":
                self.disturb(0)
                self.cluster.move_leader(rng.choice(list(TOPICS)), 0)
            case "coordinator":
                self.disturb(0)
                self.cluster.move_coordinator(GROUP)
            case "state leader":
                self.disturb(0)
                self.cluster.move_leader(SHARE_STATE, rng.randrange(4))
            case "writes":
                self.disturb(5)
                self.write_faults = rng.randint(1, 6)
            case "request":
                self.fail_request()

    async def settle(self) -> None:
        """End the faults, and wait until the group has finished every record."""
        self.cluster.stop_faults()
        self.watch_requests()
        self.write_faults = 0
        for member in self.members:
            if not (member.ended.is_set() or member.network.cut):
                member.network.thaw()
                await member.leave()
        last = [self.start(is_last=True) for _ in range(self.rng.randint(1, 5))]
        await anyio.sleep(2 * POLL)  # their first polls join
        with anyio.move_on_after(LIMIT):
            while self.unfinished() and not self.witness.violations:  # noqa: ASYNC110
                await anyio.sleep(1.0)
        for text in self.unfinished():
            self.witness.violate(2, text)
        if self.witness.violations:
            return await self.end()
        self.is_resting = True
        # Members that crashed are removed, and the others get new assignments.
        await anyio.sleep(SESSION + 2 * HEARTBEAT + 2)
        self.check_assignments(last)
        for member in last:
            await member.leave()
        await self.end()
        self.check_handed()

    async def end(self) -> None:
        """End the members that are left."""
        for member in self.members:
            if not member.ended.is_set():
                member.scope.cancel()
                await member.ended.wait()

    def unfinished(self) -> list[str]:
        """Return what keeps the group from its end."""
        machines = self.state.share_router.machines(GROUP)
        found = []
        for name in TOPICS:
            for index, partition in enumerate(self.topic(name).partitions):
                machine = machines.get(TopicPartition(name, index))
                start = -1 if machine is None else machine.start
                if start < partition.log.end_offset:
                    found.append(f"{name}-{index} is at {start} of {partition.log.end_offset}")
        return found

    def check_handed(self) -> None:
        witness = self.witness
        for key, records in self.records.items():
            name = self.names[key.topic_id]
            exhausted = {
                offset
                for offset, count in witness.shared[key].stored_counts.items()
                if count >= self.plan.limit
            }
            lost = [
                offset
                for offset in records
                if (name, key.partition, offset) not in witness.handed
                and offset >= self.log_start(key)
                and offset not in exhausted
                and not self.is_hidden(key, offset)
            ]
            if lost:
                witness.violate(2, f"no member got {witness.name(key)} {lost[:5]}")

    def check_assignments(self, members: Iterable[Member]) -> None:
        """Compare the assignments of the last members with the quotas of the assignor."""
        owned = {each.name: each.consumer.assignment() for each in members}
        partitions = {
            TopicPartition(name, index)
            for name in TOPICS
            for index in range(len(self.topic(name).partitions))
        }
        wanted = math.ceil(len(owned) / len(partitions))
        share = wanted * len(partitions) / len(owned)
        sizes = sorted(len(each) for each in owned.values())
        on_each = Counter(tp for each in owned.values() for tp in each)
        is_even = all(math.floor(share) <= size <= math.ceil(share) for size in sizes)
        if on_each.keys() != partitions or max(on_each.values()) > wanted or not is_even:
            self.witness.violate(14, f"the assignments are {owned}")

    def watch_requests(self) -> None:
        witness = self.witness
        for api in ("ShareFetch", "ShareAcknowledge"):
            self.cluster.on(api, witness.see_request)
        self.cluster.on("ShareGroupHeartbeat", witness.see_heartbeat)


async def _simulate(plan: Plan) -> Witness:
    configs = {
        "group.share.min.record.lock.duration.ms": 1000,
        "group.share.min.session.timeout.ms": 1000,
        "group.share.min.heartbeat.interval.ms": 1000,
        "share.coordinator.state.topic.num.partitions": 4,
        "share.coordinator.snapshot.update.records.per.snapshot": plan.updates,
        "errors.deadletterqueue.auto.create.topics.enable": "true",
    }
    async with (
        MemoryCluster(3, topics=TOPICS, seed=plan.seed, configs=configs) as cluster,
        anyio.create_task_group() as tasks,
    ):
        world = World(cluster, plan, tasks)
        world.state.configs.groups.change(GROUP, plan.configs())
        with world.witness.watching():
            world.watch_requests()
            world.produce(plan.records // 2)
            await world.live_on()
            await world.settle()
        tasks.cancel_scope.cancel()
    return world.witness


def run(seed: int) -> Witness:
    """Run one seed."""
    ids = itertools.count(1)
    with patch.object(_member, "new_member_id", lambda rng: f"{next(ids):022}"):
        return run_virtual(_simulate, Plan(seed), seed=seed)


def simulate(seed: int) -> list[str]:
    """Run one seed. Return its violations."""
    return run(seed).violations


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.share.simulation")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--first", type=int, default=0)
    arguments = parser.parse_args()
    is_one = arguments.seed is not None
    first, count = (arguments.seed, 1) if is_one else (arguments.first, arguments.seeds)
    logging.disable(logging.CRITICAL)
    failures, figures, begun = 0, Counter[str](), time.monotonic()
    for seed in range(first, first + count):
        witness = run(seed)
        figures += witness.figures
        if witness.violations:
            failures += 1
            print(f"seed {seed}:", *witness.violations[:5], sep="\n  ", flush=True)
    print(dict(sorted(figures.items())))
    print(f"{failures} of {count} seeds failed, {time.monotonic() - begun:.0f} s")
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
