"""One group without a coordinator: requests and responses as calls, and a clock moved by hand."""

from __future__ import annotations

import random
from typing import Any

from kohort.broker.groups import (
    Append,
    Caller,
    ClassicGroup,
    GroupEnvironment,
    GroupLimits,
    OffsetToCommit,
    SendResponse,
)
from kohort.broker.groups._offsets import commit
from kohort.broker.groups.classic._join import join
from kohort.broker.groups.classic._rebalance import (
    complete_join,
    on_initial_delay,
    on_session_timeout,
    on_sync_timeout,
)
from kohort.broker.groups.classic._requests import heartbeat, leave, sync
from kohort.protocol import Response
from kohort.protocol.messages import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    OffsetCommitRequest,
    SyncGroupRequest,
    SyncGroupResponse,
)

PROTOCOLS = (("range", b"M"),)


class Machine:
    """A group, its clock and its responses. ``answers`` has the response to each reply id."""

    def __init__(self, **settings: Any) -> None:
        self.env = GroupEnvironment(GroupLimits(**settings), random.Random(1), epoch_ms=1_000_000)
        self.group = ClassicGroup("g", self.env)
        self.now = 0.0
        self.answers: dict[str, Response] = {}
        self.appended: list[Append] = []
        self._replies = 0

    def settle(self) -> None:
        for key in self.env.timers.pop_due(self.now):
            if key.kind == "session":
                on_session_timeout(self.group, key.member_id, self.now)
            elif key.kind == "initial":
                on_initial_delay(self.group, self.now)
            elif key.kind == "join":
                complete_join(self.group, self.now)
            else:
                on_sync_timeout(self.group, self.now)
        effects, self.env.effects = self.env.effects, []
        for effect in effects:
            if isinstance(effect, SendResponse):
                assert isinstance(effect.parked, str)
                assert effect.parked not in self.answers, "answered twice"
                self.answers[effect.parked] = effect.response
            else:
                self.appended.append(effect)

    def pass_time(self, seconds: float) -> None:
        """Let time pass and run each timer at its time."""
        end = self.now + seconds
        while (deadline := self.env.timers.next_deadline()) is not None and deadline <= end:
            self.now = max(self.now, deadline)
            self.settle()
        self.now = end

    def _reply(self) -> str:
        self._replies += 1
        return f"reply-{self._replies}"

    def send_join(
        self,
        member_id: str = "",
        protocols: tuple[tuple[str, bytes], ...] = PROTOCOLS,
        *,
        instance: str | None = None,
        version: int = 9,
        session_ms: int = 10_000,
        rebalance_ms: int = 30_000,
        protocol_type: str = "consumer",
        client: str = "c",
    ) -> str:
        request = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            member_id=member_id,
            group_instance_id=instance,
            protocol_type=protocol_type,
            protocols=[
                JoinGroupRequest.JoinGroupRequestProtocol(name=name, metadata=metadata)
                for name, metadata in protocols
            ],
        )
        reply = self._reply()
        join(self.group, request, Caller(client, "/h", version), reply, self.now)
        self.settle()
        return reply

    def joined(self, reply: str) -> JoinGroupResponse:
        response = self.answers[reply]
        assert isinstance(response, JoinGroupResponse)
        return response

    def new_member_id(
        self, protocols: tuple[tuple[str, bytes], ...] = PROTOCOLS, *, session_ms: int = 10_000
    ) -> str:
        """Run the first round of a join, which only returns a member id."""
        response = self.joined(self.send_join(protocols=protocols, session_ms=session_ms))
        assert response.error_code == 79
        return response.member_id

    def send_sync(
        self,
        member_id: str,
        generation: int | None = None,
        assignments: dict[str, bytes] | None = None,
        *,
        instance: str | None = None,
        protocol: str | None = None,
        protocol_type: str | None = None,
    ) -> str:
        request = SyncGroupRequest(
            group_id="g",
            generation_id=self.group.generation if generation is None else generation,
            member_id=member_id,
            group_instance_id=instance,
            protocol_type=protocol_type,
            protocol_name=protocol,
            assignments=[
                SyncGroupRequest.SyncGroupRequestAssignment(member_id=name, assignment=assignment)
                for name, assignment in (assignments or {}).items()
            ],
        )
        reply = self._reply()
        sync(self.group, request, reply, self.now)
        self.settle()
        return reply

    def synced(self, reply: str) -> SyncGroupResponse:
        response = self.answers[reply]
        assert isinstance(response, SyncGroupResponse)
        return response

    def beat(
        self, member_id: str, generation: int | None = None, *, instance: str | None = None
    ) -> int:
        request = HeartbeatRequest(
            group_id="g",
            generation_id=self.group.generation if generation is None else generation,
            member_id=member_id,
            group_instance_id=instance,
        )
        error = heartbeat(self.group, request, self.now)
        self.settle()
        return error

    def commit(
        self,
        member_id: str,
        generation: int | None = None,
        *,
        instance: str | None = None,
        metadata: str = "",
    ) -> int:
        request = OffsetCommitRequest(
            group_id="g",
            generation_id_or_member_epoch=(
                self.group.generation if generation is None else generation
            ),
            member_id=member_id,
            group_instance_id=instance,
        )
        offset = OffsetToCommit("t", bytes(16), 0, 5, -1, metadata)
        (error,) = commit(self.group, request, [offset], self.now)
        self.settle()
        return error

    def leave(self, member_id: str = "", *, instance: str | None = None) -> int:
        identity = LeaveGroupRequest.MemberIdentity(member_id=member_id, group_instance_id=instance)
        (response,) = leave(self.group, [identity], self.now)
        self.settle()
        return response.error_code

    def form(self, *protocols: tuple[tuple[str, bytes], ...]) -> list[str]:
        """Return the ids of new members in the same generation, with the leader first."""
        ids = [self.new_member_id(protocols=known) for known in protocols]
        replies = {}
        for member_id, known in zip(ids, protocols, strict=True):
            replies[member_id] = self.send_join(member_id, known)
        if len(ids) > 1:
            # The first member formed a generation without the others, so it has to rejoin.
            first = ids[0]
            replies[first] = self.send_join(first, protocols[0])
        assert {self.joined(reply).generation_id for reply in replies.values()} == {
            self.group.generation
        }
        return ids

    def form_stable(self, size: int) -> list[str]:
        """Return the ids of ``form``. The assignment of each member is its id."""
        ids = self.form(*[PROTOCOLS] * size)
        for member_id in reversed(ids):
            self.send_sync(member_id, assignments={name: name.encode() for name in ids})
        assert self.group.state.value == "Stable"
        return ids
