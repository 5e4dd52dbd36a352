"""The kept candidates and plans, compared with a walk over all partitions after any operations."""

from __future__ import annotations

import random
from typing import Any, NamedTuple

import pytest

from kohort.broker._fetch_sessions import FetchSessions, in_order
from kohort.config import FetchConfig
from kohort.errors import BrokerNotAvailableError
from kohort.fetcher import FetchBuffer
from kohort.fetcher._failure_reports import DeniedTopics, LookupFailures
from kohort.fetcher._leaders import Leaders, Replicas
from kohort.fetcher._retries import Retries
from kohort.fetcher._validation import Validation
from kohort.fetcher.buffer._completed import FailedFetch
from kohort.fetcher.buffer._memory import FetchMemory
from kohort.fetcher.requests._candidates import Candidates
from kohort.fetcher.requests._connections import EXTRA_POLL_MARGIN, LONG_POLL_AFTER, FetchConnection
from kohort.fetcher.requests._planning import FetchPlanner, PlannedFetch
from kohort.fetcher.requests._request import PartitionRequest, fetch_request, partitions_of
from kohort.fetcher.requests._sizes import FetchSizes
from kohort.protocol import decode, encode
from kohort.protocol.messages import FetchRequest, FetchResponse
from kohort.subscription import NO_ID, SubscriptionState
from kohort.transport import Backoff, Leader, TopicMetadata
from kohort.types import TopicPartition
from tests.fetcher.fake import FakeCluster
from tests.fetcher.making import batch, broken, fetched, with_room

PARTITIONS = [TopicPartition("t", number) for number in range(6)]
NODES = (1, 2, 3)
SIZE = 1000
CONFIG = FetchConfig(fetch_max_wait_ms=500, fetch_max_bytes=4 * SIZE)
BATCH = len(batch(0, 4))
STEPS = 400


class Walk(NamedTuple):
    """The candidates that a walk over every partition finds."""

    ready: dict[int, dict[TopicPartition, PartitionRequest]]
    has_waiting: dict[TopicPartition, int]
    unvalidated: set[TopicPartition]


class Machine:
    """A fetcher's parts without its tasks, the brokers' sessions, and a clock."""

    def __init__(self, seed: int, memory: int, ahead: int) -> None:
        rng, backoff = random.Random(seed), Backoff(0.1, 0.4)
        self.rng = rng
        self.now = 100.0
        self.cluster = FakeCluster()
        self.cluster.topics["t"] = TopicMetadata("t", b"t" * 16)
        self.subscription = SubscriptionState()
        self.subscription.subscribe(["t"])
        self.buffer = FetchBuffer(self.subscription, max_bytes=ahead, memory=FetchMemory(memory))
        self.leaders = Leaders(self.cluster, backoff, rng)
        self.replicas = Replicas(3.0)
        self.retries: Retries[TopicPartition] = Retries(backoff, rng)
        self.validation = Validation(
            self.cluster,
            self.subscription,
            LookupFailures(
                self.buffer.queues,
                Retries(backoff, rng),
                DeniedTopics(self.buffer.queues, "raise", self.cluster),
                on_ready=lambda: None,
            ),
            on_done=lambda partitions: None,
        )
        self.sizes: dict[TopicPartition, int] = {}
        self.arrivals: dict[TopicPartition, int] = {}
        self.candidates = Candidates(
            self.subscription,
            self.buffer.queues.limits,
            self.leaders,
            self.replicas,
            self.retries,
            self.validation,
            lambda tp, _: self.sizes.get(tp, SIZE),
        )
        self.planner = FetchPlanner(
            self.candidates,
            self.buffer.queues,
            CONFIG,
            FetchSizes(CONFIG),
            self.arrivals,
            Retries(backoff, rng),
        )
        self.brokers = {node: FetchSessions(random.Random(node)) for node in NODES}
        self.requested: dict[tuple[TopicPartition, int], FetchConnection] = {}
        self.out: list[tuple[PlannedFetch, Any]] = []
        for number, tp in enumerate(PARTITIONS):
            self.cluster.leaders[tp] = Leader(NODES[number % 4 // 3], 5)
        self.assign(set(PARTITIONS))

    def step(self) -> None:
        """Run a random operation and compare."""
        operation = self.rng.choice(OPERATIONS)
        operation(self)
        self.compare()

    def some(self) -> TopicPartition:
        return self.rng.choice(PARTITIONS)

    def few(self) -> list[TopicPartition]:
        return self.rng.sample(PARTITIONS, self.rng.randint(1, 3))

    # --- what happens to partitions -----------------------------------------------------------

    def own(self) -> None:
        self.assign(set(PARTITIONS) if self.rng.random() < 0.5 else set(self.few()))

    def assign(self, wanted: set[TopicPartition]) -> None:
        for tp in self.subscription.assign_from_group(wanted):
            self.subscription.seek(tp, 0)
        owned = self.subscription.assigned()
        self.retries.keep_only(owned)
        self.replicas.keep_only(owned)
        self.validation.keep_only(owned)
        self.planner.keep_only(owned)

    def owned(self, tp: TopicPartition) -> bool:
        return tp in self.subscription.assigned()

    def epoch(self, tp: TopicPartition) -> int:
        return self.subscription.snapshot().partitions[tp].epoch

    def seek(self) -> None:
        tp, offset = self.some(), self.rng.randint(0, 3)
        leader_epoch = self.rng.randint(-1, 6)
        if self.owned(tp):
            until = 2 if offset == 3 else None
            self.subscription.seek(tp, offset, leader_epoch, until=until)

    def pause(self) -> None:
        self.subscription.pause([tp for tp in self.few() if self.owned(tp)])

    def resume(self) -> None:
        self.subscription.resume(self.subscription.paused())

    def reset(self) -> None:
        tp = self.some()
        if self.owned(tp):
            self.subscription.request_reset(tp)

    def look_up(self) -> None:
        for tp in sorted(self.subscription.assigned()):
            self.subscription.set_position(tp, 1, epoch=self.epoch(tp))

    def stop_delivery(self) -> None:
        if self.rng.random() < 0.5:
            self.subscription.subscribe(["u"])
        else:
            self.subscription.mark_pending_revocation([self.some()])
        self.compare()
        self.subscription.subscribe(["t"])
        self.subscription.assign_from_group(self.subscription.assigned())

    def lead(self) -> None:
        tp, node = self.some(), self.rng.choice([*NODES, None])
        if node is None:
            self.cluster.leaders.pop(tp, None)
        else:
            before = self.cluster.leaders.get(tp, Leader(0, 5))
            self.cluster.leaders[tp] = Leader(node, before.epoch + 1)

    def make_topic(self) -> None:
        id = self.rng.choice([self.rng.randbytes(16), NO_ID])
        self.cluster.topics["t"] = TopicMetadata("t", id)
        if self.rng.random() < 0.5:
            self.subscription.note_topic_ids({"t": id})

    def choose_replica(self) -> None:
        tp, node, stays = self.some(), self.rng.choice(NODES), self.rng.random() < 0.3
        leader = self.cluster.leaders.get(tp)
        if leader is not None and self.owned(tp):
            if stays:
                self.replicas.keep_on_leader(tp, leader, self.now)
            else:
                self.replicas.read_from(tp, node, leader, self.now)
            self.candidates.touch([tp])

    def resize(self) -> None:
        tp = self.some()
        self.sizes[tp] = self.rng.choice([SIZE, 3 * SIZE])
        self.candidates.touch([tp])

    def validate(self) -> None:
        tp = self.some()
        leader = self.cluster.leaders.get(tp)
        if leader is not None and self.owned(tp):
            self.validation.mark_validated(tp, self.epoch(tp), leader.epoch)
            self.candidates.touch([tp])

    def fail(self) -> None:
        tp, passing = self.some(), self.rng.random() < 0.5
        if self.owned(tp):
            error = BrokerNotAvailableError("no")
            self.buffer.queues.append(FailedFetch(tp, self.epoch(tp), error, is_transient=passing))

    def wait(self) -> None:
        self.now += self.rng.choice([0.2, 1.0, 11.0])

    # --- the caller -----------------------------------------------------------------------------

    def drain(self) -> None:
        limit, only = self.rng.choice([1, 4, 4, 9]), None
        if self.rng.random() < 0.3:
            only = self.few()
        try:
            self.buffer.drain(limit, only)
        except Exception as error:
            assert not isinstance(error, AssertionError)

    # --- the connections ------------------------------------------------------------------------

    def fetch_beside_what_is_parked(self) -> None:
        self.now += 0.03
        self.fetch()

    def fetch(self) -> None:
        self.candidates.refresh(self.now)
        walk = self.walk()
        free = self.free(walk)
        fetches, _ = self.planner.plan_due(self.now)
        for fetch in fetches:
            connection = fetch.connection
            requests = dict(connection.session.requests)
            assert requests == free[connection.node]
            plan = self.understood(fetch)
            self.requested.update(
                ((tp, request.epoch), connection) for tp, request in requests.items()
            )
            self.out.append((fetch, plan))
        busy = [connection for connection in self.planner.all_connections() if connection.is_busy]
        assert len(self.out) == len(busy)
        for node in free:
            connections = self.planner.connections(node)
            took = any(fetch.connection.node == node for fetch in fetches)
            until = connections.main.until - 2 * EXTRA_POLL_MARGIN
            is_parked = connections.main.sent_at + LONG_POLL_AFTER <= self.now < until
            if not took and (
                not connections.main.is_busy or (is_parked and not connections.extra.is_busy)
            ):
                assert not free[node], "something may be fetched, and nothing was"
        assert self.planner.in_flight().keys() <= {tp for tp, _ in self.requested}

    def free(self, walk: Walk) -> dict[int, dict[TopicPartition, PartitionRequest]]:
        """Return the partitions to fetch by broker, without those in flight there."""
        found: dict[int, dict[TopicPartition, PartitionRequest]] = {}
        allowed = self.buffer.queues.limits.allowed
        for node, ready in walk.ready.items():
            for tp, request in ready.items():
                connection = self.requested.get((tp, request.epoch))
                if (connection is None or connection.node != node) and (
                    allowed is None or tp in allowed
                ):
                    found.setdefault(node, {})[tp] = request
        return found

    def understood(self, fetch: PlannedFetch) -> Any:
        """Return the request as the broker reads it. Check it against the connection's requests."""
        version = min(18, fetch.plan.max_version)
        sent = encode(fetch_request(CONFIG, fetch.plan, 500, SIZE), version)
        broker = self.brokers[fetch.connection.node]
        plan = broker.plan(decode(FetchRequest, version, sent), version)
        if not plan.error:
            partitions = plan.session.partitions.values()
            assert sorted((each.key.partition, each.offset) for each in partitions) == sorted(
                (tp.partition, request.offset)
                for tp, request in fetch.connection.session.requests.items()
            )
        return plan

    def answer_the_first(self) -> None:
        self.answer(0, self.rng.randint(0, 2), False, "good")

    def answer_the_last_and_fetch(self) -> None:
        self.answer(-1, self.rng.randint(0, 3), False, "good")
        self.fetch()

    def answer_somehow(self) -> None:
        outcome = self.rng.choice(["good", "lost", "error", "small"])
        self.answer(
            self.rng.randint(0, 9), self.rng.randint(0, 2), self.rng.random() < 0.3, outcome
        )

    def answer(self, pick: int, brings: int, spoilt: bool, outcome: str) -> None:
        if not self.out:
            return
        fetch, plan = self.out.pop(pick % len(self.out))
        connection = fetch.connection
        session = connection.session
        if outcome == "lost" or plan.error:
            session.restart(plan.error)
            self.candidates.touch(session.requests)
        else:
            self.take(connection, plan, brings, spoilt, outcome)
        connection.finish()
        self.buffer.queues.limits.memory.release_grant(fetch.granted)
        for key in [
            key for key, requested_by in self.requested.items() if requested_by is connection
        ]:
            del self.requested[key]

    def take(
        self, connection: FetchConnection, plan: Any, brings: int, spoilt: bool, outcome: str
    ) -> None:
        session, results = connection.session, []
        for number, wanted in enumerate(in_order(plan.session.partitions.values())):
            code = 6 if outcome == "error" and number == 0 else 0
            data = FetchResponse.PartitionData(
                partition_index=wanted.key.partition,
                error_code=code,
                high_watermark=1000 + (number < brings),
                records=b"x" if number < brings else b"",
            )
            results.append((wanted, data))
        response = FetchResponse(session_id=plan.session.id)
        for wanted, data in self.brokers[connection.node].changed_results(plan, results):
            response.responses.append(
                FetchResponse.FetchableTopicResponse(
                    topic=wanted.key.topic,
                    topic_id=wanted.key.topic_id or bytes(16),
                    partitions=[data],
                )
            )
        there = partitions_of(response, session.requests, session.topic_names)
        quiet = session.note_response(response.session_id, there, self.now)
        assert not set(quiet) & set(there)
        for number, (tp, data) in enumerate(there.items()):
            request = session.requests[tp]
            if self.planner.connection_of(tp) is not connection:
                continue
            if data.error_code:
                self.retries.failed(tp, self.now, request.epoch)
            elif data.records and outcome == "small":
                self.sizes[tp] = 2 * SIZE
            elif data.records and self.owned(tp):
                bytes_ = batch(request.offset, 4)
                fetch = fetched(
                    self.subscription,
                    tp,
                    request.offset,
                    broken(bytes_) if spoilt else bytes_,
                    epoch=request.epoch,
                )
                self.validation.note_read_epoch(tp, request.epoch, request.leader_epoch, 3)
                self.arrivals[tp] = max(self.arrivals.values(), default=0) + number
                self.buffer.queues.append(fetch, at=self.now)
        self.candidates.touch(there)
        session.newly_up_to_date(quiet, there, had_room=True)

    # --- the comparison -------------------------------------------------------------------------

    def walk(self) -> Walk:
        """Return the candidates of a walk over every partition."""
        walk = Walk({}, {}, set())
        targets = self.subscription.fetch_targets()
        allowed = self.buffer.queues.limits.allowed
        with self.subscription.lock:
            roomy = [target for target in targets if self.buffer.queues.limits.has_room(target)]
        for target in targets:
            tp, epoch, offset, _, topic_id = target
            leader = self.cluster.leaders.get(tp)
            if leader is None or self.retries.not_before(tp, epoch) > self.now:
                continue
            node = self.replicas.find(tp, leader, self.now)
            if target not in roomy:
                walk.has_waiting[tp] = node
            elif self.validation.is_needed(target, leader):
                walk.unvalidated.add(tp)
            else:
                if topic_id == NO_ID:
                    topic_id = self.cluster.topics["t"].topic_id
                size = self.sizes.get(tp, SIZE)
                request = PartitionRequest(tp, epoch, offset, leader.epoch, size, topic_id)
                walk.ready.setdefault(node, {})[tp] = request
        assert self.buffer.queues.limits.allowed is allowed
        return walk

    def compare(self) -> None:
        due = self.candidates.refresh(self.now)
        assert due > self.now
        waits = self.buffer.queues.limits.is_fetcher_waiting
        walk = self.walk()
        nodes = self.candidates.nodes
        assert {node: mine.ready for node, mine in nodes.items() if mine.ready} == walk.ready
        assert self.candidates.waiting_for_room == walk.has_waiting
        assert self.candidates.unvalidated.keys() == walk.unvalidated
        pending = self.subscription.pending_resets()
        assert self.candidates.resets == {each.topic_partition: each for each in pending}
        if walk.has_waiting or self.buffer.queues.limits.allowed is not None:
            assert waits, "a drain would not wake the fetcher"
        roomy = {each.topic_partition for each in with_room(self.buffer, self.subscription)}
        for mine in nodes.values():
            assert self.buffer.queues.limits.allowed is not None or mine.ready.keys() <= roomy


OPERATIONS = [
    *[Machine.fetch_beside_what_is_parked, Machine.drain] * 4,
    *[Machine.fetch, Machine.answer_the_first, Machine.answer_the_last_and_fetch] * 3,
    *[Machine.answer_somehow, Machine.wait, Machine.seek, Machine.pause, Machine.resume] * 2,
    Machine.own,
    Machine.reset,
    Machine.look_up,
    Machine.stop_delivery,
    Machine.lead,
    Machine.make_topic,
    Machine.choose_replica,
    Machine.resize,
    Machine.validate,
    Machine.fail,
]


@pytest.mark.parametrize("seed", range(20))
def test_candidates_equal_a_walk_after_any_operations(seed: int) -> None:
    machine = Machine(seed, memory=1 << 62, ahead=2 * BATCH)
    for _ in range(STEPS):
        machine.step()


@pytest.mark.parametrize("seed", range(10))
def test_candidates_equal_a_walk_when_memory_is_scarce(seed: int) -> None:
    machine = Machine(seed, memory=3 * BATCH, ahead=1 << 20)
    for _ in range(STEPS):
        machine.step()


def test_timers_do_not_grow_when_a_follower_is_read() -> None:
    machine = Machine(0, memory=1 << 62, ahead=1 << 20)
    tp = PARTITIONS[0]
    machine.replicas.read_from(tp, 3, machine.cluster.leaders[tp], machine.now)
    sizes = []
    for _ in range(50):
        machine.candidates.touch([tp])
        assert machine.candidates.refresh(machine.now) == machine.replicas.until(tp)
        sizes.append(len(machine.candidates._timers))
    assert max(sizes) == 1


def test_partitions_stay_touched_when_a_look_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(0, memory=1 << 62, ahead=1 << 20)

    def fails(tp: TopicPartition) -> Leader | None:
        raise LookupError(tp)

    with monkeypatch.context() as patch:
        patch.setattr(machine.leaders, "find", fails)
        with pytest.raises(LookupError):
            machine.candidates.refresh(machine.now)
    machine.candidates.refresh(machine.now)
    ready = [tp for mine in machine.candidates.nodes.values() for tp in mine.ready]
    assert sorted(ready) == PARTITIONS


@pytest.mark.parametrize("fails_at", [1, 2])
def test_lanes_are_free_again_when_planning_fails(
    fails_at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(0, memory=1 << 62, ahead=1 << 20)
    machine.candidates.refresh(machine.now)
    memory, calls = machine.buffer.queues.limits.memory, iter(range(1, 10))
    grant = memory.grant_counted

    def fails(*args: Any) -> Any:
        if next(calls) == fails_at:
            raise LookupError
        return grant(*args)

    with monkeypatch.context() as patch:
        patch.setattr(memory, "grant_counted", fails)
        with pytest.raises(LookupError):
            machine.planner.plan_due(machine.now)
    assert memory.in_flight_bytes == 0
    fetches, _ = machine.planner.plan_due(machine.now)
    assert sorted(each.topic_partition for f in fetches for each in f.plan.requests) == PARTITIONS
