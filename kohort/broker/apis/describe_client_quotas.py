"""DescribeClientQuotas (API 48), versions 0-1. The cluster has no quotas, so the list is empty."""

from __future__ import annotations

from collections.abc import Sequence

from kohort.broker.apis._registry import Context, serves
from kohort.errors import ErrorCode
from kohort.protocol.messages import DescribeClientQuotasRequest, DescribeClientQuotasResponse

_Component = DescribeClientQuotasRequest.ComponentData
_TYPES = ("user", "client-id", "ip")
_EXACT = 0
_MATCHES = ("MATCH_TYPE_EXACT", "MATCH_TYPE_DEFAULT", "MATCH_TYPE_SPECIFIED")
"""Kinds of matches by their number."""


@serves(DescribeClientQuotasRequest, (0, 1))
async def describe_client_quotas(
    ctx: Context, request: DescribeClientQuotasRequest
) -> DescribeClientQuotasResponse:
    problem = _problem(request.components)
    if problem is None:
        return DescribeClientQuotasResponse()
    code, message = problem
    return DescribeClientQuotasResponse(error_code=code, error_message=message, entries=None)


def _problem(components: Sequence[_Component]) -> tuple[ErrorCode, str] | None:
    """Return the error for a filter that Kafka refuses, None for a valid one."""
    seen: set[str] = set()
    for component in components:
        kind = component.entity_type
        if not kind:
            return ErrorCode.INVALID_REQUEST, "Invalid empty entity type."
        if kind in seen:
            return (
                ErrorCode.INVALID_REQUEST,
                f"Entity type {kind} cannot appear more than once in the filter.",
            )
        seen.add(kind)
        if kind not in _TYPES:
            return ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {kind}"
        if (message := _problem_of_match(component)) is not None:
            return ErrorCode.INVALID_REQUEST, message
    if "ip" in seen and len(seen) > 1:
        return (
            ErrorCode.INVALID_REQUEST,
            "Invalid entity filter component combination. IP filter component should not be used "
            "with user or clientId filter component.",
        )
    return None


def _problem_of_match(component: _Component) -> str | None:
    if not 0 <= component.match_type < len(_MATCHES):
        return f"Unknown match type {component.match_type}"
    name = _MATCHES[component.match_type]
    if component.match_type == _EXACT:
        is_null = component.match is None
        return f"Request specified {name}, but set match string to null." if is_null else None
    if component.match is not None:
        return f"Request specified {name}, but also specified a match string."
    return None
