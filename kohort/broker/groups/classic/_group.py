"""State of a classic group: members, leader and protocol, without requests and time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from kohort.broker.groups._base_group import BaseGroup
from kohort.broker.groups._environment import GroupEnvironment
from kohort.broker.groups._member import Member, Protocols
from kohort.broker.groups.classic._state import TRANSITIONS, GroupState
from kohort.errors import ErrorCode
from kohort.protocol.messages import JoinGroupResponse, SyncGroupResponse


class InitialDelay:
    """Delay before the first generation, which each new member prolongs.

    ``delay_ms`` is ``group.initial.rebalance.delay.ms``. All delays together are at most
    ``limit_ms``, unless the first one is longer.
    """

    def __init__(self, delay_ms: int, limit_ms: int) -> None:
        self._longest_ms = self._current_ms = delay_ms
        self._remaining_ms = max(limit_ms - delay_ms, 0)
        self._has_new_member = False

    def note_member(self) -> None:
        """Record that a member has joined during the current delay."""
        self._has_new_member = True

    def prolong(self) -> int | None:
        """Return the next delay in ms, or None if no member has joined or no time remains."""
        if not (self._has_new_member and self._remaining_ms):
            return None
        self._has_new_member = False
        delay = min(self._longest_ms, self._remaining_ms)
        self._remaining_ms = max(self._remaining_ms - self._current_ms, 0)
        self._current_ms = delay
        return delay


class ClassicGroup(BaseGroup):
    """The group's data and the operations that keep it consistent.

    The other modules of this package have the functions that handle requests.
    """

    type_name = "classic"

    def __init__(
        self, group_id: str, env: GroupEnvironment, state: GroupState = GroupState.EMPTY
    ) -> None:
        super().__init__(group_id, env)
        self.state: GroupState = state
        self.state_timestamp_ms: int = -1
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.leader: str | None = None
        self.members: dict[str, Member] = {}
        self.static_members: dict[str, str] = {}
        """group.instance.id -> member id"""
        self.pending_joins: set[str] = set()
        """Member ids of MEMBER_ID_REQUIRED responses whose clients have not joined yet
        (KIP-394).
        """
        self.pending_syncs: set[str] = set()
        """Members of this generation that have not sent SyncGroup yet."""
        self.initial_delay: InitialDelay | None = None
        """Delay of a rebalance that began in an empty group, None in any other state."""
        self.steering: Callable[[dict[str, bytes]], dict[str, bytes]] | None = None
        """Function that replaces the assignments of the leader, None if the leader decides."""
        self._supported: Counter[str] = Counter()

    def transition(self, state: GroupState, now: float) -> None:
        """Change the state. Only this method does so, and only as TRANSITIONS allows."""
        if state not in TRANSITIONS[self.state]:
            raise AssertionError(f"group {self.group_id!r}: {self.state} -> {state}")
        self.state = state
        self.initial_delay = None
        self.state_timestamp_ms = self.env.wall_ms(now)

    # Timers

    def restart_session(self, member: Member, now: float) -> None:
        """Restart the member's session timeout."""
        self.schedule("session", now, member.session_timeout_ms, member.member_id)

    def start_timers(self, now: float) -> None:
        """Start the sessions of the members of a group that was loaded."""
        for member in self.members.values():
            self.restart_session(member, now)

    def stop_timers(self) -> None:
        """Cancel all timers of a group that is deleted or moves to another broker."""
        for kind in ("initial", "join", "sync"):
            self.cancel(kind)
        for member_id in (*self.members, *self.pending_joins):
            self.cancel("session", member_id)

    # Members

    @property
    def rebalance_timeout_ms(self) -> int:
        """The largest rebalance timeout of the members, 0 without members."""
        return max((m.rebalance_timeout_ms for m in self.members.values()), default=0)

    @property
    def joined_count(self) -> int:
        """Number of members with a parked JoinGroup."""
        return sum(m.parked_join is not None for m in self.members.values())

    @property
    def has_all_joined(self) -> bool:
        return not self.pending_joins and all(
            m.parked_join is not None for m in self.members.values()
        )

    def validate_member(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """Return NONE, FENCED_INSTANCE_ID or UNKNOWN_MEMBER_ID.

        FENCED_INSTANCE_ID means that another member has the group instance id now.
        """
        if instance_id is not None:
            owner = self.static_members.get(instance_id)
            if owner is not None and owner != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
            if owner is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def add(self, member: Member, parked: object | None) -> None:
        """Add a member. ``parked`` is its JoinGroup, None for a member that was read from
        the log.
        """
        if not self.members:
            self.protocol_type = member.protocol_type
        if self.leader is None:
            self.leader = member.member_id
        if member.group_instance_id is not None:
            self.static_members[member.group_instance_id] = member.member_id
        self.members[member.member_id] = member
        self.pending_joins.discard(member.member_id)
        self._supported.update(name for name, _ in member.protocols)
        member.parked_join = parked

    def update(self, member: Member, protocols: Protocols, timeouts: tuple[int, int]) -> None:
        """Replace protocols and timeouts; ``timeouts`` has rebalance and session timeout in ms."""
        self._supported.subtract(name for name, _ in member.protocols)
        member.protocols = protocols
        member.rebalance_timeout_ms, member.session_timeout_ms = timeouts
        self._supported.update(name for name, _ in protocols)

    def park_join(self, member: Member, parked: object) -> None:
        """Park the member's JoinGroup.

        An earlier one gets an error, because the client has stopped to wait for it.
        """
        if member.parked_join is not None:
            error = ErrorCode.REBALANCE_IN_PROGRESS
            self.fail_join(member, member_id=member.member_id, error_code=error)
        member.parked_join = parked

    def remove(self, member_id: str) -> None:
        """Remove a member or a pending id, and fail its parked requests."""
        self.cancel("session", member_id)
        self.pending_joins.discard(member_id)
        self.pending_syncs.discard(member_id)
        member = self.members.pop(member_id, None)
        if member is None:
            return
        self._supported.subtract(name for name, _ in member.protocols)
        if member.group_instance_id is not None:
            del self.static_members[member.group_instance_id]
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        self.fail_join(member, error_code=ErrorCode.UNKNOWN_MEMBER_ID)
        self.complete_sync(member, ErrorCode.UNKNOWN_MEMBER_ID)

    def replace_static(self, instance_id: str, new_id: str) -> Member:
        """Give a static member a new member id, and fence the old one (KIP-345)."""
        old_id = self.static_members[instance_id]
        old = self.members[old_id]
        self.cancel("session", old_id)
        self.pending_syncs.discard(old_id)
        fenced = ErrorCode.FENCED_INSTANCE_ID
        self.fail_join(old, member_id=old_id, error_code=fenced)
        self.complete_sync(old, fenced)
        old.member_id = new_id
        self.members = {m.member_id: m for m in self.members.values()}
        self.static_members[instance_id] = new_id
        if self.leader == old_id:
            self.leader = new_id
        return old

    def elect_joined_leader(self) -> bool:
        """Keep the leader if it has joined, else elect the first joined member.

        Return False if no member has joined.
        """
        if self.leader is None:
            return False
        if self.members[self.leader].parked_join is not None:
            return True
        joined = (m.member_id for m in self.members.values() if m.parked_join is not None)
        elected = next(joined, None)
        if elected is not None:
            self.leader = elected
        return elected is not None

    # Protocols

    def accepts(self, protocol_type: str, protocols: Protocols) -> bool:
        """True if a member with these protocols has one in common with all members."""
        if not protocol_type or not protocols:
            return False
        if not self.members:
            return True
        return self.protocol_type == protocol_type and any(
            self._supported[name] == len(self.members) for name, _ in protocols
        )

    def select_protocol(self) -> str:
        """Return the protocol with the most votes.

        Each member votes for the first of its protocols that all members support.
        """
        total = len(self.members)
        candidates = {name for name, count in self._supported.items() if count == total}
        votes = Counter(member.vote(candidates) for member in self.members.values())
        return max(votes, key=votes.__getitem__)

    def joined_members(self) -> list[JoinGroupResponse.JoinGroupResponseMember]:
        """Return all members with their metadata, by which the leader assigns partitions."""
        protocol = self.protocol or ""
        return [
            JoinGroupResponse.JoinGroupResponseMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                metadata=member.metadata(protocol),
            )
            for member in self.members.values()
        ]

    # Responses

    def generation_response(self, member: Member, *, with_members: bool) -> JoinGroupResponse:
        """Return the current generation as a JoinGroup response."""
        return JoinGroupResponse(
            generation_id=self.generation,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol,
            leader=self.leader or "",
            member_id=member.member_id,
            members=self.joined_members() if with_members else [],
        )

    def respond_join(self, member: Member, response: JoinGroupResponse) -> None:
        parked, member.parked_join = member.parked_join, None
        if parked is not None:
            self.env.respond(parked, response)

    def fail_join(self, member: Member, *, error_code: int, member_id: str = "") -> None:
        """Send an error to the member's parked JoinGroup, if there is one."""
        self.respond_join(member, join_error(error_code, member_id))

    def complete_sync(self, member: Member, error: int = ErrorCode.NONE) -> bool:
        """Respond to the member's parked SyncGroup; return False if there is none."""
        parked, member.parked_sync = member.parked_sync, None
        if parked is None:
            return False
        self.env.respond(parked, self.sync_response(member, error))
        return True

    def sync_response(self, member: Member, error: int = ErrorCode.NONE) -> SyncGroupResponse:
        if error != ErrorCode.NONE:
            return SyncGroupResponse(error_code=error)
        return SyncGroupResponse(
            protocol_type=self.protocol_type,
            protocol_name=self.protocol,
            assignment=member.assignment,
        )


def join_error(error_code: int, member_id: str = "") -> JoinGroupResponse:
    """Return an error response with the member id, if it is known, and nothing else, as in
    Kafka.
    """
    return JoinGroupResponse(error_code=error_code, member_id=member_id, protocol_name=None)
