"""Requests to brokers that are not the coordinator of the group, or that still load its records."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

from kohort.broker._hashes import coordinator_partition
from kohort.broker.groups import PARTITIONS
from kohort.errors import ErrorCode
from kohort.protocol import Request, Struct
from kohort.protocol.messages import (
    AlterPartitionReassignmentsRequest,
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
    CreateTopicsRequest,
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    ElectLeadersRequest,
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    MetadataRequest,
    MetadataResponse,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
    SyncGroupRequest,
    TxnOffsetCommitRequest,
)
from tests.conformance.consumers import ConsumerMember, described
from tests.conformance.probe import Observations, probe
from tests.conformance.probes.settings import DELETE, SET, change
from tests.conformance.probes.upgrading import classic
from tests.conformance.session import READY_S, Session
from tests.conformance.wire import Connection

OFFSETS = "__consumer_offsets"
Requests = Iterator[tuple[str, Request[Any], int]]
Wanted = Sequence[tuple[str, Request[Any], int]]


def _topic_on_first(session: Session) -> str:
    """Create a topic on the first broker that both brokers know."""
    name = session.name("t")
    cls = CreateTopicsRequest
    replicas = [cls.CreatableReplicaAssignment(partition_index=0, broker_ids=[1])]
    topic = cls.CreatableTopic(
        name=name, num_partitions=-1, replication_factor=-1, assignments=replicas
    )
    session.ask(cls(timeout_ms=20_000, topics=[topic]), 7)
    for connection in (session.main, session.connect_to_second()):
        asked = MetadataRequest(
            topics=[MetadataRequest.MetadataRequestTopic(name=name)],
            allow_auto_topic_creation=False,
        )
        deadline = time.monotonic() + READY_S
        while connection.ask(asked, 12).topics[0].error_code:
            assert time.monotonic() < deadline
            time.sleep(0.01)
    return name


def _consumer_requests(group: str, topic: str) -> Requests:
    """Yield requests with member epochs, each with a label and a version."""
    cls = ConsumerGroupHeartbeatRequest
    for version in (0, 1):
        join = cls(
            group_id=group,
            member_id="m",
            rebalance_timeout_ms=1000,
            subscribed_topic_names=[topic],
            topic_partitions=[],
        )
        yield f"join {version}", join, version
        for epoch in (5, -1, -2):
            beat = cls(group_id=group, member_id="m", member_epoch=epoch, instance_id="i")
            yield f"heartbeat {epoch} {version}", beat, version
        for label, groups in (("describe", [group]), ("describe two", [group, ""])):
            describe = ConsumerGroupDescribeRequest(group_ids=groups)
            yield f"{label} {version}", describe, version
    invalid = cls(group_id=group, member_id="m", rebalance_timeout_ms=1000)
    yield "invalid join", invalid, 1
    yield "no group", cls(member_id="m", member_epoch=5), 1
    for version in (8, 9):
        yield f"commit {version}", _commit(group, topic, "m", 5), version
    Fetched = OffsetFetchRequest.OffsetFetchRequestGroup
    for version in (8, 9):
        fetched = Fetched(group_id=group, topics=None)
        if version == 9:
            fetched.member_id, fetched.member_epoch = "m", 5
        yield f"fetch {version}", OffsetFetchRequest(groups=[fetched]), version
    Txn = TxnOffsetCommitRequest
    partition = Txn.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    in_transaction = Txn(
        transactional_id="x",
        group_id=group,
        producer_id=1,
        member_id="m",
        generation_id_or_member_epoch=5,
        topics=[Txn.TxnOffsetCommitRequestTopic(name=topic, partitions=[partition])],
    )
    yield "transaction", in_transaction, 3


def _commit(group: str, topic: str, member_id: str, epoch: int) -> OffsetCommitRequest:
    cls = OffsetCommitRequest
    partition = cls.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    return cls(
        group_id=group,
        member_id=member_id,
        generation_id_or_member_epoch=epoch,
        topics=[cls.OffsetCommitRequestTopic(name=topic, partitions=[partition])],
    )


def _other_requests(group: str, topic: str) -> Requests:
    protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range")
    join = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[protocol],
    )
    yield "classic join", join, 9
    sync = SyncGroupRequest(group_id=group, generation_id=1, member_id="m")
    sync.protocol_type, sync.protocol_name = "consumer", "range"
    yield "classic sync", sync, 5
    beat = HeartbeatRequest(group_id=group, generation_id=1, member_id="m")
    yield "classic heartbeat", beat, 4
    leaving = [LeaveGroupRequest.MemberIdentity(member_id="m")]
    yield "leave", LeaveGroupRequest(group_id=group, members=leaving), 5
    yield "classic describe", DescribeGroupsRequest(groups=[group]), 6
    yield "delete", DeleteGroupsRequest(groups_names=[group]), 2
    cls = OffsetDeleteRequest
    partition = cls.OffsetDeleteRequestPartition(partition_index=0)
    topics = [cls.OffsetDeleteRequestTopic(name=topic, partitions=[partition])]
    yield "offset delete", cls(group_id=group, topics=topics), 0


def _coordinator(session: Session, group: str) -> tuple[int, int]:
    """Return the broker that coordinates a group, or -1, and the error."""
    request = FindCoordinatorRequest(coordinator_keys=[group])
    found = session.ask(request, 4).coordinators[0]
    return found.node_id, found.error_code


def _group_of(session: Session, node: int, label: str) -> str:
    """Return the name of a new group that a broker coordinates, once it does."""
    deadline = time.monotonic() + READY_S
    connection = session.main if node == 1 else session.connect_to_second()
    for number in range(1000):
        name = session.name(f"{label}{number}")
        while (found := _coordinator(session, name))[1]:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        if found[0] != node:
            continue
        fetched = OffsetFetchRequest.OffsetFetchRequestGroup(group_id=name, topics=None)
        while connection.ask(OffsetFetchRequest(groups=[fetched]), 8).groups[0].error_code:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        return name
    raise AssertionError(f"no group is on broker {node}")


def _renamed(session: Session, group: str, value: object) -> object:
    """Return an observation without the name of the group, which the clusters choose."""
    return _replaced(session.plain(value), group, "the group")


def _replaced(value: object, old: str, new: str) -> object:
    if isinstance(value, dict):
        return {key: _replaced(each, old, new) for key, each in value.items()}
    if isinstance(value, list):
        return [_replaced(each, old, new) for each in value]
    return new if value == old else value


@probe("8.14", variant="two", cold=True)
def groups_before_the_offsets_topic(session: Session) -> Observations:
    """Send requests before the topic of offsets exists: 16. Its creation starts with a look-up."""
    everything = session.ask(MetadataRequest(topics=None), 12)
    assert OFFSETS not in [topic.name for topic in everything.topics]
    topic = _topic_on_first(session)
    group = session.name("g")
    for requests in (_consumer_requests(group, topic), _other_requests(group, topic)):
        for label, request, version in requests:
            yield label, session.ask(request, version)
    yield "first look-up", session.ask(FindCoordinatorRequest(coordinator_keys=[group]), 4)


@probe("8.14", variant="two")
def requests_to_another_broker(session: Session) -> Observations:
    """Send requests to the broker that is not the coordinator of the group: 16."""
    topic = _topic_on_first(session)
    for node in (1, 2):
        group = _group_of(session, node, "g")
        other = session.connect_to_second() if node == 1 else session.main
        for requests in (_consumer_requests(group, topic), _other_requests(group, topic)):
            for label, request, version in requests:
                answer = other.ask(request, version)
                yield f"of {node}: {label}", _renamed(session, group, answer)


@probe("8.14", variant="two")
def groups_without_a_leader(session: Session) -> Observations:
    """Stop the only broker with a replica of the group's records: 15 by look-up, else 16."""
    topic = _topic_on_first(session)
    group = _group_of(session, 2, "g")
    number = coordinator_partition(group, PARTITIONS)
    _reassign(session, number, 2)
    session.second.stop()
    try:
        deadline = time.monotonic() + READY_S
        while _coordinator(session, group)[1] == 0:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        request = FindCoordinatorRequest(coordinator_keys=[group])
        yield "look-up", _renamed(session, group, session.ask(request, 4))
        old = FindCoordinatorRequest(key=group)
        yield "look-up 3", session.ask(old, 3)
        for requests in (_consumer_requests(group, topic), _other_requests(group, topic)):
            for label, each, version in requests:
                yield label, _renamed(session, group, session.ask(each, version))
    finally:
        session.second.start()
    deadline = time.monotonic() + READY_S
    while (found := _coordinator(session, group))[1]:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    yield "its broker is back", found


@probe("8.14", variant="two")
def groups_with_too_few_replicas(session: Session) -> Observations:
    """Send requests while fewer replicas of the records are in sync than a write requires: 15."""
    topic = _topic_on_first(session)
    labels = ("members", "offsets", "new", "classic")
    members, offsets, new, old = (_group_of(session, 1, label) for label in labels)
    numbers = [coordinator_partition(group, PARTITIONS) for group in (members, offsets, new, old)]
    one = ConsumerMember(session, members, "one", [topic])
    one.join()
    yield "acknowledged before", one.acknowledge().error_code
    commit = _commit(offsets, topic, "", -1)
    yield "committed before", session.ask(commit, 8)
    change(session, OFFSETS, (SET, "min.insync.replicas", "2"))
    session.second.stop()
    try:
        for number in numbers:
            _wait_for_replicas(session, number, [1])
        yield "heartbeat", one.beat()
        yield "commit", session.ask(commit, 8)
        for label, request, version in _other_requests(offsets, topic):
            if label in ("offset delete", "delete"):
                yield label, _renamed(session, offsets, session.ask(request, version))
        yield "join", ConsumerMember(session, new, "new", [topic]).join()
        static = classic(session, "classic", topic, instance="i")
        static.group = old
        yield "classic join", static.connection.ask(static.join_request(), 9).error_code
        leaving = [LeaveGroupRequest.MemberIdentity(member_id="one")]
        yield "leave", session.ask(LeaveGroupRequest(group_id=members, members=leaving), 5)
        for number, group in enumerate((members, offsets, new)):
            yield f"described {labels[number]}", _renamed(session, group, described(session, group))
    finally:
        change(session, OFFSETS, (DELETE, "min.insync.replicas", None))
        session.second.start()
        for number in numbers:
            _wait_for_replicas(session, number, [1, 2])


def _reassign(session: Session, number: int, *replicas: int) -> None:
    """Give a partition of the group's records other replicas, and wait until it has them."""
    cls = AlterPartitionReassignmentsRequest
    partition = cls.ReassignablePartition(partition_index=number, replicas=list(replicas))
    topic = cls.ReassignableTopic(name=OFFSETS, partitions=[partition])
    answer = session.ask(cls(timeout_ms=10_000, topics=[topic]), 0)
    assert answer.responses[0].partitions[0].error_code == 0, answer
    deadline = time.monotonic() + READY_S
    while True:
        found = _records_of(session, number)
        nodes = list(found.replica_nodes)
        if nodes == list(replicas) and sorted(found.isr_nodes) == sorted(replicas):
            return
        assert time.monotonic() < deadline, found
        time.sleep(0.05)


def _records_of(session: Session, number: int) -> MetadataResponse.MetadataResponsePartition:
    """Return the metadata of a partition of the groups' records."""
    asked = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=OFFSETS)])
    return {p.partition_index: p for p in session.ask(asked, 12).topics[0].partitions}[number]


def _wait_for_replicas(session: Session, number: int, in_sync: Sequence[int]) -> None:
    """Return when these replicas are in sync."""
    deadline = time.monotonic() + READY_S
    while sorted(_records_of(session, number).isr_nodes) != list(in_sync):
        assert time.monotonic() < deadline
        time.sleep(0.05)


LOADING = {
    "join 1": "ConsumerGroupHeartbeat",
    "heartbeat 5 0": "ConsumerGroupHeartbeat",
    "heartbeat -1 1": "ConsumerGroupHeartbeat",
    "describe 1": "ConsumerGroupDescribe",
    "commit 9": "OffsetCommit",
    "fetch 8": "OffsetFetch",
    "fetch 9": "OffsetFetch",
    "classic join": "JoinGroup",
    "classic sync": "SyncGroup",
    "leave": "LeaveGroup",
    "classic describe": "DescribeGroups",
    "delete": "DeleteGroups",
    "offset delete": "OffsetDelete",
}
"""Requests that get error 14 while the coordinator loads, with their APIs.

The heartbeat of a classic member gets 0 from Kafka.
"""
COMMITS, ENTRIES, METADATA = 60, 230, "x" * 4000
"""Size of the records that make the loading take some tenths of a second: 1 MB each commit."""
MOVES = 20


@probe("6.10", "8.14", variant="two")
def coordinators_that_load(session: Session) -> Observations:
    """Send requests while the coordinator loads the group: 14."""
    topic = _topic_on_first(session)
    group = _group_of(session, 1, "g")
    requests = [*_consumer_requests(group, topic), *_other_requests(group, topic)]
    wanted = [each for each in requests if each[0] in LOADING]
    seen: dict[str, object] = {}
    if (fail := session.second.fail) is not None:
        for label, request, version in wanted:
            fail(LOADING[label], ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            seen[label] = session.ask(request, version)
    else:
        _fill(session, topic, group)
        for move in range(MOVES):
            connection = _move_coordinator(session, group, to=2 - move % 2)
            _ask_while_it_loads(connection, wanted, seen, group)
            if len(seen) == len(wanted):
                break
    for label, _, _ in wanted:
        yield label, _renamed(session, group, seen.get(label, "never"))


def _fill(session: Session, topic: str, group: str) -> None:
    """Write many records of the group, so that it takes a while to load them."""
    request = _commit(group, topic, "", -1)
    request.topics[0].partitions *= ENTRIES
    request.topics[0].partitions[0].committed_metadata = METADATA
    for _ in range(COMMITS):
        answer = session.ask(request, 8)
        assert answer.topics[0].partitions[0].error_code == 0, answer.topics[0].partitions[0]


def _move_coordinator(session: Session, group: str, to: int) -> Connection:
    """Start an election that makes another broker lead, and return a connection to it."""
    number = coordinator_partition(group, PARTITIONS)
    _reassign(session, number, to, 3 - to)
    connection = session.connect() if to == 1 else session.connect_to_second()
    partition = ElectLeadersRequest.TopicPartitions(topic=OFFSETS, partitions=[number])
    elect = ElectLeadersRequest(election_type=0, topic_partitions=[partition], timeout_ms=10_000)
    session.connect().send(elect, 2)
    return connection


def _ask_while_it_loads(
    connection: Connection, wanted: Wanted, seen: dict[str, object], group: str
) -> None:
    """Send requests until the coordinator has loaded the group, and keep responses with 14."""
    fetched = OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group, topics=[])
    deadline = time.monotonic() + READY_S
    while error := connection.ask(OffsetFetchRequest(groups=[fetched]), 8).groups[0].error_code:
        assert time.monotonic() < deadline
        for label, request, version in wanted:
            if error == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and label not in seen:
                answer = connection.ask(request, version)
                if ErrorCode.COORDINATOR_LOAD_IN_PROGRESS in _error_codes(answer):
                    seen[label] = answer


def _error_codes(value: object) -> set[int]:
    """Return the error codes in a response, at any depth."""
    if isinstance(value, list):
        return {code for each in value for code in _error_codes(each)}
    if not isinstance(value, Struct):
        return set()
    fields = {spec.name: getattr(value, spec.name) for spec in value._fields}
    inner = {code for each in fields.values() for code in _error_codes(each)}
    return inner | ({fields["error_code"]} if "error_code" in fields else set())
