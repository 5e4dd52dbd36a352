"""FindCoordinator (API 10), versions 0-6.

- Version 1 adds the key type, 0 for groups and 1 for transactions.
- Version 4 adds several keys in one request.
- Version 6 adds share groups, key type 2.

The message of a response without error is "NONE" up to version 3, and later empty.
"""

from __future__ import annotations

from kohort.broker.apis._registry import Context, refusal_message, serves
from kohort.broker.security import AclOperation, ResourceType
from kohort.broker.share import parsed_key
from kohort.errors import ErrorCode
from kohort.protocol.messages import FindCoordinatorRequest, FindCoordinatorResponse

_GROUP, _TRANSACTION, _SHARE = 0, 1, 2
_SHARE_VERSION = 6


@serves(FindCoordinatorRequest, (0, 6))
async def find_coordinator(
    ctx: Context, request: FindCoordinatorRequest
) -> FindCoordinatorResponse:
    if ctx.version >= 4:
        return FindCoordinatorResponse(
            coordinators=[_find(ctx, request.key_type, key) for key in request.coordinator_keys]
        )
    found = _find(ctx, request.key_type, request.key)
    return FindCoordinatorResponse(
        error_code=found.error_code,
        error_message=found.error_message or "NONE",
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


def _find(ctx: Context, key_type: int, key: str) -> FindCoordinatorResponse.Coordinator:
    share_key = parsed_key(key) if key_type == _SHARE and ctx.version >= _SHARE_VERSION else None
    if key_type not in (_GROUP, _TRANSACTION) and share_key is None:
        return FindCoordinatorResponse.Coordinator(
            key=key,
            node_id=-1,
            port=-1,
            error_code=ErrorCode.INVALID_REQUEST,
            error_message=(
                "" if key_type == _SHARE and ctx.version >= 4 else f"Unknown type {key_type}."
            ),
        )
    refused = _refused(ctx, key_type, key)
    if refused is not ErrorCode.NONE:
        return FindCoordinatorResponse.Coordinator(
            key=key,
            node_id=-1,
            port=-1,
            error_code=refused,
            error_message="" if ctx.version >= 4 else refusal_message(refused),
        )
    cluster = ctx.broker.cluster
    if share_key is not None:
        node = cluster.share_router.coordinator_node(share_key)
    elif key_type == _GROUP:
        node = cluster.coordinator_node(key)
    else:
        node = cluster.transaction_router.coordinator_node(key)
    if node is None:
        return FindCoordinatorResponse.Coordinator(
            key=key,
            node_id=-1,
            port=-1,
            error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE,
            error_message="" if ctx.version >= 4 else "The coordinator is not available.",
        )
    return FindCoordinatorResponse.Coordinator(
        key=key, node_id=node.id, host=node.host, port=ctx.port_of(node)
    )


def _refused(ctx: Context, key_type: int, key: str) -> ErrorCode:
    if key_type == _GROUP:
        if not ctx.allows(AclOperation.DESCRIBE, ResourceType.GROUP, key):
            return ErrorCode.GROUP_AUTHORIZATION_FAILED
    elif key_type == _SHARE:
        if not ctx.allows(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER):
            return ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    elif not ctx.allows(AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, key):
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    return ErrorCode.NONE
