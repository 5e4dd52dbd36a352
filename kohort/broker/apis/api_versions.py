"""ApiVersions (API 18), versions 0-5.

- Version 3 adds the client's software name and the cluster's features.
- Version 4 adds the features whose range begins at 0.
- Version 5 adds the cluster and the node that the client expects (KIP-1242).

An unknown version also gets a response, see :mod:`kohort.broker.requests._dispatch`.
"""

from __future__ import annotations

import re

from kohort.broker.apis._registry import SERVED, Context, serves
from kohort.errors import ErrorCode
from kohort.protocol.messages import ApiVersionsRequest, ApiVersionsResponse

_RELEASE = 30
"""Level of metadata.version in Apache Kafka 4.3."""
_FEATURES = {
    "group.version": (0, 1),
    "metadata.version": (7, _RELEASE),
    "share.version": (0, 2),
    "transaction.version": (0, 2),
}
"""Features of Kafka that this cluster has, with their first and last levels."""
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


@serves(ApiVersionsRequest, (0, 5))
async def api_versions(ctx: Context, request: ApiVersionsRequest) -> ApiVersionsResponse:
    if ctx.version >= 3:
        named = request.client_software_name, request.client_software_version
        if not all(_SOFTWARE.fullmatch(name) for name in named):
            return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    if ctx.version >= 5:
        if (request.cluster_id is None) != (request.node_id == -1):
            return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
        expected = request.cluster_id, request.node_id
        if expected not in ((None, -1), (ctx.broker.cluster.cluster_id, ctx.broker.node.id)):
            return ApiVersionsResponse(error_code=ErrorCode.REBOOTSTRAP_REQUIRED)
    config = ctx.broker.cluster.config
    levels = {
        "group.version": config.group_version,
        "metadata.version": _RELEASE,
        "share.version": config.share_version,
        "transaction.version": config.transactions.version,
    }
    return ApiVersionsResponse(
        api_keys=[
            ApiVersionsResponse.ApiVersion(
                api_key=served.key,
                min_version=served.advertised.first,
                max_version=served.advertised.last,
            )
            for served in sorted(SERVED.values())
        ],
        # Older clients fail on a feature whose range begins at 0, so they do not get it.
        supported_features=[
            ApiVersionsResponse.SupportedFeatureKey(name=name, min_version=first, max_version=last)
            for name, (first, last) in _FEATURES.items()
            if first or ctx.version >= 4
        ],
        finalized_features_epoch=1,
        # As in Kafka, features at level 0 are omitted.
        finalized_features=[
            ApiVersionsResponse.FinalizedFeatureKey(
                name=name, max_version_level=level, min_version_level=level
            )
            for name, level in levels.items()
            if level
        ],
    )


def unsupported_version() -> ApiVersionsResponse:
    """Return the response to an unknown version, in version 0 and with this API's range alone."""
    served = SERVED[ApiVersionsRequest.api_key]
    return ApiVersionsResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION,
        api_keys=[
            ApiVersionsResponse.ApiVersion(
                api_key=served.key,
                min_version=served.versions.first,
                max_version=served.versions.last,
            )
        ],
    )
