"""ListConfigResources (74), versions 0-1: what has settings.

Version 0 is for the subscriptions to clients' metrics, of which there are none; 1 names the kinds
that are asked for (KIP-1142), none of them for all.
"""

from __future__ import annotations

from kohort.errors import ErrorCode
from kohort.protocol.messages import ListConfigResourcesRequest, ListConfigResourcesResponse
from kohort.testing.apis._registry import Context, serves
from kohort.testing.apis.describe_configs import BROKER, TOPIC

_LOGGER, _CLIENT_METRICS, _GROUP = 8, 16, 32
_KINDS = frozenset({TOPIC, BROKER, _LOGGER, _CLIENT_METRICS, _GROUP})


@serves(ListConfigResourcesRequest, (0, 1))
async def list_config_resources(
    ctx: Context, request: ListConfigResourcesRequest
) -> ListConfigResourcesResponse:
    kinds = set(request.resource_types) or _KINDS
    if ctx.version == 0:
        kinds = {_CLIENT_METRICS}
    if not kinds <= _KINDS:
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    cluster = ctx.broker.cluster
    nodes = [str(node.id) for node in cluster.nodes]
    names = {
        TOPIC: [topic.name for topic in cluster.topics],
        BROKER: nodes,
        _LOGGER: nodes,
    }
    return ListConfigResourcesResponse(
        config_resources=[
            ListConfigResourcesResponse.ConfigResource(resource_name=name, resource_type=kind)
            for kind in sorted(kinds)
            for name in names.get(kind, [])
        ]
    )
