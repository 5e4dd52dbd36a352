"""The requests that remove members from groups."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from kohort.admin._offsets import each_in_group
from kohort.admin._requests import AdminRequests, group_error
from kohort.admin._results import AdminResults
from kohort.coordinator_client import REASON_LENGTH, CoordinatorConnection, RequestForm
from kohort.errors import ErrorCode, KafkaError, broker_error
from kohort.protocol.messages import LeaveGroupRequest
from kohort.transport import escaped
from kohort.types import NamedTuple

if TYPE_CHECKING:
    from kohort.consumer.engine._engine import Engine

_SEVERAL: Final = 3
"""First version of LeaveGroup with a list of members (KIP-345)."""
_REASON: Final = "removed by an admin client"


class MemberToRemove(NamedTuple):
    """Member to remove from a group, by its id, or a static one by its instance id."""

    member_id: str | None = None
    group_instance_id: str | None = None
    reason: str | None = None
    """Reason in the log of the coordinator (KIP-800). Brokers before Kafka 3.2 ignore it."""

    def __str__(self) -> str:
        if self.group_instance_id is None:
            return f"member {escaped(self.member_id or '')!r}"
        return f"the member with instance id {escaped(self.group_instance_id)!r}"


async def remove_group_members(
    engine: Engine, group_id: str, members: Iterable[MemberToRemove], seconds: float
) -> AdminResults[MemberToRemove, None]:
    requests = await AdminRequests.begin(engine, seconds)

    async def remove(
        remaining: Sequence[MemberToRemove], coordinator: CoordinatorConnection
    ) -> dict[MemberToRemove, KafkaError | None]:
        identities = [
            LeaveGroupRequest.MemberIdentity(
                member_id=each.member_id or "",
                group_instance_id=each.group_instance_id,
                reason=(each.reason or _REASON)[:REASON_LENGTH],
            )
            for each in remaining
        ]
        message = LeaveGroupRequest(group_id=group_id, members=identities)
        response = await coordinator.request(
            [RequestForm(message, min_version=_SEVERAL)], timeout=requests.milliseconds / 1000
        )
        if response.error_code:
            raise group_error("the removal of members", group_id, response.error_code, "READ")
        codes = {
            (each.member_id, each.group_instance_id): each.error_code for each in response.members
        }
        missing = ErrorCode.UNKNOWN_SERVER_ERROR
        return {
            each: _error(
                group_id, each, codes.get((each.member_id or "", each.group_instance_id), missing)
            )
            for each in remaining
        }

    what = "the removal of members"
    return await each_in_group(requests, group_id, members, remove, what, "READ")


def _error(group_id: str, member: MemberToRemove, code: int) -> KafkaError | None:
    if not code:
        return None
    text = f"{member} was not removed from group {escaped(group_id)!r}"
    return broker_error(code, f"{text}: {broker_error(code)}")
