"""Runs of a rebalance on the in-process cluster, as events for :mod:`tools.rebalance_drawing`.

Member A owns all partitions when member B joins. The clock is virtual and the seed fixed, so each
run has the same events.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import anyio

from kohort import AsyncKafkaConsumer, TopicPartition
from kohort.errors import error_name
from kohort.protocol import decode_from
from kohort.protocol.messages import ConsumerProtocolAssignment
from kohort.testing import Call, MemoryCluster
from tests.support.virtual import run_virtual

TOPIC: Final = "orders"
PARTITIONS: Final = 4
GROUP: Final = "billing"
DELAY: Final = 0.005
"""Seconds that a request takes to the coordinator, and its response back."""
START: Final = 13.5
"""Seconds after which member B starts."""
DURATION: Final = 20.0
"""Seconds that are recorded. The rebalance ends in the first half."""
APIS: Final = ("JoinGroup", "SyncGroup", "Heartbeat", "OffsetCommit", "ConsumerGroupHeartbeat")

KINDS: Final[dict[str, dict[str, Any]]] = {
    "eager": {"group_protocol": "classic", "partition_assignment_strategy": "range"},
    "cooperative": {
        "group_protocol": "classic",
        "partition_assignment_strategy": "cooperative-sticky",
    },
    "consumer": {"group_protocol": "consumer"},
}
"""Kind of rebalance -> options of the members."""


@dataclass(frozen=True)
class Event:
    """One line of a drawing."""

    at: float
    """Seconds since member B started."""
    member: str
    text: str
    kind: str
    """request, response or callback."""
    owners: tuple[str, ...]
    """Owner of each partition after the event. Empty text: none."""


class Mark(NamedTuple):
    """A moment of a run."""

    number: int
    at: float
    owners: tuple[str, ...]


@dataclass
class Recorder:
    """Collects the events of a run, and the owner of each partition."""

    is_on: bool = False
    began: float = 0.0
    owners: dict[int, str] = field(default_factory=dict)
    epochs: dict[str, int] = field(default_factory=dict)
    """Latest epoch that a member of the consumer protocol got."""
    _events: list[tuple[int, Event]] = field(default_factory=list)
    _marks: int = 0

    def mark(self) -> Mark:
        """Return the current moment."""
        self._marks += 1
        owners = tuple(self.owners.get(number, "") for number in range(PARTITIONS))
        return Mark(self._marks, anyio.current_time() - self.began, owners)

    def add(self, member: str, text: str, kind: str, mark: Mark | None = None) -> None:
        """Add an event of this moment, or of that of ``mark``."""
        mark = mark or self.mark()
        if self.is_on and mark.at >= 0:
            event = Event(mark.at, member, text, kind, mark.owners)
            self._events.append((mark.number, event))

    def events(self) -> list[Event]:
        """Return the events in the order of their moments."""
        return [event for _, event in sorted(self._events, key=lambda each: each[0])]

    async def observe(self, call: Call) -> Any:
        """Record a request and its response. It is a handler of the cluster."""
        member = call.client_id
        sent = self.mark()
        asked = describe_request(call)
        if asked and not call.api.endswith("Heartbeat"):
            self.add(member, asked, "request", sent)
        await anyio.sleep(DELAY)
        response: Any = await call.proceed()
        await anyio.sleep(DELAY)
        if call.api == "ConsumerGroupHeartbeat":
            answer = _heartbeat_answer(response, self.epochs.get(member))
            self.epochs[member] = response.member_epoch
        else:
            answer = describe_response(call.api, response)
        if call.api.endswith("Heartbeat"):
            if not asked and not answer:
                return response  # it changes nothing
            self.add(member, asked or "Heartbeat", "request", sent)
            answer = answer or f"epoch {response.member_epoch}"
        self.add(member, answer, "response")
        return response


class Narrator:
    """Listener that records its calls. It calls nothing itself."""

    def __init__(self, member: str, recorder: Recorder) -> None:
        self._member = member
        self._recorder = recorder

    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        """Record the new owner."""
        for tp in assigned:
            self._recorder.owners[tp.partition] = self._member
        self._recorder.add(self._member, f"assigned {shown(assigned)}", "callback")

    def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        """Record that the partitions have no owner."""
        for tp in revoked:
            self._recorder.owners.pop(tp.partition, None)
        self._recorder.add(self._member, f"revoked {shown(revoked)}", "callback")

    def on_partitions_lost(self, lost: Collection[TopicPartition]) -> None:
        """Fail, because a lost partition means that the run went wrong."""
        raise AssertionError("no partition is lost in these runs")


def shown(partitions: Iterable[TopicPartition | int]) -> str:
    """Return numbers of partitions, such as ``0, 1``."""
    numbers = sorted(each if isinstance(each, int) else each.partition for each in partitions)
    return ", ".join(map(str, numbers)) or "none"


def describe_request(call: Call) -> str:
    """Return the text of a request, empty for a heartbeat without news."""
    request: Any = call.message
    if call.api == "SyncGroup" and request.assignments:
        parts = (
            f"{each.member_id[0]}: {shown(_assigned(each.assignment))}"
            for each in sorted(request.assignments, key=lambda each: str(each.member_id))
        )
        return "SyncGroup, " + "; ".join(parts)
    if call.api == "OffsetCommit":
        numbers = (part.partition_index for topic in request.topics for part in topic.partitions)
        return f"OffsetCommit {shown(numbers)}"
    if call.api == "ConsumerGroupHeartbeat":
        return _heartbeat_text(request)
    return "" if call.api == "Heartbeat" else str(call.api)


def describe_response(api: str, response: Any) -> str:
    """Return the text of a response, empty if it changes nothing."""
    if api == "OffsetCommit":
        return "committed"
    if response.error_code:
        return error_name(response.error_code)
    if api == "JoinGroup":
        leads = ", leader" if response.leader == response.member_id else ""
        return f"generation {response.generation_id}{leads}"
    if api == "SyncGroup":
        return f"assignment {shown(_assigned(response.assignment))}"
    return ""


def _heartbeat_text(request: Any) -> str:
    if request.member_epoch == 0:
        return "Heartbeat, epoch 0: join"
    if request.topic_partitions is not None and request.subscribed_topic_names is None:
        return f"Heartbeat, owns {shown(_numbers(request.topic_partitions))}"
    return ""


def _heartbeat_answer(response: Any, known: int | None) -> str:
    if response.error_code:
        return error_name(response.error_code)
    if response.assignment is not None:
        numbers = _numbers(response.assignment.topic_partitions)
        return f"epoch {response.member_epoch}, assignment {shown(numbers)}"
    return "" if response.member_epoch == known else f"epoch {response.member_epoch}"


def _numbers(topics: Iterable[Any]) -> list[int]:
    return [number for topic in topics for number in topic.partitions]


def _assigned(data: bytes) -> list[int]:
    if not data:
        return []
    decoded, _ = decode_from(ConsumerProtocolAssignment, 0, bytes(data), 2)
    return _numbers(decoded.assigned_partitions)


def events(kind: str) -> list[Event]:
    """Return the events of a rebalance of a kind of ``KINDS``."""
    found: list[Event] = run_virtual(_run, KINDS[kind], seed=1)
    return found


async def _run(options: dict[str, Any]) -> list[Event]:
    recorder = Recorder()
    async with MemoryCluster(topics={TOPIC: PARTITIONS}) as cluster:
        cluster.produce(TOPIC, [f"order {number}" for number in range(40)])
        for api in APIS:
            cluster.on(api, recorder.observe)
        async with anyio.create_task_group() as tasks:
            first = _member("A", cluster, options)
            first.subscribe([TOPIC], listener=Narrator("A", recorder))
            tasks.start_soon(_poll, first)
            await anyio.sleep(START)
            recorder.is_on, recorder.began = True, anyio.current_time()
            second = _member("B", cluster, options)
            second.subscribe([TOPIC], listener=Narrator("B", recorder))
            tasks.start_soon(_poll, second)
            await anyio.sleep(DURATION)
            recorder.is_on = False
            tasks.cancel_scope.cancel()
    return trimmed(recorder.events())


def trimmed(found: list[Event]) -> list[Event]:
    """Return the events up to the last callback that changes an owner, and what it causes."""
    last = max(n for n, event in enumerate(found) if event.kind == "callback")
    end = last + 1
    while end < len(found) and found[end].at < found[last].at + 0.1:
        end += 1
    return found[:end]


def _member(name: str, cluster: MemoryCluster, options: dict[str, Any]) -> AsyncKafkaConsumer:
    given: dict[str, Any] = {"client_id": name, "rng": random.Random(ord(name)), **options}
    return AsyncKafkaConsumer(
        bootstrap_servers=cluster.bootstrap_servers,
        connect=cluster.connect,
        group_id=GROUP,
        auto_offset_reset="earliest",
        **given,
    )


async def _poll(consumer: AsyncKafkaConsumer) -> None:
    async with consumer:
        while True:
            await consumer.poll(timeout_ms=1000)
