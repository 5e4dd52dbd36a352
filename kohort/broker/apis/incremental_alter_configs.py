"""IncrementalAlterConfigs (API 44), versions 0-1. It changes single configs (KIP-339).

The operations are 0 set, 1 delete, 2 append to a list, and 3 remove from a list.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from kohort.broker.apis._broker_changes import (
    ChangeRefusedError,
    change_broker,
    changeable_broker,
    check_broker_values,
)
from kohort.broker.apis._group_changes import change_group, check_group_name
from kohort.broker.apis._registry import Context, serves
from kohort.broker.apis.alter_configs import change, changeable_topic, check_rights
from kohort.broker.apis.describe_configs import BROKER, GROUP
from kohort.broker.configs._broker_configs import setting_of
from kohort.broker.configs._config_types import ConfigType, split_list
from kohort.broker.configs._group_settings import GROUP_SETTINGS
from kohort.broker.configs._topic_settings import TOPIC_SETTINGS
from kohort.errors import ErrorCode
from kohort.protocol.messages import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

_SET, _DELETE, _APPEND, _SUBTRACT = range(4)

_Requested = IncrementalAlterConfigsRequest.AlterConfigsResource
_Entry = IncrementalAlterConfigsRequest.AlterableConfig
_Result = IncrementalAlterConfigsResponse.AlterConfigsResourceResponse


@serves(IncrementalAlterConfigsRequest, (0, 1))
async def incremental_alter_configs(
    ctx: Context, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    times = Counter(
        (requested.resource_type, requested.resource_name) for requested in request.resources
    )
    return IncrementalAlterConfigsResponse(
        responses=[
            _alter(
                ctx,
                requested,
                request.validate_only,
                once=times[requested.resource_type, requested.resource_name] == 1,
            )
            for requested in request.resources
        ]
    )


def _alter(ctx: Context, requested: _Requested, validate_only: bool, *, once: bool) -> _Result:
    result = _Result(
        resource_type=requested.resource_type,
        resource_name=requested.resource_name,
        error_message=None,
    )
    try:
        if not once:
            raise ChangeRefusedError(ErrorCode.INVALID_REQUEST, "The resource is named twice.")
        _check(requested)
        check_rights(ctx, requested)
        if requested.resource_type == BROKER:
            _alter_broker(ctx, requested, validate_only)
            return result
        if requested.resource_type == GROUP:
            _alter_group(ctx, requested, validate_only)
            return result
        topic = changeable_topic(ctx, requested.resource_type, requested.resource_name)
        configs = dict(topic.configs)
        for entry in requested.configs:
            setting = TOPIC_SETTINGS.get(entry.name)
            _apply(configs, entry, setting and setting.type, topic.config)
        change(ctx, topic, configs, validate_only=validate_only)
    except ChangeRefusedError as error:
        result.error_code, result.error_message = error.code, error.message
    return result


def _alter_broker(ctx: Context, requested: _Requested, validate_only: bool) -> None:
    node_id = changeable_broker(ctx, requested.resource_name)
    changed = {
        entry.name: entry.value or ""
        for entry in requested.configs
        if entry.config_operation != _DELETE
    }
    check_broker_values(ctx, node_id, changed)
    known = ctx.broker.cluster.configs
    configs = dict(known.cluster_overrides) if node_id is None else known.broker_overrides(node_id)

    def current(name: str) -> str:
        origins = known.origins(name, ctx.broker.node)
        return configs.get(name) or (origins[0].value if origins else "") or ""

    for entry in requested.configs:
        _apply(configs, entry, setting_of(entry.name).type, current)
    change_broker(ctx, node_id, configs, validate_only=validate_only)


def _alter_group(ctx: Context, requested: _Requested, validate_only: bool) -> None:
    group_id = requested.resource_name
    check_group_name(group_id)
    configs = ctx.broker.cluster.configs.groups.of(group_id)
    for entry in requested.configs:
        setting = GROUP_SETTINGS.get(entry.name)
        _apply(configs, entry, setting and setting.type, lambda _: "")
    change_group(ctx, group_id, configs, validate_only=validate_only)


def _check(requested: _Requested) -> None:
    """Check what Kafka checks before it looks up the topic."""
    if max(Counter(entry.name for entry in requested.configs).values(), default=0) > 1:
        raise ChangeRefusedError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    for entry in requested.configs:
        if entry.value is None and entry.config_operation != _DELETE:
            raise ChangeRefusedError(
                ErrorCode.INVALID_REQUEST, f"Null value not supported for : {entry.name}"
            )
        if not _SET <= entry.config_operation <= _SUBTRACT:
            raise ChangeRefusedError(ErrorCode.UNKNOWN_SERVER_ERROR, None)


def _apply(
    configs: dict[str, str], entry: _Entry, kind: ConfigType | None, current: Callable[[str], str]
) -> None:
    """Apply one operation. ``kind`` is None for an unknown setting.

    ``current`` returns the present value of a known one.
    """
    name, value = entry.name, entry.value or ""
    if entry.config_operation == _DELETE:
        configs.pop(name, None)
        return
    if entry.config_operation == _SET:
        configs[name] = value
        return
    if kind is not ConfigType.LIST:
        operation = "APPEND" if entry.config_operation == _APPEND else "SUBTRACT"
        raise ChangeRefusedError(
            ErrorCode.INVALID_CONFIG,
            f"Can't {operation} to key {name} because its type is not LIST.",
        )
    items, named = split_list(current(name)), split_list(value)
    if entry.config_operation == _APPEND:
        items += [item for item in named if item not in items]
    else:
        items = [item for item in items if item not in named]
    configs[name] = ",".join(items)
