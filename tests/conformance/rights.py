"""Responses of each API to a principal with certain rights.

A request goes to Apache Kafka and to the in-process cluster, from a user without rights, and again
with each right that may matter.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from kohort.protocol import Request
from kohort.protocol import messages as m
from tests.conformance.masks import Masks
from tests.conformance.session import READY_S, T0, batch, produce_request
from tests.conformance.wire import Connection, ConnectionClosed

USER = "bob"
NO_ID = bytes(15) + b"\7"
"""Topic id that does not exist."""

PRODUCER = 987_654_321
"""Producer id that does not exist."""

MARKER = "User:marker"
"""Principal of the ACL that shows how far a broker is."""

_FILTER_OF_MARKER: dict[str, Any] = {
    "resource_type_filter": 1,
    "resource_name_filter": None,
    "pattern_type_filter": 1,
    "principal_filter": MARKER,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}

_TYPES = {"TOPIC": 2, "GROUP": 3, "CLUSTER": 4, "TRANSACTIONAL_ID": 5}
_OPERATIONS = {
    "ALL": 2,
    "READ": 3,
    "WRITE": 4,
    "CREATE": 5,
    "DELETE": 6,
    "ALTER": 7,
    "DESCRIBE": 8,
    "CLUSTER_ACTION": 9,
    "DESCRIBE_CONFIGS": 10,
    "ALTER_CONFIGS": 11,
    "IDEMPOTENT_WRITE": 12,
}


class Right(NamedTuple):
    """One ACL of the user."""

    kind: str
    name: str
    operation: str
    pattern: int = 3
    permission: int = 3


@dataclass(frozen=True)
class Side:
    """One of the two clusters: addresses for the super user and the user."""

    admin: Connection
    connect: Callable[[], Connection]
    port: int

    def grant(self, rights: Sequence[Right]) -> None:
        """Give the user these rights and no others."""
        everything = m.DeleteAclsRequest.DeleteAclsFilter(
            resource_type_filter=1,
            resource_name_filter=None,
            pattern_type_filter=1,
            principal_filter=f"User:{USER}",
            host_filter=None,
            operation=1,
            permission_type=1,
        )
        self.admin.ask(m.DeleteAclsRequest(filters=[everything]), 2)
        created = self.admin.ask(
            m.CreateAclsRequest(
                creations=[
                    m.CreateAclsRequest.AclCreation(
                        resource_type=_TYPES[right.kind],
                        resource_name=right.name,
                        resource_pattern_type=right.pattern,
                        principal=f"User:{USER}",
                        host="*",
                        operation=_OPERATIONS[right.operation],
                        permission_type=right.permission,
                    )
                    for right in rights
                ]
            ),
            2,
        )
        assert all(result.error_code == 0 for result in created.results), created
        self._wait_for(rights)

    def wait_for_acls(self) -> None:
        """Return when the broker has all earlier changes of ACLs from the controller.

        The broker takes over changes in their order. So it has all others when it has taken over
        the ACL that is created and deleted here.
        """
        kind: dict[str, Any] = {
            "resource_type": 2,
            "resource_name": "marker",
            "resource_pattern_type": 3,
        }
        entry: dict[str, Any] = {
            "principal": MARKER,
            "host": "*",
            "operation": 3,
            "permission_type": 3,
        }
        creation = m.CreateAclsRequest.AclCreation(**kind, **entry)
        self.admin.ask(m.CreateAclsRequest(creations=[creation]), 2)
        self._wait_for_marker(exists=True)
        marker = m.DeleteAclsRequest.DeleteAclsFilter(**_FILTER_OF_MARKER)
        self.admin.ask(m.DeleteAclsRequest(filters=[marker]), 2)
        self._wait_for_marker(exists=False)

    def _wait_for_marker(self, *, exists: bool) -> None:
        request = m.DescribeAclsRequest(**_FILTER_OF_MARKER)
        deadline = time.monotonic() + READY_S
        while bool(self.admin.ask(request, 2).resources) is not exists:
            assert time.monotonic() < deadline, "the broker does not follow the controller"

    def _wait_for(self, rights: Sequence[Right]) -> None:
        wanted = sorted(
            (_TYPES[r.kind], r.name, r.pattern, _OPERATIONS[r.operation], r.permission)
            for r in rights
        )
        every = m.DescribeAclsRequest(
            resource_type_filter=1,
            resource_name_filter=None,
            pattern_type_filter=1,
            principal_filter=f"User:{USER}",
            host_filter=None,
            operation=1,
            permission_type=1,
        )
        deadline = time.monotonic() + READY_S
        found: list[tuple[int, str, int, int, int]] | None = None
        while found != wanted:
            assert time.monotonic() < deadline, f"{found} instead of {wanted}"
            found = sorted(
                (r.resource_type, r.resource_name, r.pattern_type, a.operation, a.permission_type)
                for r in self.admin.ask(every, 2).resources
                for a in r.acls
            )


def log_in(connection: Connection, user: str, password: str) -> Connection:
    """Log in with PLAIN."""
    answer = connection.ask(m.SaslHandshakeRequest(mechanism="PLAIN"), 1)
    assert answer.error_code == 0, answer
    token = f"\0{user}\0{password}".encode()
    done = connection.ask(m.SaslAuthenticateRequest(auth_bytes=token), 2)
    assert done.error_code == 0, done
    return connection


class Names(NamedTuple):
    """Names that are the same on both sides, and the ids that differ."""

    visible: str
    hidden: str
    group: str
    ids: dict[str, bytes]

    @property
    def token(self) -> str:
        """Part that all names have in common."""
        return self.visible.rpartition(".")[0]

    @property
    def consumers(self) -> str:
        """Consumer group with a member that reads the visible and the hidden topic."""
        return f"{self.group}-consumers"

    @property
    def missing(self) -> str:
        """Topic that does not exist."""
        return f"{self.visible}-missing"

    @property
    def transaction(self) -> str:
        """Transactional id."""
        return f"{self.visible}-transaction"


Asked = tuple[Request[Any], int]


def requests(names: Names) -> Iterator[tuple[str, Asked]]:
    """Yield requests by label, for every API whose response depends on rights."""
    yield from _metadata(names)
    yield from _reading(names)
    yield from _groups(names)
    yield from _producing(names)
    yield from _administration(names)


def _metadata(names: Names) -> Iterator[tuple[str, Asked]]:
    Topic = m.MetadataRequest.MetadataRequestTopic
    for version in (1, 4, 9, 12, 13):
        every = m.MetadataRequest(topics=None, allow_auto_topic_creation=version < 4)
        yield f"Metadata of all {version}", (every, version)
        both = m.MetadataRequest(
            topics=[Topic(name=names.visible), Topic(name=names.hidden)],
            allow_auto_topic_creation=version < 4,
        )
        yield f"Metadata by name {version}", (both, version)
    for creates in (False, True):
        missing = m.MetadataRequest(
            topics=[Topic(name=names.missing)], allow_auto_topic_creation=creates
        )
        yield f"Metadata of a missing topic {creates}", (missing, 12)
    for label, topic_id in (("hidden", names.ids[names.hidden]), ("no", NO_ID)):
        by_id = m.MetadataRequest(topics=[Topic(name=None, topic_id=topic_id)])
        yield f"Metadata by {label} id", (by_id, 12)
    yield "Metadata of none", (m.MetadataRequest(topics=[]), 12)
    operations = m.MetadataRequest(
        topics=[Topic(name=names.visible), Topic(name=names.hidden)],
        include_topic_authorized_operations=True,
        include_cluster_authorized_operations=True,
    )
    yield "Metadata with operations", (operations, 9)
    Described = m.DescribeTopicPartitionsRequest.TopicRequest
    some = [Described(name=each) for each in (names.visible, names.hidden, names.missing)]
    yield "DescribeTopicPartitions", (m.DescribeTopicPartitionsRequest(topics=some), 0)
    yield (
        "DescribeCluster",
        (m.DescribeClusterRequest(include_cluster_authorized_operations=True), 0),
    )
    yield "DescribeClientQuotas", (m.DescribeClientQuotasRequest(), 1)


def _reading(names: Names) -> Iterator[tuple[str, Asked]]:
    Topic, Partition = m.FetchRequest.FetchTopic, m.FetchRequest.FetchPartition

    def fetch(topics: list[Any]) -> m.FetchRequest:
        return m.FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, topics=topics)

    partitions = [Partition(partition=0, partition_max_bytes=1 << 20)]
    three = names.visible, names.hidden, names.missing
    for version in (4, 11, 12):
        by_name = [Topic(topic=name, partitions=partitions) for name in three]
        yield f"Fetch by name {version}", (fetch(by_name), version)
    ids = (names.ids[names.visible], names.ids[names.hidden], NO_ID)
    for version in (13, 18):
        by_id = [Topic(topic_id=each, partitions=partitions) for each in ids]
        yield f"Fetch by id {version}", (fetch(by_id), version)
    Listed = m.ListOffsetsRequest
    listed = Listed(
        topics=[
            Listed.ListOffsetsTopic(
                name=name,
                partitions=[Listed.ListOffsetsPartition(partition_index=0, timestamp=-1)],
            )
            for name in three
        ]
    )
    for version in (1, 7, 10):
        yield f"ListOffsets {version}", (listed, version)
    Epochs = m.OffsetForLeaderEpochRequest
    epochs = Epochs(
        topics=[
            Epochs.OffsetForLeaderTopic(
                topic=name, partitions=[Epochs.OffsetForLeaderPartition(partition=0)]
            )
            for name in three
        ]
    )
    yield "OffsetForLeaderEpoch", (epochs, 4)


def _groups(names: Names) -> Iterator[tuple[str, Asked]]:
    group = names.group
    for version in (0, 2, 3):
        yield f"FindCoordinator {version}", (m.FindCoordinatorRequest(key=group), version)
        if version:
            key = m.FindCoordinatorRequest(key=names.transaction, key_type=1)
            yield f"FindCoordinator of a transaction {version}", (key, version)
    for kind, name in (0, group), (1, names.transaction):
        several = m.FindCoordinatorRequest(key_type=kind, coordinator_keys=[name, name + "2"])
        yield f"FindCoordinator 4 {kind}", (several, 4)
    protocol = m.JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"")
    for version in (0, 4, 5, 6, 7, 9):
        join = m.JoinGroupRequest(
            group_id=group,
            session_timeout_ms=6000,
            rebalance_timeout_ms=6000,
            member_id="m",
            protocol_type="consumer",
            protocols=[protocol],
        )
        yield f"JoinGroup {version}", (join, version)
    sync = m.SyncGroupRequest(group_id=group, generation_id=1, member_id="m")
    yield "SyncGroup 3", (sync, 3)
    named = m.SyncGroupRequest(
        group_id=group,
        generation_id=1,
        member_id="m",
        protocol_type="consumer",
        protocol_name="range",
    )
    yield "SyncGroup 5", (named, 5)
    for version in (0, 4):
        beat = m.HeartbeatRequest(group_id=group, generation_id=1, member_id="m")
        yield f"Heartbeat {version}", (beat, version)
    for version in (1, 4):
        leave = m.LeaveGroupRequest(group_id=group)
        if version < 3:
            leave.member_id = "m"
        else:
            leave.members = [m.LeaveGroupRequest.MemberIdentity(member_id="m")]
        yield f"LeaveGroup {version}", (leave, version)
    yield from _offsets(names)
    for version in (0, 5, 6):
        described = m.DescribeGroupsRequest(
            groups=[group, f"{group}-2"], include_authorized_operations=version >= 3
        )
        yield f"DescribeGroups {version}", (described, version)
    groups = [group, names.consumers, ""]
    for version in (0, 1):
        each = m.ConsumerGroupDescribeRequest(
            group_ids=groups, include_authorized_operations=version == 1
        )
        yield f"ConsumerGroupDescribe {version}", (each, version)
    for label, topics in _subscriptions(names):
        for version in (0, 1):
            stay = m.ConsumerGroupHeartbeatRequest(
                group_id=group, member_id="m", member_epoch=5, subscribed_topic_names=topics
            )
            yield f"ConsumerGroupHeartbeat {version} {label}", (stay, version)
    invalid = m.ConsumerGroupHeartbeatRequest(group_id=group, member_epoch=-7)
    yield "ConsumerGroupHeartbeat invalid", (invalid, 1)
    for version in (0, 5):
        yield f"ListGroups {version}", (m.ListGroupsRequest(), version)
    missing = [f"{group}-2", f"{group}-3"]
    yield "DeleteGroups", (m.DeleteGroupsRequest(groups_names=missing), 2)


def _subscriptions(names: Names) -> Iterator[tuple[str, list[str] | None]]:
    yield "without topics", None
    yield "of one", [names.visible]
    yield "of both", [names.visible, names.hidden]
    yield "of a missing topic", [names.missing]


def _offsets(names: Names) -> Iterator[tuple[str, Asked]]:
    group, three = names.group, (names.visible, names.hidden, names.missing)
    Commit = m.OffsetCommitRequest
    entries = [Commit.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)]
    for version in (2, 8, 10):
        topics = [Commit.OffsetCommitRequestTopic(name=name, partitions=entries) for name in three]
        if version >= 10:
            ids = (names.ids[names.visible], names.ids[names.hidden], NO_ID)
            topics = [
                Commit.OffsetCommitRequestTopic(topic_id=each, partitions=entries) for each in ids
            ]
        commit = Commit(
            group_id=group, generation_id_or_member_epoch=-1, member_id="", topics=topics
        )
        yield f"OffsetCommit {version}", (commit, version)
    Fetch = m.OffsetFetchRequest
    some = [Fetch.OffsetFetchRequestTopic(name=name, partition_indexes=[0]) for name in three]
    for version in (1, 7):
        yield f"OffsetFetch {version}", (Fetch(group_id=group, topics=some), version)
    yield "OffsetFetch of all 7", (Fetch(group_id=group, topics=None), 7)
    Topics, Group = Fetch.OffsetFetchRequestTopics, Fetch.OffsetFetchRequestGroup
    listed = [Topics(name=name, partition_indexes=[0]) for name in three]
    yield "OffsetFetch 8", (Fetch(groups=[Group(group_id=group, topics=listed)]), 8)
    yield "OffsetFetch of all 8", (Fetch(groups=[Group(group_id=group, topics=None)]), 8)
    by_id = [
        Topics(topic_id=each, partition_indexes=[0])
        for each in (names.ids[names.visible], names.ids[names.hidden], NO_ID)
    ]
    yield "OffsetFetch 10", (Fetch(groups=[Group(group_id=group, topics=by_id)]), 10)
    Delete = m.OffsetDeleteRequest
    deleted = [
        Delete.OffsetDeleteRequestTopic(
            name=name, partitions=[Delete.OffsetDeleteRequestPartition(partition_index=0)]
        )
        for name in (names.hidden, names.missing)
    ]
    yield "OffsetDelete", (Delete(group_id=group, topics=deleted), 0)


def _producing(names: Names) -> Iterator[tuple[str, Asked]]:
    for name in names.visible, names.hidden, names.missing:
        request = produce_request(name, batch(b"x", timestamps=[T0]))
        yield f"Produce to {name.rpartition('-')[2]}", (request, 9)
    by_id = produce_request("", batch(b"x"), topic_id=names.ids[names.hidden])
    yield "Produce by id", (by_id, 13)
    transactional = produce_request(
        names.visible, batch(b"x", producer_id=PRODUCER, producer_epoch=0, transactional=True)
    )
    transactional.transactional_id = names.transaction
    yield "Produce in a transaction", (transactional, 9)
    silent = produce_request(names.hidden, batch(b"x"), acks=0)
    yield "Produce without acks", (silent, 9)
    for version in (0, 4):
        for label, transaction in (("", None), (" x", names.transaction), (" empty", "")):
            init = m.InitProducerIdRequest(
                transactional_id=transaction, transaction_timeout_ms=1000
            )
            yield f"InitProducerId {version}{label}", (init, version)
    Add = m.AddPartitionsToTxnRequest
    places = [
        Add.AddPartitionsToTxnTopic(name=name, partitions=[0])
        for name in (names.visible, names.hidden, names.missing)
    ]
    add = Add(
        v3_and_below_transactional_id=names.transaction,
        v3_and_below_producer_id=PRODUCER,
        v3_and_below_topics=places,
    )
    yield "AddPartitionsToTxn 3", (add, 3)
    brokers = Add(
        transactions=[
            Add.AddPartitionsToTxnTransaction(
                transactional_id=names.transaction, producer_id=PRODUCER, topics=places
            )
        ]
    )
    yield "AddPartitionsToTxn 4", (brokers, 4)
    offsets = m.AddOffsetsToTxnRequest(
        transactional_id=names.transaction, producer_id=PRODUCER, group_id=names.group
    )
    yield "AddOffsetsToTxn", (offsets, 3)
    end = m.EndTxnRequest(transactional_id=names.transaction, producer_id=PRODUCER, committed=True)
    yield "EndTxn", (end, 3)
    Commit = m.TxnOffsetCommitRequest
    commit = Commit(
        transactional_id=names.transaction,
        group_id=names.group,
        producer_id=PRODUCER,
        topics=[
            Commit.TxnOffsetCommitRequestTopic(
                name=name,
                partitions=[
                    Commit.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=1)
                ],
            )
            for name in (names.visible, names.hidden, names.missing)
        ],
    )
    yield "TxnOffsetCommit", (commit, 3)
    Markers = m.WriteTxnMarkersRequest
    markers = Markers(
        markers=[
            Markers.WritableTxnMarker(
                producer_id=PRODUCER,
                topics=[Markers.WritableTxnMarkerTopic(name=names.missing, partition_indexes=[0])],
            )
        ]
    )
    yield "WriteTxnMarkers", (markers, 1)
    described = m.DescribeTransactionsRequest(transactional_ids=[names.transaction])
    yield "DescribeTransactions", (described, 0)
    yield "ListTransactions", (m.ListTransactionsRequest(), 0)


def _administration(names: Names) -> Iterator[tuple[str, Asked]]:
    three = names.visible, names.hidden, names.missing
    New = m.CreateTopicsRequest.CreatableTopic
    for version in (2, 7):
        create = m.CreateTopicsRequest(
            topics=[New(name=names.missing, num_partitions=1, replication_factor=1)],
            timeout_ms=5000,
            validate_only=True,
        )
        yield f"CreateTopics {version}", (create, version)
    for version in (1, 6):
        delete = m.DeleteTopicsRequest(timeout_ms=5000)
        if version < 6:
            delete.topic_names = [names.hidden, names.missing]
        else:
            State = m.DeleteTopicsRequest.DeleteTopicState
            delete.topics = [
                State(name=names.hidden),
                State(name=names.missing),
                State(name=None, topic_id=NO_ID),
            ]
        yield f"DeleteTopics {version}", (delete, version)
    State = m.DeleteTopicsRequest.DeleteTopicState
    by_id = [State(name=None, topic_id=names.ids[names.visible])]
    yield "DeleteTopics by id", (m.DeleteTopicsRequest(topics=by_id, timeout_ms=5000), 6)
    grown = [m.CreatePartitionsRequest.CreatePartitionsTopic(name=name, count=1) for name in three]
    request = m.CreatePartitionsRequest(topics=grown, timeout_ms=5000, validate_only=True)
    yield "CreatePartitions", (request, 2)
    Records = m.DeleteRecordsRequest
    records = Records(
        topics=[
            Records.DeleteRecordsTopic(
                name=name,
                partitions=[Records.DeleteRecordsPartition(partition_index=0, offset=0)],
            )
            for name in three
        ],
        timeout_ms=5000,
    )
    yield "DeleteRecords", (records, 2)
    Configs = m.DescribeConfigsRequest.DescribeConfigsResource
    for label, kind, name in (
        ("topic", 2, names.hidden),
        ("missing topic", 2, names.missing),
        ("broker", 4, "1"),
        ("group", 32, names.group),
    ):
        key = {2: "retention.ms", 4: "num.partitions", 32: "consumer.session.timeout.ms"}[kind]
        asked = [Configs(resource_type=kind, resource_name=name, configuration_keys=[key])]
        yield f"DescribeConfigs {label}", (m.DescribeConfigsRequest(resources=asked), 4)
        Alter = m.AlterConfigsRequest.AlterConfigsResource
        alter = m.AlterConfigsRequest(
            resources=[Alter(resource_type=kind, resource_name=name)], validate_only=True
        )
        if kind != 4:
            yield f"AlterConfigs {label}", (alter, 2)
        Incremental = m.IncrementalAlterConfigsRequest.AlterConfigsResource
        change = m.IncrementalAlterConfigsRequest(
            resources=[Incremental(resource_type=kind, resource_name=name)], validate_only=True
        )
        if kind != 4:
            yield f"IncrementalAlterConfigs {label}", (change, 1)
    Producers = m.DescribeProducersRequest
    producers = Producers(
        topics=[Producers.TopicRequest(name=name, partition_indexes=[0]) for name in three]
    )
    yield "DescribeProducers", (producers, 0)
    yield "DescribeLogDirs", (m.DescribeLogDirsRequest(topics=[]), 4)
    Move = m.AlterReplicaLogDirsRequest
    move = Move(
        dirs=[
            Move.AlterReplicaLogDir(
                path="/nowhere",
                topics=[Move.AlterReplicaLogDirTopic(name=names.missing, partitions=[0])],
            )
        ]
    )
    yield "AlterReplicaLogDirs", (move, 2)
    yield (
        "AlterPartitionReassignments",
        (m.AlterPartitionReassignmentsRequest(timeout_ms=1000, topics=[]), 0),
    )
    yield (
        "ListPartitionReassignments",
        (m.ListPartitionReassignmentsRequest(timeout_ms=1000, topics=[]), 0),
    )
    yield "ElectLeaders", (m.ElectLeadersRequest(topic_partitions=[], timeout_ms=1000), 2)
    Quorum = m.DescribeQuorumRequest
    part = Quorum.PartitionData(partition_index=1)
    quorum = Quorum(topics=[Quorum.TopicData(topic_name="t", partitions=[part])])
    yield "DescribeQuorum", (quorum, 1)
    kinds = m.ListConfigResourcesRequest(resource_types=[4])
    yield "ListConfigResources", (kinds, 1)
    yield from _acls(names)


def _acls(names: Names) -> Iterator[tuple[str, Asked]]:
    nobody = "User:nobody"
    describe = m.DescribeAclsRequest(
        resource_type_filter=2,
        resource_name_filter=names.hidden,
        pattern_type_filter=3,
        principal_filter=nobody,
        host_filter=None,
        operation=1,
        permission_type=1,
    )
    New = m.CreateAclsRequest.AclCreation

    def new(**values: Any) -> Any:
        given = {
            "resource_type": 2,
            "resource_name": names.hidden,
            "principal": nobody,
            "host": "*",
            "operation": 3,
            "permission_type": 3,
        }
        return New(**{**given, **values})

    creations = {
        "": [new(), new(resource_type=7, resource_name=nobody, operation=13), new()],
        " without a type of principal": [new(principal="nobody")],
        " without a name": [new(resource_name="")],
        " of a cluster with a name": [new(resource_type=4)],
        " with pattern MATCH": [new(resource_pattern_type=2)],
        " with pattern ANY": [new(resource_pattern_type=1)],
        " with operation ANY": [new(operation=1)],
        " with permission ANY": [new(permission_type=1)],
        " of any resource": [new(resource_type=1)],
        " with an unknown operation": [new(operation=99)],
        " with an unknown resource": [new(resource_type=99)],
        " with an empty host": [new(host="", operation=4)],
        " with an operation of other resources": [new(operation=12)],
        " good and bad": [new(operation=5), new(principal="nobody")],
    }
    delete = m.DeleteAclsRequest(
        filters=[
            m.DeleteAclsRequest.DeleteAclsFilter(
                resource_type_filter=kind,
                resource_name_filter=name,
                pattern_type_filter=pattern,
                principal_filter=nobody,
                host_filter=None,
                operation=1,
                permission_type=1,
            )
            for kind, name, pattern in ((2, names.hidden, 2), (7, nobody, 3), (3, "x", 3))
        ]
    )
    for label, each in creations.items():
        yield f"CreateAcls{label}", (m.CreateAclsRequest(creations=each), 3)
    yield "DescribeAcls", (describe, 3)
    yield "DeleteAcls", (delete, 3)
    yield "DescribeAcls after it", (describe, 1)
    for field in "resource_type_filter", "pattern_type_filter", "operation", "permission_type":
        codes: dict[str, Any] = {
            "resource_type_filter": 1,
            "pattern_type_filter": 1,
            "operation": 1,
            "permission_type": 1,
            field: 99,
        }
        unknown = m.DescribeAclsRequest(resource_name_filter=None, principal_filter=nobody, **codes)
        yield f"DescribeAcls with an unknown {field}", (unknown, 2)
    wrong = m.DeleteAclsRequest.DeleteAclsFilter(
        resource_type_filter=2, pattern_type_filter=1, operation=99, permission_type=1
    )
    yield "DeleteAcls with an unknown operation", (m.DeleteAclsRequest(filters=[wrong]), 2)


def settings(names: Names) -> dict[str, list[Right]]:
    """Return rights of the user, by a label."""
    visible = Right("TOPIC", names.visible, "DESCRIBE")
    describe_group = Right("GROUP", names.group, "DESCRIBE")
    read_group = Right("GROUP", names.group, "READ")
    return {
        "nothing": [],
        "topic DESCRIBE": [visible],
        "topic READ": [Right("TOPIC", names.visible, "READ")],
        "topic WRITE": [Right("TOPIC", names.visible, "WRITE")],
        "prefix READ": [Right("TOPIC", names.visible[:-1], "READ", pattern=4)],
        "all topics READ, one denied": [
            Right("TOPIC", "*", "READ"),
            Right("TOPIC", names.hidden, "READ", permission=2),
        ],
        "topic CREATE": [Right("TOPIC", names.missing, "CREATE")],
        "topic CREATE and DESCRIBE_CONFIGS": [
            Right("TOPIC", names.missing, "CREATE"),
            Right("TOPIC", names.missing, "DESCRIBE_CONFIGS"),
        ],
        "topic DELETE of a missing one": [Right("TOPIC", names.missing, "DELETE")],
        "topic ALTER": [Right("TOPIC", names.visible, "ALTER")],
        "topic ALTER_CONFIGS": [Right("TOPIC", names.hidden, "ALTER_CONFIGS")],
        "topic DESCRIBE_CONFIGS": [Right("TOPIC", names.hidden, "DESCRIBE_CONFIGS")],
        "group DESCRIBE": [describe_group],
        "group READ": [read_group],
        "group READ, topic DESCRIBE": [read_group, visible],
        "group READ, topic READ": [read_group, Right("TOPIC", names.visible, "READ")],
        "consumer group DESCRIBE": [Right("GROUP", names.consumers, "DESCRIBE")],
        "consumer group DESCRIBE, topics DESCRIBE": [
            Right("GROUP", names.consumers, "DESCRIBE"),
            visible,
            Right("TOPIC", names.hidden, "DESCRIBE"),
        ],
        "consumer group DESCRIBE, topic DESCRIBE": [
            Right("GROUP", names.consumers, "DESCRIBE"),
            visible,
        ],
        "group DESCRIBE_CONFIGS": [Right("GROUP", names.group, "DESCRIBE_CONFIGS")],
        "group ALTER_CONFIGS": [Right("GROUP", names.group, "ALTER_CONFIGS")],
        "group DELETE": [Right("GROUP", names.group, "DELETE", pattern=4)],
        "transaction DESCRIBE": [Right("TRANSACTIONAL_ID", names.transaction, "DESCRIBE")],
        "transaction WRITE": [Right("TRANSACTIONAL_ID", names.transaction, "WRITE")],
        "transaction and topic WRITE": [
            Right("TRANSACTIONAL_ID", names.transaction, "WRITE"),
            Right("TOPIC", names.visible, "WRITE"),
        ],
        **{
            f"cluster {operation}": [Right("CLUSTER", "kafka-cluster", operation)]
            for operation in (
                "DESCRIBE",
                "ALTER",
                "CREATE",
                "CLUSTER_ACTION",
                "DESCRIBE_CONFIGS",
                "ALTER_CONFIGS",
                "IDEMPOTENT_WRITE",
            )
        },
        "everything denied": [
            Right("CLUSTER", "kafka-cluster", "ALL"),
            Right("TOPIC", "*", "ALL", permission=2),
        ],
    }


_MASKED = {"host", "log_dir", "total_bytes", "usable_bytes"}
_OTHER_CONFIGS = {"message.timestamp.after.max.ms"}
"""Configs that differ between the two clusters by their start."""


_NAMING = ("name", "group_id", "transactional_id")


def _sorted(value: Any, mine: str = "") -> Any:
    """Return a value with sorted lists, because Kafka's order is that of hash tables.

    ``mine`` is part of all names to keep, where a response has everything of the cluster.
    """
    if isinstance(value, dict):
        return {
            key: f"<{key}>" if key in _MASKED else _sorted(item, mine)
            for key, item in value.items()
        }
    if isinstance(value, list):
        return sorted((_sorted(item) for item in value if _is_kept(item, mine)), key=repr)
    return value


def _is_kept(item: Any, mine: str) -> bool:
    if not isinstance(item, dict) or item.get("name") in _OTHER_CONFIGS:
        return not isinstance(item, dict)
    return all(mine in (item.get(key) or mine) for key in _NAMING)


def observe(side: Side, names: Names, asked: Sequence[tuple[str, Asked]]) -> dict[str, Any]:
    """Send the requests as the user and return the responses, or "closed"."""
    seen: dict[str, Any] = {}
    connection = side.connect()
    masks = Masks(side.port)
    for name, topic_id in names.ids.items():
        masks.name_id(topic_id, name)
    masks.name_id(NO_ID, "none")
    for label, (request, version) in asked:
        try:
            if isinstance(request, m.ProduceRequest) and request.acks == 0:
                connection.send(request, version)
                seen[label] = connection.silence()
                if seen[label] == "closed":
                    raise ConnectionClosed
                continue
            lists_everything = "of all" in label or label.startswith("List")
            if isinstance(request, m.DescribeAclsRequest):
                side.wait_for_acls()
            answer = masks.plain(connection.ask(request, version))
            seen[label] = _sorted(answer, names.token if lists_everything else "")
        except ConnectionClosed:
            seen[label] = "closed"
            connection.close()
            connection = side.connect()
    connection.close()
    return seen
