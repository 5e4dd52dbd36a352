"""IncrementalAlterConfigs (44), versions 0-1: single settings of topics (KIP-339).

Operations: 0 set, 1 delete, 2 append to a list, 3 take away from a list.
"""

from __future__ import annotations

from collections import Counter

from kohort.errors import ErrorCode
from kohort.protocol.messages import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from kohort.testing._topic_settings import TOPIC_SETTINGS, ConfigType, split_list
from kohort.testing._topics import Topic
from kohort.testing.apis._registry import Context, serves
from kohort.testing.apis.alter_configs import ChangeRefusedError, change, changeable_topic

_SET, _DELETE, _APPEND, _SUBTRACT = range(4)

_Asked = IncrementalAlterConfigsRequest.AlterConfigsResource
_Entry = IncrementalAlterConfigsRequest.AlterableConfig
_Result = IncrementalAlterConfigsResponse.AlterConfigsResourceResponse


@serves(IncrementalAlterConfigsRequest, (0, 1))
async def incremental_alter_configs(
    ctx: Context, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    times = Counter((asked.resource_type, asked.resource_name) for asked in request.resources)
    return IncrementalAlterConfigsResponse(
        responses=[
            _alter(
                ctx,
                asked,
                request.validate_only,
                once=times[asked.resource_type, asked.resource_name] == 1,
            )
            for asked in request.resources
        ]
    )


def _alter(ctx: Context, asked: _Asked, validate_only: bool, *, once: bool) -> _Result:
    result = _Result(
        resource_type=asked.resource_type, resource_name=asked.resource_name, error_message=None
    )
    try:
        if not once:
            raise ChangeRefusedError(ErrorCode.INVALID_REQUEST, "It is named twice.")
        _check(asked)
        topic = changeable_topic(ctx, asked.resource_type, asked.resource_name)
        configs = dict(topic.configs)
        for entry in asked.configs:
            _apply(configs, topic, entry)
        change(ctx, topic, configs, validate_only=validate_only)
    except ChangeRefusedError as error:
        result.error_code, result.error_message = error.code, error.message
    return result


def _check(asked: _Asked) -> None:
    """What Kafka looks at before it looks for the topic."""
    if max(Counter(entry.name for entry in asked.configs).values(), default=0) > 1:
        raise ChangeRefusedError(ErrorCode.INVALID_REQUEST, "A setting is named twice.")
    for entry in asked.configs:
        if entry.value is None and entry.config_operation != _DELETE:
            raise ChangeRefusedError(ErrorCode.INVALID_REQUEST, f"{entry.name} cannot be null.")
        if not _SET <= entry.config_operation <= _SUBTRACT:
            raise ChangeRefusedError(ErrorCode.UNKNOWN_SERVER_ERROR, None)


def _apply(configs: dict[str, str], topic: Topic, entry: _Entry) -> None:
    name, value = entry.name, entry.value or ""
    if entry.config_operation == _DELETE:
        configs.pop(name, None)
        return
    if entry.config_operation == _SET:
        configs[name] = value
        return
    setting = TOPIC_SETTINGS.get(name)
    if setting is None or setting.type is not ConfigType.LIST:
        raise ChangeRefusedError(ErrorCode.INVALID_CONFIG, f"{name} is not a list.")
    items, named = split_list(topic.config(name)), split_list(value)
    if entry.config_operation == _APPEND:
        items += [item for item in named if item not in items]
    else:
        items = [item for item in items if item not in named]
    configs[name] = ",".join(items)
