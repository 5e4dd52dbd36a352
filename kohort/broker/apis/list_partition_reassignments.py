"""ListPartitionReassignments (API 46), version 0. No reassignment is ever in progress here."""

from __future__ import annotations

from kohort.broker.apis._registry import Context, serves
from kohort.protocol.messages import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)


@serves(ListPartitionReassignmentsRequest, (0, 0))
async def list_partition_reassignments(
    ctx: Context, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    return ListPartitionReassignmentsResponse(error_message=None)
