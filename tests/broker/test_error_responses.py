"""Error responses, which every version of an API must be able to encode."""

from __future__ import annotations

from typing import Any, cast

import pytest

from kohort.broker.apis import Context
from kohort.broker.requests._failures import error_response
from kohort.errors import ErrorCode
from kohort.protocol import Request, encode
from kohort.protocol import messages as m

REQUESTS: list[Request[Any]] = [
    m.JoinGroupRequest(group_id="g"),
    m.SyncGroupRequest(group_id="g"),
    m.HeartbeatRequest(group_id="g"),
    m.LeaveGroupRequest(group_id="g"),
    m.DescribeGroupsRequest(groups=["g"]),
    m.ListGroupsRequest(),
    m.DeleteGroupsRequest(groups_names=["g"]),
    m.FindCoordinatorRequest(key="g", coordinator_keys=["g"]),
    m.OffsetCommitRequest(group_id="g"),
    m.OffsetFetchRequest(group_id="g", topics=[]),
    m.OffsetDeleteRequest(group_id="g"),
    m.TxnOffsetCommitRequest(group_id="g"),
    m.AddOffsetsToTxnRequest(group_id="g"),
    m.ConsumerGroupHeartbeatRequest(group_id="g"),
    m.ConsumerGroupDescribeRequest(group_ids=["g"]),
]
CASES = [
    pytest.param(request, version, id=f"{type(request).__name__}-{version}")
    for request in REQUESTS
    for version in range(request.versions.first, request.versions.last + 1)
]


@pytest.mark.parametrize(("request_", "version"), CASES)
def test_error_of_a_group_api_is_encoded(request_: Request[Any], version: int) -> None:
    ctx = Context(cast(Any, None), version, "c", "/127.0.0.1")
    response = error_response(ctx, request_, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert encode(response, version)


@pytest.mark.parametrize(("version", "name"), [(0, ""), (6, ""), (7, None), (9, None)])
def test_refused_join_has_the_protocol_name_of_its_version(version: int, name: str | None) -> None:
    ctx = Context(cast(Any, None), version, "c", "/127.0.0.1")
    response = error_response(ctx, REQUESTS[0], ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert isinstance(response, m.JoinGroupResponse)
    assert response.protocol_name == name
