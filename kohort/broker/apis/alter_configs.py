"""AlterConfigs (API 33), versions 0-2. It replaces all settings of a topic, broker or group."""

from __future__ import annotations

from collections.abc import Mapping

from kohort.broker.apis._broker_changes import (
    ChangeRefusedError,
    change_broker,
    changeable_broker,
    check_broker_values,
)
from kohort.broker.apis._group_changes import change_group, check_group_name
from kohort.broker.apis._registry import Context, refusal_message, serves
from kohort.broker.apis.describe_configs import BROKER, GROUP, TOPIC, Resource, refused_config
from kohort.broker.cluster._topics import Topic
from kohort.broker.configs._topic_settings import config_error, is_legal_name
from kohort.broker.security import AclOperation
from kohort.errors import ErrorCode
from kohort.protocol.messages import AlterConfigsRequest, AlterConfigsResponse

_Requested = AlterConfigsRequest.AlterConfigsResource
_Result = AlterConfigsResponse.AlterConfigsResourceResponse


@serves(AlterConfigsRequest, (0, 2))
async def alter_configs(ctx: Context, request: AlterConfigsRequest) -> AlterConfigsResponse:
    return AlterConfigsResponse(
        responses=[_alter(ctx, requested, request.validate_only) for requested in request.resources]
    )


def _alter(ctx: Context, requested: _Requested, validate_only: bool) -> _Result:
    result = _Result(
        resource_type=requested.resource_type,
        resource_name=requested.resource_name,
        error_message=None,
    )
    try:
        check_rights(ctx, requested)
        configs: dict[str, str] = {}
        for entry in requested.configs:
            if entry.value is None:
                raise ChangeRefusedError(
                    ErrorCode.INVALID_REQUEST, f"Null value not supported for : {entry.name}"
                )
            if entry.name in configs:
                raise ChangeRefusedError(
                    ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys"
                )
            configs[entry.name] = entry.value
        if requested.resource_type == BROKER:
            node_id = changeable_broker(ctx, requested.resource_name)
            check_broker_values(ctx, node_id, configs)
            change_broker(ctx, node_id, configs, validate_only=validate_only)
            return result
        if requested.resource_type == GROUP:
            check_group_name(requested.resource_name)
            change_group(ctx, requested.resource_name, configs, validate_only=validate_only)
            return result
        topic = changeable_topic(ctx, requested.resource_type, requested.resource_name)
        change(ctx, topic, configs, validate_only=validate_only)
    except ChangeRefusedError as error:
        result.error_code, result.error_message = error.code, error.message
    return result


def check_rights(ctx: Context, requested: Resource) -> None:
    """Raise ChangeRefusedError if the principal may not change these settings."""
    refused = refused_config(ctx, AclOperation.ALTER_CONFIGS, requested)
    if refused is not ErrorCode.NONE:
        raise ChangeRefusedError(refused, refusal_message(refused))


def changeable_topic(ctx: Context, kind: int, name: str) -> Topic:
    """Return the topic to change; ChangeRefusedError if it cannot be changed."""
    if kind != TOPIC:
        raise ChangeRefusedError(
            ErrorCode.INVALID_REQUEST, f"Resources of type {kind} have no settings."
        )
    if not name:
        raise ChangeRefusedError(ErrorCode.INVALID_REQUEST, "The topic name is empty.")
    if not is_legal_name(name):
        raise ChangeRefusedError(
            ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name!r} is not a legal topic name."
        )
    topic = ctx.broker.cluster.topics.get(name)
    if topic is None:
        raise ChangeRefusedError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic {name!r}."
        )
    return topic


def change(ctx: Context, topic: Topic, configs: Mapping[str, str], *, validate_only: bool) -> None:
    """Replace the settings of a topic if all new ones are valid."""
    for name, value in configs.items():
        problem = config_error(name, value)
        if problem is not None:
            raise ChangeRefusedError(ErrorCode.INVALID_CONFIG, problem)
    if not validate_only:
        topic.configs = dict(configs)
        ctx.broker.cluster.settings_changed()
