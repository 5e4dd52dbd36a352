"""Events of a simulation: one ordered list, from which the invariants are checked.

An event renders to one line without anything that could differ between two runs of a seed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import TypeVar

import anyio

from kohort.types import TopicPartition

E = TypeVar("E", bound="Event")

Partitions = frozenset[TopicPartition]


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One event. ``at`` is its virtual time in seconds. ``who`` is the life of a member, "" for the
    world.
    """

    at: float = 0.0
    who: str = ""

    def __str__(self) -> str:
        values = [
            f"{field.name}={_text(getattr(self, field.name))}"
            for field in fields(self)
            if field.name not in ("at", "who")
        ]
        return " ".join([f"{self.at:11.6f}", self.who or "-", type(self).__name__, *values])


# --- the members, as their own code sees it -----------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Started(Event):
    """A consumer is created and about to join."""

    topics: frozenset[str]
    settings: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscribed(Event):
    """The member subscribes to other topics."""

    topics: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Assigned(Event):
    """on_partitions_assigned was called."""

    partitions: Partitions


@dataclass(frozen=True, slots=True, kw_only=True)
class Revoking(Event):
    """on_partitions_revoked was called."""

    partitions: Partitions


@dataclass(frozen=True, slots=True, kw_only=True)
class Revoked(Event):
    """on_partitions_revoked returned."""

    partitions: Partitions


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost(Event):
    """on_partitions_lost was called."""

    partitions: Partitions


@dataclass(frozen=True, slots=True, kw_only=True)
class CallbackBegan(Event):
    """A method of the listener was called."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallbackEnded(Event):
    """A method of the listener returned or was cancelled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivered(Event):
    """A poll returned these records of one partition."""

    partition: TopicPartition
    offsets: tuple[int, ...]
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Processed(Event):
    """The member's code has processed these records."""

    partition: TopicPartition
    offsets: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed(Event):
    """commit() returned."""

    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed(Event):
    """A call raised an error of kohort's."""

    call: str
    error: str
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Broke(Event):
    """A call raised an error that no call may raise."""

    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopping(Event):
    """The member leaves its ``async with`` block."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped(Event):
    """The member has left its block."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Crashed(Event):
    """The member has crashed. Whatever still runs of it is cut off from the cluster."""


# --- the cluster --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Produced(Event):
    """A record is in the log."""

    partition: TopicPartition
    offset: int
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Recreated(Event):
    """A topic was deleted and created again, as the ``number``-th with its name."""

    topic: str
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LinesSlowed(Event):
    """From now on each connection of a member delivers this number of bytes per second."""

    rate: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchSent(Event):
    """A distant member sends a fetch over a connection to a broker.

    ``requests`` has the partitions with the epochs of their positions. ``unassigned`` has those
    that the member is not assigned.
    """

    node: int
    connection: str
    requests: frozenset[tuple[TopicPartition, int]]
    unassigned: Partitions


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchEnded(Event):
    """The fetch over a connection has returned or failed."""

    node: int
    connection: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Throttled(Event):
    """The response to a fetch has a throttle time."""

    node: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Grown(Event):
    """A topic has this number of partitions from now on."""

    topic: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationStored(Event):
    """The coordinator stored the group. ``assignments`` has (client id, member id, partitions)."""

    generation: int
    assignments: tuple[tuple[str, str, Partitions], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochStored(Event):
    """The coordinator stored the epoch of a group of the consumer protocol."""

    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RebalanceForgotten(Event):
    """A classic rebalance ended without a result, because of a change of the group's protocol.

    Nothing in the stored group says that its assignment is outdated.
    """

    generation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberStored(Event):
    """The coordinator stored the partitions of a member of such a group. ``who`` is its client id.

    ``pending`` are partitions that the member has to revoke. Topics that were recreated have the
    names of :mod:`incarnations <tests.simulation.incarnations>`.
    """

    member_id: str
    epoch: int
    assigned: Partitions
    pending: Partitions


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberRemoved(Event):
    """The coordinator removed a member of such a group. ``who`` is its client id."""

    member_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnedReported(Event):
    """The member sends a heartbeat with its owned partitions."""

    partitions: Partitions


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetReceived(Event):
    """A response to a heartbeat arrived at the member. It has the partitions to own."""

    partitions: Partitions


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetStored(Event):
    """The coordinator stored a committed offset."""

    partition: TopicPartition
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitAccepted(Event):
    """The coordinator accepted a member's commit, a moment after OffsetStored."""

    member_id: str
    generation: int
    offsets: tuple[tuple[TopicPartition, int], ...]


# --- the world ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation(Event):
    """An operation on members or cluster was started.

    ``fault``: it may cause duplicates or rebalances. ``takes_time``: brokers delay responses.
    """

    what: str
    fault: bool
    takes_time: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LoginsFail(Event):
    """Members of a slot ("" for all) may get these errors of logins or of TLS until a time."""

    slot: str
    errors: frozenset[str]
    until: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionFailed(Event):
    """A connection failed to open, or ended. ``lost``: requests were in flight."""

    error: str
    lost: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Stalled(Event):
    """The clock advanced by this time while no task could run."""

    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CorePaused(Event):
    """The tasks of a member's core do not run for this time, or until all faults have ended."""

    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Steady(Event):
    """All members are in the group, before the first operation on it."""

    generation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Healed(Event):
    """All faults have ended, and no operation follows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled(Event):
    """The group is stable with all members in it, and all records are processed. Shares are by
    slot.
    """

    assignments: tuple[tuple[str, Partitions], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NeverSettled(Event):
    """The group did not settle in time. ``why``: the missing conditions."""

    why: str


class EventLog:
    """Events in the order in which they happened."""

    def __init__(self) -> None:
        self._events: list[Event] = []

    def add(self, event: Event) -> None:
        self._events.append(event)

    def __iter__(self) -> Iterator[Event]:
        return iter(self._events)

    def __len__(self) -> int:
        return len(self._events)

    def of(self, kind: type[E]) -> list[E]:
        return [event for event in self._events if isinstance(event, kind)]

    def render(self) -> bytes:
        """Return one line for each event."""
        return "".join(f"{event}\n" for event in self._events).encode()


def now() -> float:
    return anyio.current_time()


def _text(value: object) -> str:
    match value:
        case TopicPartition(topic, partition):
            return f"{topic}-{partition}"
        case frozenset():
            return "{" + ",".join(sorted(_text(item) for item in value)) + "}"
        case tuple() if value and all(isinstance(item, int) for item in value):
            return _offsets([item for item in value if isinstance(item, int)])
        case tuple():
            return "(" + ",".join(_text(item) for item in value) + ")"
        case float():
            return f"{value:.6f}"
        case _:
            return str(value)


def _offsets(offsets: list[int]) -> str:
    whole = list(range(offsets[0], offsets[-1] + 1)) == offsets
    return f"{offsets[0]}..{offsets[-1]}" if whole else ",".join(map(str, offsets))
