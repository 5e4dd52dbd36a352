"""Members of classic groups, which a probe moves through the states of their group."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

from kohort.protocol import encode
from kohort.protocol.messages import (
    ConsumerProtocolSubscription,
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    OffsetCommitRequest,
    SyncGroupRequest,
    SyncGroupResponse,
)
from tests.conformance.session import Session, wait_for
from tests.conformance.wire import FAR_MS, Connection

MEMBER_ID_REQUIRED = 79
CONSUMER = "consumer"

Protocols = Sequence[tuple[str, bytes]]


def subscription(text: bytes, *topics: str) -> bytes:
    """Return a consumer's subscription with ``text`` as its user data.

    Kafka parses the metadata of groups of this type, and fails on other bytes.
    """
    message = ConsumerProtocolSubscription(topics=list(topics), user_data=text)
    return struct.pack(">h", 1) + encode(message, 1)


@dataclass
class Member:
    """Member with a separate connection. ``generation`` and ``id`` are those of the last response.

    ``protocols`` has name and text of each protocol. The text becomes a subscription to ``topics``.
    """

    session: Session
    group: str
    metadata: bytes = b"m"
    instance: str | None = None
    protocols: Protocols = ()
    topics: Sequence[str] = ()
    session_ms: int = FAR_MS
    rebalance_ms: int = FAR_MS
    version: int = 9
    protocol_type: str = CONSUMER
    id: str = ""
    generation: int = -1
    connection: Connection = field(init=False)

    def __post_init__(self) -> None:
        self.connection = self.session.connect()
        self.protocols = self.protocols or [("range", self.metadata)]

    # Joining

    def join_request(self, member_id: str | None = None) -> JoinGroupRequest:
        return JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=self.session_ms,
            rebalance_timeout_ms=self.rebalance_ms if self.version >= 1 else -1,
            member_id=self.id if member_id is None else member_id,
            group_instance_id=self.instance,
            protocol_type=self.protocol_type,
            protocols=[
                JoinGroupRequest.JoinGroupRequestProtocol(
                    name=name,
                    metadata=subscription(text, *self.topics)
                    if self.protocol_type == CONSUMER
                    else text,
                )
                for name, text in self.protocols
            ],
        )

    def get_id(self) -> None:
        """Request a member id in versions that require one."""
        if self.version >= 4 and self.instance is None and not self.id:
            answer = self.connection.ask(self.join_request(), self.version)
            assert answer.error_code == MEMBER_ID_REQUIRED, answer
            self.id = answer.member_id

    def send_join(self) -> None:
        """Send JoinGroup with the member id and do not wait."""
        self.get_id()
        self.connection.send(self.join_request(), self.version)

    def joined(self) -> JoinGroupResponse:
        """Receive the response to :meth:`send_join` and store its id and generation."""
        answer = self.connection.receive()
        assert isinstance(answer, JoinGroupResponse)
        if answer.error_code == 0:
            self.id, self.generation = answer.member_id, answer.generation_id
        return answer

    def join(self) -> JoinGroupResponse:
        self.send_join()
        return self.joined()

    # Syncing

    def sync_request(
        self, assignments: Sequence[tuple[Member, bytes]] = (), **other: object
    ) -> SyncGroupRequest:
        request = SyncGroupRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.id,
            group_instance_id=self.instance,
            protocol_type=self.protocol_type,
            protocol_name=self.protocols[0][0],
            assignments=[
                SyncGroupRequest.SyncGroupRequestAssignment(
                    member_id=member.id, assignment=assignment
                )
                for member, assignment in assignments
            ],
        )
        for name, value in other.items():
            setattr(request, name, value)
        return request

    def send_sync(self, *assignments: tuple[Member, bytes]) -> None:
        self.connection.send(self.sync_request(assignments), 5)

    def synced(self) -> SyncGroupResponse:
        answer = self.connection.receive()
        assert isinstance(answer, SyncGroupResponse)
        return answer

    def sync(self, *assignments: tuple[Member, bytes]) -> SyncGroupResponse:
        self.send_sync(*assignments)
        return self.synced()

    # Other requests

    def heartbeat(self, connection: Connection | None = None) -> HeartbeatResponse:
        request = HeartbeatRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.id,
            group_instance_id=self.instance,
        )
        return (connection or self.connection).ask(request, 4)

    def leave(self) -> LeaveGroupResponse:
        who = LeaveGroupRequest.MemberIdentity(member_id=self.id, group_instance_id=self.instance)
        return self.session.ask(LeaveGroupRequest(group_id=self.group, members=[who]), 5)

    def commit_request(self, topic: str, offset: int = 1, **other: object) -> OffsetCommitRequest:
        request = commit_request(self.group, topic, offset)
        request.generation_id_or_member_epoch = self.generation
        request.member_id = self.id
        request.group_instance_id = self.instance
        for name, value in other.items():
            setattr(request, name, value)
        return request


def commit_request(
    group: str, topic: str, offset: int = 1, *, metadata: str | None = ""
) -> OffsetCommitRequest:
    """Return a commit for partition 0 without a member and a generation."""
    return OffsetCommitRequest(
        group_id=group,
        topics=[
            OffsetCommitRequest.OffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    OffsetCommitRequest.OffsetCommitRequestPartition(
                        partition_index=0, committed_offset=offset, committed_metadata=metadata
                    )
                ],
            )
        ],
    )


def describe(session: Session, group: str, version: int = 5) -> DescribeGroupsResponse:
    return session.ask(DescribeGroupsRequest(groups=[group]), version)


def wait_for_members(session: Session, group: str, count: int) -> None:
    """Return when the group has ``count`` members, joined or joining."""
    wait_for(
        lambda: len(describe(session, group).groups[0].members) == count,
        f"{group} has {count} members",
    )


def wait_for_state(session: Session, group: str, state: str) -> None:
    """Return when the group is in the state that Kafka calls by that name."""
    wait_for(lambda: describe(session, group).groups[0].group_state == state, f"{group} is {state}")


def complete(*members: Member) -> list[JoinGroupResponse]:
    """Join new members in this order, in generation 1. The first one leads.

    A broker waits only a moment for further members of a new group. When the machine took longer,
    the group is deleted, and they join again.
    """
    answers: list[JoinGroupResponse] = []

    def are_together() -> bool:
        for member in members:
            member.get_id()
        for count, member in enumerate(members, 1):
            member.send_join()
            if count < len(members):
                wait_for_members(member.session, member.group, count)
        first, *others = members
        answers[:] = [first.joined()]
        if len(answers[0].members) < len(members):
            _delete_group(first, others)
            return False
        answers.extend(member.joined() for member in others)
        return True

    wait_for(are_together, "members join within the initial delay")
    return answers


def _delete_group(first: Member, parked: Sequence[Member]) -> None:
    """Remove all members from their group, whose JoinGroup then ends, and delete it."""
    session, group = first.session, first.group
    wait_for_members(session, group, 1 + len(parked))
    present = [
        LeaveGroupRequest.MemberIdentity(
            member_id=member.member_id, group_instance_id=member.group_instance_id
        )
        for member in describe(session, group).groups[0].members
    ]
    session.ask(LeaveGroupRequest(group_id=group, members=present), 5)
    for member in parked:
        member.joined()
    for member in (first, *parked):
        member.id, member.generation = "", -1
    deleted = session.ask(DeleteGroupsRequest(groups_names=[group]), 2)
    assert deleted.results[0].error_code == 0, deleted


def stabilize(*members: Member) -> list[SyncGroupResponse]:
    """Sync joined members. The first one leads and assigns each member its own metadata."""
    leader, *others = members
    for member in others:
        member.send_sync()
    given = [(member, b"for " + member.metadata) for member in members]
    answers = [leader.sync(*given)]
    return answers + [member.synced() for member in others]


def stable(*members: Member) -> None:
    """Create a stable group of new members in generation 1."""
    complete(*members)
    for answer in stabilize(*members):
        assert answer.error_code == 0, answer


def pair(session: Session, group: str, **options: object) -> tuple[Member, Member]:
    """Return two members that are not in the group yet."""
    return (
        Member(session, group, b"a", **options),  # type: ignore[arg-type]  # as Member's own
        Member(session, group, b"b", **options),  # type: ignore[arg-type]  # as Member's own
    )
