"""Runs of a rebalance on the in-process cluster, as events for :mod:`tools.rebalance_drawing`.

Member B joins member A, which owns all partitions. Or B leaves the group, or is killed. The clock
is virtual and the seed fixed, so each run has the same events.
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
"""Seconds after which member B joins, leaves or is killed."""
DURATION: Final = 60.0
"""Seconds that are recorded. A rebalance ends before."""
LOOK: Final = 0.05
"""Seconds between two looks at the members of the group."""
APIS: Final = (
    "JoinGroup",
    "SyncGroup",
    "Heartbeat",
    "OffsetCommit",
    "LeaveGroup",
    "ConsumerGroupHeartbeat",
)


class Run(NamedTuple):
    """One kind of run."""

    change: str
    """Change of member B: joins, leaves or is killed."""
    options: dict[str, Any]
    """Options of the members."""


_EAGER: Final = {"group_protocol": "classic", "partition_assignment_strategy": "range"}
_COOPERATIVE: Final = {**_EAGER, "partition_assignment_strategy": "cooperative-sticky"}
_CONSUMER: Final = {"group_protocol": "consumer"}
KINDS: Final[dict[str, Run]] = {
    "eager": Run("joins", _EAGER),
    "cooperative": Run("joins", _COOPERATIVE),
    "consumer": Run("joins", _CONSUMER),
    "leave": Run("leaves", _COOPERATIVE),
    "kill": Run("is killed", _CONSUMER),
}
"""Kind of run -> its change and options."""


@dataclass(frozen=True)
class Event:
    """One line of a drawing."""

    at: float
    """Seconds since the change began."""
    member: str
    """A, B or coordinator."""
    text: str
    kind: str
    """request, response, callback or note."""
    owners: tuple[str, ...]
    """Owner of each partition after the event. Empty text: none."""


@dataclass
class Recorder:
    """Collects the events of a run in their order, and the owner of each partition."""

    is_on: bool = False
    began: float = 0.0
    owners: dict[int, str] = field(default_factory=dict)
    epochs: dict[str, int] = field(default_factory=dict)
    """Latest epoch that a member of the consumer protocol got."""
    killed: str = ""
    """Member whose requests do not arrive any longer. Its events are left out."""
    events: list[Event] = field(default_factory=list)

    def begin(self) -> None:
        """Record events from this moment on."""
        self.is_on, self.began = True, anyio.current_time()

    def kill(self, member: str) -> None:
        """Let the requests of a member get lost, like those of a killed process."""
        self.owners = {part: owner for part, owner in self.owners.items() if owner != member}
        self.add(member, "killed", "note")
        self.killed = member

    def add(self, member: str, text: str, kind: str) -> Event:
        """Add an event of this moment."""
        owners = tuple(self.owners.get(number, "") for number in range(PARTITIONS))
        event = Event(anyio.current_time() - self.began, member, text, kind, owners)
        if self.is_on and member != self.killed:
            self.events.append(event)
        return event

    async def observe(self, call: Call) -> Any:
        """Record a request and its response. It is a handler of the cluster."""
        member = call.client_id
        if member == self.killed:
            await anyio.sleep_forever()
        request = self.add(member, describe_request(call), "request")
        await anyio.sleep(DELAY)
        response: Any = await call.proceed()
        await anyio.sleep(DELAY)
        if call.api == "ConsumerGroupHeartbeat":
            answer = _heartbeat_answer(response, self.epochs.get(member))
            self.epochs[member] = response.member_epoch
        else:
            answer = describe_response(call.api, response)
        if request.text == "Heartbeat" and not answer:  # it changes nothing
            self.events = [each for each in self.events if each is not request]
        else:
            self.add(member, answer or f"epoch {response.member_epoch}", "response")
        return response


class Narrator:
    """Listener that records its calls. It calls nothing itself."""

    def __init__(self, member: str, recorder: Recorder) -> None:
        self._member = member
        self._recorder = recorder

    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        """Record the new owner."""
        if self._member != self._recorder.killed:
            self._recorder.owners |= {tp.partition: self._member for tp in assigned}
        self._recorder.add(self._member, f"assigned {shown(assigned)}", "callback")

    def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        """Record that the partitions have no owner."""
        for tp in revoked:
            self._recorder.owners.pop(tp.partition, None)
        self._recorder.add(self._member, f"revoked {shown(revoked)}", "callback")

    def on_partitions_lost(self, lost: Collection[TopicPartition]) -> None:
        """Fail, because only a killed member may lose a partition in these runs."""
        assert self._member == self._recorder.killed


def shown(partitions: Iterable[TopicPartition | int]) -> str:
    """Return numbers of partitions, such as ``0, 1``."""
    numbers = sorted(each if isinstance(each, int) else each.partition for each in partitions)
    return ", ".join(map(str, numbers)) or "none"


def describe_request(call: Call) -> str:
    """Return the text of a request, ``Heartbeat`` for one without news."""
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
    return str(call.api)


def describe_response(api: str, response: Any) -> str:
    """Return the text of a response, empty if it changes nothing."""
    if api == "OffsetCommit":
        return "committed"
    if response.error_code:
        return error_name(response.error_code)
    if api == "LeaveGroup":
        return "left"
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
    return "Heartbeat"


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
    """Return the events of a kind of ``KINDS``."""
    found: list[Event] = run_virtual(_run, KINDS[kind], seed=1)
    return found


async def _run(run: Run) -> list[Event]:
    recorder = Recorder()
    async with MemoryCluster(topics={TOPIC: PARTITIONS}) as cluster:
        cluster.produce(TOPIC, [f"order {number}" for number in range(40)])
        for api in APIS:
            cluster.on(api, recorder.observe)
        async with anyio.create_task_group() as tasks:
            first, second = (_member(name, cluster, run.options) for name in "AB")
            first.subscribe([TOPIC], listener=Narrator("A", recorder))
            second.subscribe([TOPIC], listener=Narrator("B", recorder))
            ended = anyio.Event()
            tasks.start_soon(_poll, first, anyio.Event(), recorder)
            if run.change != "joins":
                await anyio.sleep(1)
                tasks.start_soon(_poll, second, ended, recorder)
            await anyio.sleep(START)
            if run.change == "joins":
                recorder.begin()
                tasks.start_soon(_poll, second, ended, recorder)
            elif run.change == "leaves":
                ended.set()
            else:
                recorder.begin()
                recorder.kill("B")
                tasks.start_soon(_note_end_of_session, cluster, recorder)
            await anyio.sleep(DURATION)
            recorder.is_on = False
            tasks.cancel_scope.cancel()
    return trimmed(recorder.events)


async def _note_end_of_session(cluster: MemoryCluster, recorder: Recorder) -> None:
    while len(cluster.group(GROUP).members) > 1:  # noqa: ASYNC110 - the clock is virtual
        await anyio.sleep(LOOK)
    recorder.add("coordinator", "B's session ends", "note")


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


async def _poll(consumer: AsyncKafkaConsumer, ended: anyio.Event, recorder: Recorder) -> None:
    async with consumer:
        while not ended.is_set():
            await consumer.poll(timeout_ms=1000)
        recorder.begin()
