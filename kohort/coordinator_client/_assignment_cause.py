"""The look-up of the reason why this member has no partitions, or waits for other members."""

from __future__ import annotations

import math
from collections.abc import Collection

import anyio

from kohort.coordinator_client._coordinator import CoordinatorConnection
from kohort.coordinator_client._described_group import (
    AssignmentCause,
    Group,
    cause_in_classic_group,
    cause_in_consumer_group,
    describe_group,
    is_idle,
)
from kohort.coordinator_client.machine._commands import MakeAssignment
from kohort.coordinator_client.machine._events import AssignmentMade
from kohort.coordinator_client.machine._member import NO_GENERATION, NO_PARTITIONS
from kohort.coordinator_client.machine._membership import Membership
from kohort.coordinator_client.machine._state import MemberState
from kohort.errors import KafkaError
from kohort.logs import error_text, get_logger
from kohort.types import TopicPartition

logger = get_logger(__name__)

FIRST_SECONDS = 5.0
"""Seconds from a new epoch or assignment to the look-up, if the member has no partitions.

JoinGroup without a response for this time is logged.
"""
AGAIN_SECONDS = 30.0
"""Seconds between two look-ups while the cause lasts."""

_Key = tuple[str, int, frozenset[TopicPartition]]
"""Member id, generation or epoch, and owned partitions."""


class CauseLookup:
    """The cause, which the coordinator or the leader of a classic group knows.

    A member of a consumer group does not learn which partitions others hold that it is to get. So
    after it was without partitions, the group is described until the member has all of them. A
    member that got partitions by its join needs no look-up.
    """

    def __init__(
        self, coordinator: CoordinatorConnection, group_id: str, request_timeout: float
    ) -> None:
        self._coordinator = coordinator
        self._group_id = group_id
        self._request_timeout = request_timeout
        self._key: _Key = "", NO_GENERATION, NO_PARTITIONS
        self._is_stable = self._uses_epochs = self._is_waiting = self._is_in_flight = False
        self._due = self._join_due = math.inf
        self._join_token = -1
        self._cause: AssignmentCause | None = None
        self._logged = ""

    @property
    def cause(self) -> AssignmentCause | None:
        """The cause for the assignment that the member has now, or None if it is unknown."""
        return self._cause if self._is_stable else None

    @property
    def deadline(self) -> float:
        """The time of the next look-up, or of the line about JoinGroup."""
        return min(self._join_due, self._look_up_due)

    @property
    def _look_up_due(self) -> float:
        may_send = self._is_stable and self._uses_epochs and self._is_waiting
        return self._due if may_send and not self._is_in_flight else math.inf

    def note(self, membership: Membership, now: float) -> None:
        """Note the state of the membership. Called after events."""
        before, self._key = self._key, _key_of(membership)
        self._uses_epochs = membership.uses_epochs
        self._is_stable = membership.state is MemberState.STABLE
        if self._key != before:
            # A classic leader knows the cause before it gets its assignment.
            if self._uses_epochs or self._key[:2] != before[:2] or membership.owned:
                self._cause = None
            if self._key[0] != before[0]:
                self._is_waiting, self._logged = False, ""
            self._due = now + FIRST_SECONDS
        if self._is_stable and not membership.owned:
            self._is_waiting = True
            self._log()
        elif not self._uses_epochs:
            self._logged = ""

    def note_made(self, command: MakeAssignment, event: AssignmentMade, member_id: str) -> None:
        """Note the assignment that this member made as the leader of a classic group."""
        self._cause = cause_in_classic_group(
            command.members, event.assignments, event.topics, member_id, command.protocol
        )

    async def is_idle(self, partitions: Collection[TopicPartition]) -> bool:
        """True if the coordinator has assigned all these partitions to other members."""
        key = self._key
        try:
            group = await self._describe()
        except KafkaError:
            return False
        if not is_idle(group, key[0], partitions):
            return False
        self._note_described(group, key)
        return True

    def begin(self, now: float) -> bool:
        """True if a look-up is due, which :meth:`look_up` must send then."""
        self._log_join(now)
        self._is_in_flight |= (is_due := now >= self._look_up_due)
        return is_due

    def note_join(self, token: int, now: float) -> None:
        """Note that JoinGroup starts. The coordinator delays its response for other members."""
        self._join_token, self._join_due = token, now + FIRST_SECONDS

    def note_joined(self, token: int) -> None:
        """Note that a JoinGroup has ended, also without a response."""
        if token == self._join_token:
            self._join_due = math.inf

    def _log_join(self, now: float) -> None:
        if now < self._join_due:
            return
        is_sent = self._coordinator.node is not None
        self._join_due = math.inf if is_sent else now + FIRST_SECONDS
        if is_sent:
            logger.info(
                "[%s] this member waits for other members to rejoin: JoinGroup has had no response "
                "for %.0f s. Each of them has its max_poll_interval_ms for that",
                self._group_id,
                FIRST_SECONDS,
            )

    async def look_up(self) -> None:
        """Describe the group. After a final error, such as a missing right, wait for an epoch."""
        key, self._due = self._key, anyio.current_time() + AGAIN_SECONDS
        try:
            self._note_described(await self._describe(), key)
        except KafkaError as error:
            if key == self._key and not error.retriable:
                self._due = math.inf
        finally:
            self._is_in_flight = False

    async def _describe(self) -> Group:
        try:
            return await describe_group(self._coordinator, self._group_id, self._request_timeout)
        except KafkaError as error:
            logger.debug("[%s] ConsumerGroupDescribe failed: %s", self._group_id, error_text(error))
            raise

    def _note_described(self, group: Group, key: _Key) -> None:
        if key != self._key:
            return
        member_id, _, owned = key
        self._cause = cause_in_consumer_group(group, member_id, owned)
        if self._cause is None and owned:
            self._is_waiting, self._logged = False, ""
        self._log()

    def _log(self) -> None:
        """Log a cause that differs from the latest one."""
        cause = self.cause
        if cause is not None and cause.text != self._logged:
            self._logged = cause.text
            logger.info("[%s] %s", self._group_id, cause.text)


def _key_of(membership: Membership) -> _Key:
    return membership.member_id, membership.generation, membership.owned
