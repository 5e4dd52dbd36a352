"""Rights that a whole request needs, and the response to a principal that lacks them.

Handlers check the rights for parts of a request, such as single topics.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from kohort.broker.apis import Context, refusal_message
from kohort.broker.requests._failures import error_response
from kohort.broker.security import CLUSTER_NAME, AclOperation, ResourceType
from kohort.errors import ErrorCode
from kohort.protocol import Request, Response
from kohort.protocol import messages as m
from kohort.types import NamedTuple

_ERRORS = {
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}


class _Right(NamedTuple):
    """An operation on the resource that a request field names; "" stands for the cluster."""

    kind: ResourceType
    operation: AclOperation
    name: str = ""


_READ_GROUP = _Right(ResourceType.GROUP, AclOperation.READ, "group_id")
_DELETE_GROUP = _Right(ResourceType.GROUP, AclOperation.DELETE, "group_id")
_WRITE_TRANSACTION = _Right(ResourceType.TRANSACTIONAL_ID, AclOperation.WRITE, "transactional_id")
_ALTER = _Right(ResourceType.CLUSTER, AclOperation.ALTER)
_CLUSTER_ACTION = _Right(ResourceType.CLUSTER, AclOperation.CLUSTER_ACTION)
_DESCRIBE = _Right(ResourceType.CLUSTER, AclOperation.DESCRIBE)
_DESCRIBE_CONFIGS = _Right(ResourceType.CLUSTER, AclOperation.DESCRIBE_CONFIGS)

_NEEDED: Mapping[type[Request[Any]], tuple[_Right, ...]] = MappingProxyType(
    {
        m.JoinGroupRequest: (_READ_GROUP,),
        m.SyncGroupRequest: (_READ_GROUP,),
        m.HeartbeatRequest: (_READ_GROUP,),
        m.ConsumerGroupHeartbeatRequest: (_READ_GROUP,),
        m.LeaveGroupRequest: (_READ_GROUP,),
        m.ShareGroupHeartbeatRequest: (_READ_GROUP,),
        m.ShareFetchRequest: (_READ_GROUP,),
        m.ShareAcknowledgeRequest: (_READ_GROUP,),
        m.AlterShareGroupOffsetsRequest: (_READ_GROUP,),
        m.DeleteShareGroupOffsetsRequest: (_DELETE_GROUP,),
        m.InitializeShareGroupStateRequest: (_CLUSTER_ACTION,),
        m.ReadShareGroupStateRequest: (_CLUSTER_ACTION,),
        m.WriteShareGroupStateRequest: (_CLUSTER_ACTION,),
        m.DeleteShareGroupStateRequest: (_CLUSTER_ACTION,),
        m.ReadShareGroupStateSummaryRequest: (_CLUSTER_ACTION,),
        m.OffsetCommitRequest: (_READ_GROUP,),
        m.OffsetDeleteRequest: (_DELETE_GROUP,),
        m.TxnOffsetCommitRequest: (_WRITE_TRANSACTION, _READ_GROUP),
        m.AddOffsetsToTxnRequest: (_WRITE_TRANSACTION, _READ_GROUP),
        m.EndTxnRequest: (_WRITE_TRANSACTION,),
        m.AlterPartitionReassignmentsRequest: (_ALTER,),
        m.AlterReplicaLogDirsRequest: (_ALTER,),
        m.AlterUserScramCredentialsRequest: (_ALTER,),
        m.CreateAclsRequest: (_ALTER,),
        m.DeleteAclsRequest: (_ALTER,),
        m.ElectLeadersRequest: (_ALTER,),
        m.DescribeAclsRequest: (_DESCRIBE,),
        m.DescribeClientQuotasRequest: (_DESCRIBE_CONFIGS,),
        m.DescribeLogDirsRequest: (_DESCRIBE,),
        m.DescribeQuorumRequest: (_DESCRIBE,),
        m.DescribeUserScramCredentialsRequest: (_DESCRIBE,),
        m.ListPartitionReassignmentsRequest: (_DESCRIBE,),
        m.ListConfigResourcesRequest: (_DESCRIBE_CONFIGS,),
    }
)


def _init_producer_id(ctx: Context, request: m.InitProducerIdRequest) -> ErrorCode:
    name = request.transactional_id
    if name is not None:
        allowed = ctx.allows(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, name)
        return ErrorCode.NONE if allowed else ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    allowed = ctx.allows(AclOperation.IDEMPOTENT_WRITE, ResourceType.CLUSTER) or ctx.allows_some(
        AclOperation.WRITE, ResourceType.TOPIC
    )
    return ErrorCode.NONE if allowed else ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def _add_partitions_to_txn(ctx: Context, request: m.AddPartitionsToTxnRequest) -> ErrorCode:
    if ctx.version >= 4:
        allowed = ctx.allows(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER)
        return ErrorCode.NONE if allowed else ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    name = request.v3_and_below_transactional_id
    allowed = ctx.allows(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, name)
    return ErrorCode.NONE if allowed else ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def _write_txn_markers(ctx: Context, _: m.WriteTxnMarkersRequest) -> ErrorCode:
    either = AclOperation.ALTER, AclOperation.CLUSTER_ACTION
    allowed = any(ctx.allows(operation, ResourceType.CLUSTER) for operation in either)
    return ErrorCode.NONE if allowed else ErrorCode.CLUSTER_AUTHORIZATION_FAILED


_SPECIAL: Mapping[type[Request[Any]], Callable[[Context, Any], ErrorCode]] = MappingProxyType(
    {
        m.InitProducerIdRequest: _init_producer_id,
        m.AddPartitionsToTxnRequest: _add_partitions_to_txn,
        m.WriteTxnMarkersRequest: _write_txn_markers,
    }
)


def refusal(ctx: Context, request: Request[Any]) -> Response | None:
    """Return the error response if the principal may not send the request, else None."""
    error = _error(ctx, request)
    if error is ErrorCode.NONE:
        return None
    response: Any = error_response(ctx, request, error)
    if isinstance(response, m.InitProducerIdResponse):
        response.producer_id, response.producer_epoch = -1, -1
    if isinstance(response, m.DescribeClientQuotasResponse):
        response.entries, response.error_message = None, None
        return response
    for part in _with_messages(response):
        part.error_message = (
            f"Request {type(request).__name__} is not authorized."
            if error is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            else refusal_message(error)
        )
    assert isinstance(response, Response)
    return response


def _with_messages(response: Any) -> Sequence[Any]:
    """Return the parts of a response that have a message about the refusal."""
    if isinstance(response, m.CreateAclsResponse):
        return response.results
    if isinstance(response, m.DeleteAclsResponse):
        return response.filter_results
    if isinstance(response, m.ConsumerGroupHeartbeatResponse):
        # As in Kafka, this refusal has no message.
        return []
    return [response] if hasattr(response, "error_message") else []


def _error(ctx: Context, request: Request[Any]) -> ErrorCode:
    special = _SPECIAL.get(type(request))
    if special is not None:
        return special(ctx, request)
    for kind, operation, field in _NEEDED.get(type(request), ()):
        name = getattr(request, field) if field else CLUSTER_NAME
        if not ctx.allows(operation, kind, name):
            return _ERRORS[kind]
    return ErrorCode.NONE
