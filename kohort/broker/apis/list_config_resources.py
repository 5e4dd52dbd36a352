"""ListConfigResources (API 74), versions 0-1. It lists the resources with settings.

Version 0 lists subscriptions of client metrics, which do not exist here. Version 1 adds the
requested types (KIP-1142). No types means all.
"""

from __future__ import annotations

from kohort.broker.apis._registry import Context, serves
from kohort.broker.apis.describe_configs import BROKER, GROUP, TOPIC
from kohort.errors import ErrorCode
from kohort.protocol.messages import ListConfigResourcesRequest, ListConfigResourcesResponse

_LOGGER, _CLIENT_METRICS = 8, 16
_KINDS = frozenset({TOPIC, BROKER, _LOGGER, _CLIENT_METRICS, GROUP})


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
        GROUP: cluster.configs.groups.names,
    }
    return ListConfigResourcesResponse(
        config_resources=[
            ListConfigResourcesResponse.ConfigResource(resource_name=name, resource_type=kind)
            for kind in sorted(kinds)
            for name in names.get(kind, [])
        ]
    )
