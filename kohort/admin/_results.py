"""The values that admin clients return."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Self, TypeVar

from kohort.errors import KafkaError
from kohort.types import NamedTuple, TopicPartition

K = TypeVar("K")
V = TypeVar("V")


class AdminResults(Mapping[K, V]):
    """Results of a call by resource, with an error for each resource that failed.

    The mapping has the resources that succeeded. ``results[key]`` of a failed resource raises its
    error. ``errors`` has all errors, and :meth:`raise_errors` raises the first one.
    """

    __slots__ = ("_values", "errors")

    def __init__(self, values: Mapping[K, V], errors: Mapping[K, KafkaError]) -> None:
        self._values: Mapping[K, V] = MappingProxyType(dict(values))
        self.errors: Mapping[K, KafkaError] = MappingProxyType(dict(errors))

    def __getitem__(self, key: K) -> V:
        if key in self.errors:
            raise self.errors[key]
        return self._values[key]

    def __iter__(self) -> Iterator[K]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, key: object) -> bool:
        return key in self._values

    def raise_errors(self) -> Self:
        """Raise the first error, or return these results if no resource failed."""
        for error in self.errors.values():
            raise error
        return self

    def __repr__(self) -> str:
        return f"{type(self).__name__}({dict(self._values)!r}, errors={dict(self.errors)!r})"


class OffsetSpec(IntEnum):
    """Offset of a log to look up in place of a timestamp."""

    LATEST = -1
    """The offset after the last record, or the last stable offset with read_committed."""
    EARLIEST = -2
    """The first offset of the log."""
    MAX_TIMESTAMP = -3
    """The offset of the record with the largest timestamp. Needs Kafka 3.0."""
    EARLIEST_LOCAL = -4
    """The first offset that is not only in tiered storage. Needs Kafka 3.4."""
    LATEST_TIERED = -5
    """The last offset in tiered storage. Needs Kafka 3.9."""


class GroupListing(NamedTuple):
    """Group in the list of a cluster."""

    group_id: str
    type: str
    """``classic``, ``consumer``, ``share`` or ``streams``."""
    state: str
    """State by Kafka's name such as ``Stable``, or empty for brokers before Kafka 2.6."""
    protocol_type: str
    """``consumer`` for consumers. A classic group of another client has its own name here."""
    coordinator: int
    """Id of the broker that coordinates the group."""


class GroupListings(tuple[GroupListing, ...]):
    """Groups of a cluster in the order of their names.

    ``errors`` has the error of each broker that did not return its groups, by its id.
    """

    errors: Mapping[int, KafkaError]

    def __new__(
        cls, groups: Iterable[GroupListing], errors: Mapping[int, KafkaError] = MappingProxyType({})
    ) -> Self:
        made = super().__new__(cls, groups)
        made.errors = MappingProxyType(dict(errors))
        return made

    def raise_errors(self) -> Self:
        """Raise the first error, or return these groups if all brokers responded."""
        for error in self.errors.values():
            raise error
        return self


class MemberDescription(NamedTuple):
    """Member of a group, with the partitions that it owns."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    host: str
    partitions: tuple[TopicPartition, ...]
    """Partitions of the member, sorted. Those of a classic member are its assignment.

    Members of a share group may have the same partition.
    """
    target: tuple[TopicPartition, ...] | None = None
    """Partitions that the coordinator wants it to own. None in classic and share groups."""
    topics: tuple[str, ...] = ()
    """Names of the topics that it subscribes to."""
    pattern: str | None = None
    """Pattern that the brokers evaluate, or None."""
    epoch: int | None = None
    """Member epoch. None in a classic group."""
    rack: str | None = None


class GroupDescription(NamedTuple):
    """State and members of a group."""

    group_id: str
    type: str
    """``classic``, ``consumer`` for the consumer protocol (KIP-848), or ``share`` (KIP-932)."""
    state: str
    """State by Kafka's name, such as ``Stable`` or ``Empty``."""
    protocol_type: str
    assignor: str
    """Name of the assignor. Empty if a classic group is not stable."""
    coordinator: int
    """Id of the broker that coordinates the group."""
    members: tuple[MemberDescription, ...]
    epoch: int | None = None
    """Group epoch. None in a classic group."""
    assignment_epoch: int | None = None
    """Epoch of the latest assignment. None in a classic group."""

    def owners(self) -> dict[TopicPartition, MemberDescription]:
        """Return the member that owns each partition. Members of a share group own none."""
        if self.type == "share":
            return {}
        return {tp: member for member in self.members for tp in member.partitions}


class ShareOffset(NamedTuple):
    """Progress of a share group in a partition, as its brokers have stored it."""

    start: int | None
    """First offset that is not done, or None before the group's first acknowledgement.

    It is one write behind the leader, so records after it may be done. :attr:`lag` has the rest.
    """
    lag: int | None
    """Records that are not done. None if it is unknown, as it is before Kafka 4.3."""
    leader_epoch: int
