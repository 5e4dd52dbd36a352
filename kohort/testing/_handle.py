"""Methods of a cluster that tests call, for clusters in a thread and in an event loop."""

from __future__ import annotations

import itertools
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Generic, TypeVar

from kohort.broker._cluster_server import ClusterServer
from kohort.broker.cluster._broker import Broker
from kohort.broker.cluster._cluster_state import ClusterState
from kohort.broker.cluster._topics import Partition, Topic
from kohort.broker.configs._topic_settings import config_error, is_legal_name
from kohort.broker.log import AppendError
from kohort.broker.requests._dispatch import ReceivedRequest
from kohort.broker.security import (
    Acl,
    AclFilter,
    AclOperation,
    AclPermission,
    Authorizer,
    ClientCertificate,
    PatternType,
    member_of,
)
from kohort.errors import (
    ErrorCode,
    IllegalStateError,
    InvalidOptionError,
    KafkaTimeoutError,
    broker_error,
)
from kohort.records import Compression, Record, RecordBatch
from kohort.testing._fault_control import Fault
from kohort.testing._producing import (
    Produceable,
    Produced,
    ProducerRecord,
    Text,
    as_record,
    make_batches,
)
from kohort.testing._snapshots import GroupSnapshot, ShareState, share_state, snapshot
from kohort.types import OffsetAndMetadata, TopicPartition

T = TypeVar("T")


class ClusterHandle(ABC):
    """Methods of every cluster. Subclasses run them in the cluster's event loop.

    The methods for ACLs need an authorizer: ``Security(authorization=Authorization())``. A change
    takes effect with the next request. Without an authorizer the methods raise IllegalStateError.
    ``principal`` is for example ``"User:bob"``, or ``"User:ANONYMOUS"`` for clients that do not log
    in. ``operations`` are Kafka's names such as ``"READ"``. The resource is a ``topic``, a
    ``group`` or a ``transactional_id``, and "*" selects all of them. Without any of these three the
    resource is the cluster. With ``is_prefix`` the given name is a prefix of resource names.
    """

    def __init__(self) -> None:
        self._round_robin: dict[str, Iterator[int]] = {}

    @abstractmethod
    def _call(self, function: Callable[[ClusterServer], T]) -> T:
        """Run a function on the cluster in the cluster's event loop."""

    def _read(self, function: Callable[[ClusterState], T]) -> T:
        """Run a function on the cluster's state in the cluster's event loop."""
        return self._call(lambda server: function(server.state))

    @abstractmethod
    def _await_end(self, broker: Broker) -> None:
        """Wait until a killed broker has closed its port, if the caller can wait."""

    def wall_clock(self) -> float:
        """Return the cluster's time in seconds since the epoch, by the clock of its event loop.

        Use it as ``AsyncKafkaConsumer(..., wall_clock=cluster.wall_clock)``. Clients of OAUTHBEARER
        compare the expiry of tokens with their clock.
        """
        return self._read(lambda state: state.now_ms() / 1000)

    # Brokers

    @property
    def live_brokers(self) -> list[int]:
        """The ids of the running brokers."""
        return self._call(lambda server: sorted(server.brokers))

    @property
    def controller(self) -> int:
        """The id of the controller, -1 if there is none."""
        return self._read(lambda state: state.controller_id)

    def kill_broker(self, node_id: int) -> None:
        """End a broker like a killed process: connections break, and its port refuses new ones.

        Its partitions get other leaders with a higher leader epoch after
        ``broker_session_timeout_ms``. A partition without another replica waits for the broker.
        """
        self._await_end(self._call(lambda server: server.kill_broker(node_id)))

    def start_broker(self, node_id: int) -> None:
        """Start a broker that was killed, on its old port."""
        self._call(lambda server: server.start_broker(node_id))

    def leader(self, topic: str, partition: int = 0) -> int:
        """Return the leader of a partition, -1 if there is none."""
        return self._read(lambda state: _partition(state, topic, partition).leader)

    def leader_epoch(self, topic: str, partition: int = 0) -> int:
        """Return the number of leader changes of a partition."""
        return self._read(lambda state: _partition(state, topic, partition).leader_epoch)

    def move_leader(self, topic: str, partition: int = 0, to: int | None = None) -> int:
        """Make ``to`` or the next replica the leader of a partition, and return its id."""
        return self._read(lambda state: state.move_leader(_partition(state, topic, partition), to))

    def coordinator(self, group_id: str) -> int:
        """Return the broker that coordinates a group, -1 if there is none."""
        return self._read(lambda state: state.group_partition(group_id).leader)

    def move_coordinator(self, group_id: str, to: int | None = None) -> int:
        """Make ``to`` or the next replica the coordinator of a group, and return its id.

        All groups of the same partition of ``__consumer_offsets`` move with it.
        """
        return self._read(lambda state: state.move_leader(state.group_partition(group_id), to))

    # Topics

    @property
    def topics(self) -> dict[str, int]:
        """Name -> number of partitions, without internal topics."""
        return self._read(
            lambda state: {t.name: len(t.partitions) for t in state.topics if not t.is_internal}
        )

    def create_topic(
        self, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None
    ) -> None:
        """Create a topic. ``configs`` has Kafka's names, such as ``message.timestamp.type``."""
        if not is_legal_name(name):
            raise broker_error(
                ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name!r} is not a legal topic name"
            )
        if partitions < 1:
            raise broker_error(
                ErrorCode.INVALID_PARTITIONS, f"partitions={partitions}: must be at least 1"
            )
        for key, value in (configs or {}).items():
            if (problem := config_error(key, value)) is not None:
                raise broker_error(ErrorCode.INVALID_CONFIG, problem)

        def create(server: ClusterServer) -> None:
            if server.state.topics.get(name) is not None:
                raise broker_error(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {name!r} exists already")
            server.state.create_topic(name, partitions, configs=configs)

        self._call(create)

    def add_partitions(self, topic: str, total: int) -> None:
        """Increase the partitions of a topic to ``total``."""

        def grow(server: ClusterServer) -> None:
            found = _topic(server.state, topic)
            if total <= len(found.partitions):
                message = f"topic {topic!r} has {len(found.partitions)} partitions already"
                raise broker_error(ErrorCode.INVALID_PARTITIONS, message)
            server.state.add_partitions(found, total)

        self._call(grow)

    def delete_topic(self, topic: str) -> None:
        """Delete a topic with its records and the offsets that groups have committed for it."""
        self._read(lambda state: state.delete_topic(_topic(state, topic)))

    def compact(self, topic: str) -> None:
        """Compact a topic's logs now, as Kafka's cleaner does in the background.

        The topic's ``cleanup.policy`` must contain "compact", else IllegalStateError is raised. The
        last batch of each partition does not change.
        """
        self._read(lambda state: state.cleaner.compact(_topic(state, topic)))

    def delete_old_records(self, topic: str) -> None:
        """Delete the records that a topic's ``retention.ms`` and ``retention.bytes`` exclude."""
        self._read(lambda state: state.cleaner.delete_old_records(_topic(state, topic)))

    # Records

    def produce(
        self,
        topic: str,
        records: Iterable[Produceable] | bytes | str,
        *,
        key: Text = None,
        partition: int | None = None,
        compression: Compression = Compression.NONE,
    ) -> list[Produced]:
        """Append records; return the partition and offset of each one, in their order.

        A record is a value, a (key, value) pair, a :class:`ProducerRecord` or a
        :class:`kohort.ConsumerRecord`. ``key`` is for values without a key, ``partition`` for
        records without a partition. Without a partition the key decides by murmur2, as in Kafka's
        producer. Records with neither go to the partitions in rotation. An unknown topic is created
        unless ``auto_create_topics`` is False.
        """
        items = [records] if isinstance(records, bytes | str) else list(records)
        count, now_ms = self._read(lambda state: (_partitions(state, topic), state.now_ms()))
        prepared = [as_record(item, key, partition) for item in items]
        for record in prepared:
            if record.partition is not None and not 0 <= record.partition < count:
                message = (
                    f"topic {topic!r} has {count} partitions, none of them is {record.partition}"
                )
                raise broker_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)
        round_robin = self._round_robin.setdefault(topic, itertools.count())
        placed: dict[int, Produced] = {}
        for batch in make_batches(prepared, count, now_ms, round_robin, compression):
            base = self._append(topic, batch.partition, batch.data)
            for delta, index in enumerate(batch.indexes):
                placed[index] = Produced(batch.partition, base + delta)
        return [placed[index] for index in range(len(prepared))]

    def load(self, path: str | os.PathLike[str], topic: str | None = None) -> int:
        """Append the records of a file to the topics that it names; return their number.

        The file is one of ``kohort copy``, in Parquet or Arrow, or it has the lines of ``kohort
        tail --json`` and ends in ``.jsonl``. Records keep their partition, their order, headers and
        times, and get new offsets. Missing topics and partitions are created. ``topic`` is the name
        to use instead. Raises ValueError for another file, OSError, and ImportError without
        pyarrow.
        """
        from kohort.testing._loading import parts_of, record_of

        count = 0
        for rows in parts_of(path):
            by_topic: dict[str, list[ProducerRecord]] = {}
            for row in rows:
                by_topic.setdefault(topic or str(row.get("topic")), []).append(record_of(row))
            for name, records in by_topic.items():
                needed = 1 + max(each.partition or 0 for each in records)
                known = self.topics.get(name)
                if known is None:
                    self.create_topic(name, needed)
                elif known < needed:
                    self.add_partitions(name, needed)
                self.produce(name, records)
                count += len(records)
        return count

    def _append(self, topic: str, partition: int, data: bytes) -> int:
        def append(server: ClusterServer) -> int:
            batch = RecordBatch.of(data)
            try:
                found = _topic(server.state, topic).partitions[partition]
                result = found.append(batch, server.state.now_ms())
            except AppendError as error:
                raise broker_error(error.code, str(error)) from error
            server.state.changed()
            return result.base_offset

        return self._call(append)

    def records(self, topic: str, partition: int | None = None) -> list[Record]:
        """Return the decoded records of a topic by partition and offset, also of internal
        topics.
        """

        def read(server: ClusterServer) -> list[tuple[int, int, list[RecordBatch]]]:
            return [
                (p.index, p.log.start_offset, list(p.log.batches()))
                for p in _topic(server.state, topic).partitions
                if partition is None or p.index == partition
            ]

        return [
            record
            for index, start, batches in self._call(read)
            for batch in batches
            if not batch.header.is_control
            for record in batch.records(topic=topic, partition=index)
            if record.offset >= start
        ]

    # Groups

    def group(self, group_id: str) -> GroupSnapshot:
        """Return the group as its coordinator has it now; an unknown group is "Dead"."""

        def look(server: ClusterServer) -> GroupSnapshot:
            state = server.state
            return snapshot(group_id, state.group(group_id) or state.share_group(group_id))

        return self._call(look)

    def _has_members(self, group_id: str, members: int | None) -> Check[GroupSnapshot | None]:
        """Return the check of ``wait_for_group()``."""

        def find() -> GroupSnapshot | None:
            found = self.group(group_id)
            is_wanted = found.is_stable and len(found.members) == (members or len(found.members))
            is_empty = members == 0 and found.state in ("Empty", "Dead")
            return found if is_empty or (is_wanted and members != 0) else None

        def describe() -> str:
            found = self.group(group_id)
            clients = (
                ", ".join(sorted(member.client_id for member in found.members)) or "no members"
            )
            wanted = "any members" if members is None else f"{members} members"
            return (
                f"group {group_id!r} is {found.state} with {clients}, and not Stable with {wanted},"
            )

        return Check(find, describe)

    def _is_done(self, group_id: str, lag: int) -> Check[bool]:
        """Return the check of ``wait_for_lag()``."""

        def behind() -> dict[TopicPartition, int]:
            offsets = self.committed(group_id)

            def look(server: ClusterServer) -> dict[TopicPartition, int]:
                if server.state.share_group(group_id) is not None:
                    raise IllegalStateError(
                        f"group {group_id!r} is a share group, which commits no offsets. Look at "
                        f"share_state({group_id!r})"
                    )
                return {
                    tp: _partition(server.state, *tp).log.end_offset - at.offset
                    for tp, at in offsets.items()
                }

            return self._call(look)

        def find() -> bool:
            found = behind()
            return bool(found) and sum(found.values()) <= lag

        def describe() -> str:
            found = ", ".join(
                f"{tp.topic}-{tp.partition} by {count}" for tp, count in sorted(behind().items())
            )
            return f"group {group_id!r} is behind in {found or 'all partitions, without a commit,'}"

        return Check(find, describe)

    def committed(self, group_id: str) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return all committed offsets of a group."""

        def look(server: ClusterServer) -> dict[TopicPartition, OffsetAndMetadata]:
            group = server.state.group(group_id)
            return {
                TopicPartition(*topic_partition): OffsetAndMetadata(
                    committed.offset, committed.metadata, committed.leader_epoch
                )
                for topic_partition, committed in (group.offsets.items() if group else ())
            }

        return self._call(look)

    def share_state(self, group_id: str) -> dict[TopicPartition, ShareState]:
        """Return what a share group has in flight, for each partition that it has fetched.

        Without a connection of a member it is the stored state, which has no locks.
        """
        return self._read(
            lambda state: {
                partition: share_state(machine)
                for partition, machine in state.share_router.machines(group_id).items()
            }
        )

    def expire_locks(self, group_id: str) -> None:
        """End all locks of a share group now, as after their time.

        Raises IllegalStateError if there is no share group of this name.
        """

        def expire(state: ClusterState) -> None:
            router = state.share_router
            if state.share_group(group_id) is None and not router.machines(group_id):
                raise IllegalStateError(f"there is no share group {group_id!r}")
            router.expire_locks(group_id)

        self._read(expire)

    @property
    def requests(self) -> list[ReceivedRequest]:
        """The latest 10,000 requests of all brokers, in the order of their arrival."""
        return self._call(lambda server: list(server.dispatcher.requests))

    # Addresses and files for clients

    def bootstrap_servers_of(self, listener: str) -> str:
        """Return the addresses of a listener, by its name, such as ``"SASL_SSL"``.

        InvalidOptionError if there is no such listener.
        """
        return self._call(partial(_addresses, listener))

    @property
    def bootstrap_servers(self) -> str:
        """The first listener's addresses of all brokers, as ``"127.0.0.1:40001,127.0.0.1:40002"``.

        Stopped brokers are included.
        """
        return self._call(lambda server: _addresses(server.state.config.listeners[0].name, server))

    @property
    def ssl_cafile(self) -> str:
        """Path of the PEM file of the CA for clients to trust. It is deleted with the cluster."""
        return self._call(lambda server: server.state.security.certificates.cafile)

    @property
    def ssl_crlfile(self) -> str:
        """Path of a PEM file: the CRL that revokes the certificate of ``"revoked"``."""
        return self._call(lambda server: server.state.security.certificates.crlfile)

    def client_certificate(self, name: str) -> ClientCertificate:
        """Return a new certificate for clients, with the name as its CN.

        The paths are the same for each call with one name, so a call also renews a certificate.
        """
        return self._call(lambda server: server.state.security.certificates.client(name))

    def renew_certificates(self) -> None:
        """Use new certificates of the same CA for new connections."""
        self._call(lambda server: server.state.security.certificates.renew())

    # Users

    def set_password(self, user: str, password: str) -> None:
        """Add a user of PLAIN and SCRAM, or change the password. Existing sessions continue."""
        self._call(lambda server: server.state.security.credentials.set_password(user, password))

    def remove_user(self, user: str) -> None:
        """Remove a user of PLAIN and SCRAM. Existing sessions continue."""
        self._call(lambda server: server.state.security.credentials.remove(user))

    # Rights

    @property
    def acls(self) -> list[Acl]:
        """All ACLs, in the order of their creation."""
        return self._call(lambda server: _authorizer(server).acls)

    def grant(
        self,
        principal: str,
        *operations: str,
        topic: str | None = None,
        group: str | None = None,
        transactional_id: str | None = None,
        is_prefix: bool = False,
        host: str = "*",
    ) -> Fault:
        """Allow operations on a resource. Stopping the result removes the new rights."""
        acls = _acls(
            principal, operations, (topic, group, transactional_id), is_prefix, host, "ALLOW"
        )
        return self._add_acls(acls)

    def deny(
        self,
        principal: str,
        *operations: str,
        topic: str | None = None,
        group: str | None = None,
        transactional_id: str | None = None,
        is_prefix: bool = False,
        host: str = "*",
    ) -> Fault:
        """Deny operations on a resource, even allowed ones. Stopping the result ends the denial."""
        acls = _acls(
            principal, operations, (topic, group, transactional_id), is_prefix, host, "DENY"
        )
        return self._add_acls(acls)

    def revoke(
        self,
        principal: str,
        *operations: str,
        topic: str | None = None,
        group: str | None = None,
        transactional_id: str | None = None,
    ) -> Fault:
        """Remove permissions of a principal. Stopping the result adds them again.

        Without operations all operations are removed. Without a resource the permissions on every
        resource are removed. Literal and prefixed ACLs with the given name are both removed.
        """
        names = {"TOPIC": topic, "GROUP": group, "TRANSACTIONAL_ID": transactional_id}
        kinds = {kind: name for kind, name in names.items() if name is not None}
        wanted = {member_of(AclOperation, operation) for operation in operations}

        def remove(server: ClusterServer) -> list[Acl]:
            authorizer = _authorizer(server)
            selected = AclFilter(
                principal=principal, pattern=PatternType.ANY, permission=AclPermission.ALLOW
            )
            found = [
                acl
                for acl in authorizer.find(selected)
                if (not wanted or acl.operation in wanted)
                and (not kinds or kinds.get(acl.resource_type.name) == acl.resource_name)
            ]
            authorizer.remove(found)
            return found

        removed = self._call(remove)

        def restore() -> None:
            self._call(lambda server: _authorizer(server).add(removed))

        return Fault(restore, lambda: 0)

    def _add_acls(self, acls: list[Acl]) -> Fault:
        added = self._call(lambda server: _authorizer(server).add(acls))

        def remove() -> None:
            self._call(lambda server: _authorizer(server).remove(added))

        return Fault(remove, lambda: 0)


def _topic(state: ClusterState, name: str) -> Topic:
    topic = state.topics.get(name)
    if topic is None:
        raise broker_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
    return topic


def _partition(state: ClusterState, topic: str, index: int) -> Partition:
    found = state.topics.partition(topic, index)
    if found is None:
        message = f"there is no partition {index} of a topic {topic!r}"
        raise broker_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)
    return found


def _partitions(state: ClusterState, name: str) -> int:
    if state.topics.get(name) is None and state.config.auto_create_topics:
        if not is_legal_name(name):
            raise broker_error(
                ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name!r} is not a legal topic name"
            )
        state.create_topic(name)
    return len(_topic(state, name).partitions)


class Check(Generic[T]):
    """A predicate that says what it has found if it does not become true."""

    def __init__(self, find: Callable[[], T], describe: Callable[[], str]) -> None:
        self._find = find
        self.describe = describe

    def __call__(self) -> T:
        return self._find()


def timed_out(predicate: Callable[[], Any], timeout: float) -> KafkaTimeoutError:
    if isinstance(predicate, Check):
        return KafkaTimeoutError(f"{predicate.describe()} after {timeout:g} s")
    name = getattr(predicate, "__qualname__", repr(predicate))
    return KafkaTimeoutError(f"{name} was not true within {timeout:g} s")


def _addresses(listener: str, server: ClusterServer) -> str:
    names = [each.name for each in server.state.config.listeners]
    if listener not in names:
        raise InvalidOptionError(f"listener={listener!r}: choose one of {', '.join(names)}")
    return ",".join(
        f"[{node.host}]:{node.ports[listener]}"
        if ":" in node.host
        else f"{node.host}:{node.ports[listener]}"
        for node in server.state.all_nodes
    )


def _acls(
    principal: str,
    operations: tuple[str, ...],
    names: tuple[str | None, str | None, str | None],
    is_prefix: bool,
    host: str,
    permission: str,
) -> list[Acl]:
    kinds = "TOPIC", "GROUP", "TRANSACTIONAL_ID"
    given = [(kind, name) for kind, name in zip(kinds, names, strict=True) if name is not None]
    if not operations:
        raise InvalidOptionError("no operations: give at least one operation, such as 'READ'")
    if len(given) > 1:
        raise InvalidOptionError(
            "two resources are given: give one of topic, group and transactional_id"
        )
    kind, name = given[0] if given else ("CLUSTER", "kafka-cluster")
    pattern = "PREFIXED" if is_prefix else "LITERAL"
    return [
        Acl(
            principal,
            operation,
            kind,
            name,
            pattern=pattern,
            permission=permission,
            host=host,
        )
        for operation in operations
    ]


def _authorizer(server: ClusterServer) -> Authorizer:
    if server.state.authorizer is None:
        raise IllegalStateError(
            "the cluster has no authorizer. Start it with "
            "security=Security(authorization=Authorization())"
        )
    return server.state.authorizer
