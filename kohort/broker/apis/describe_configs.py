"""DescribeConfigs (API 32), versions 1-4.

Version 1 adds synonyms, version 3 types and documentation. Topics and brokers show all their
configs, and so do groups, whether they exist or not. Without a broker's id the response has the
configs that requests have changed for all brokers.
"""

from __future__ import annotations

from typing import Protocol

from kohort.broker.apis._registry import Context, refusal_message, serves
from kohort.broker.configs._broker_configs import setting_of
from kohort.broker.configs._config_types import ConfigSource, ConfigType, SourcedValue
from kohort.broker.configs._group_settings import GROUP_SETTINGS
from kohort.broker.configs._topic_settings import TOPIC_SETTINGS, is_legal_name
from kohort.broker.security import AclOperation, ResourceType
from kohort.errors import ErrorCode
from kohort.protocol.messages import DescribeConfigsRequest, DescribeConfigsResponse

TOPIC, BROKER, GROUP = 2, 4, 32

_Requested = DescribeConfigsRequest.DescribeConfigsResource
_Result = DescribeConfigsResponse.DescribeConfigsResult
_Config = DescribeConfigsResponse.DescribeConfigsResourceResult
_Synonym = DescribeConfigsResponse.DescribeConfigsSynonym


class Resource(Protocol):
    """A resource with settings."""

    resource_type: int
    resource_name: str


class _RefusedResource(Exception):
    """Refusal of a resource. Some errors of Kafka have a message, others have none."""

    def __init__(self, code: ErrorCode, message: str = "") -> None:
        super().__init__(message)
        self.code = code


@serves(DescribeConfigsRequest, (1, 4))
async def describe_configs(
    ctx: Context, request: DescribeConfigsRequest
) -> DescribeConfigsResponse:
    return DescribeConfigsResponse(
        results=[_describe(ctx, request, resource) for resource in request.resources]
    )


def _describe(ctx: Context, request: DescribeConfigsRequest, requested: _Requested) -> _Result:
    result = _Result(resource_type=requested.resource_type, resource_name=requested.resource_name)
    try:
        configs = _configs(ctx, requested)
    except _RefusedResource as error:
        result.error_code, result.error_message = error.code, str(error)
        return result
    keys = requested.configuration_keys
    for config in configs:
        # Some clients send an empty list for "all".
        if keys and config.name not in keys:
            continue
        config.documentation = None
        if not request.include_synonyms:
            config.synonyms = []
        result.configs.append(config)
    return result


def _configs(ctx: Context, requested: _Requested) -> list[_Config]:
    refused = refused_config(ctx, AclOperation.DESCRIBE_CONFIGS, requested)
    if refused is not ErrorCode.NONE:
        raise _RefusedResource(refused, refusal_message(refused))
    if requested.resource_type == TOPIC:
        return _topic_configs(ctx, requested.resource_name)
    if requested.resource_type == GROUP:
        return _group_configs(ctx, requested.resource_name)
    if requested.resource_type != BROKER:
        raise _RefusedResource(
            ErrorCode.INVALID_REQUEST,
            f"Resources of type {requested.resource_type} have no settings.",
        )
    if not requested.resource_name:
        return _default_configs(ctx)
    if requested.resource_name != str(ctx.broker.node.id):
        raise _RefusedResource(
            ErrorCode.INVALID_REQUEST,
            f"This is broker {ctx.broker.node.id}, not {requested.resource_name!r}.",
        )
    return _broker_configs(ctx)


def refused_config(ctx: Context, operation: AclOperation, requested: Resource) -> ErrorCode:
    """Return the error for settings that the principal may not see or change."""
    if requested.resource_type == TOPIC:
        allowed = ctx.allows(operation, ResourceType.TOPIC, requested.resource_name)
        error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    elif requested.resource_type == GROUP:
        allowed = ctx.allows(operation, ResourceType.GROUP, requested.resource_name)
        error = ErrorCode.GROUP_AUTHORIZATION_FAILED
    else:
        allowed = ctx.allows(operation, ResourceType.CLUSTER)
        error = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    return ErrorCode.NONE if allowed else error


def _topic_configs(ctx: Context, name: str) -> list[_Config]:
    if not is_legal_name(name):
        raise _RefusedResource(
            ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name!r} is not a legal topic name."
        )
    cluster, node = ctx.broker.cluster, ctx.broker.node
    topic = cluster.topics.get(name)
    if topic is None:
        raise _RefusedResource(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    configs = []
    for setting, (_, kind, _, synonym) in TOPIC_SETTINGS.items():
        origins = cluster.configs.origins(synonym, node) if synonym else ()
        if setting in topic.configs:
            own = SourcedValue(setting, topic.configs[setting], ConfigSource.TOPIC)
            origins = (own, *origins)
        value = origins[0].value if origins else topic.config(setting)
        configs.append(_config(setting, value, kind, origins))
    return configs


def _group_configs(ctx: Context, name: str) -> list[_Config]:
    if not name:
        raise _RefusedResource(ErrorCode.INVALID_REQUEST, "Group name must not be empty")
    configs = []
    for setting in GROUP_SETTINGS.values():
        origins = ctx.broker.cluster.configs.groups.origins(name, setting.name, ctx.broker.node)
        configs.append(_config(setting.name, origins[0].value, setting.type, origins))
    return configs


def _broker_configs(ctx: Context) -> list[_Config]:
    configs, node = ctx.broker.cluster.configs, ctx.broker.node
    described = []
    for name in configs.names(node.id):
        setting, origins = setting_of(name), configs.origins(name, node)
        value = origins[0].value if origins else None
        described.append(
            _config(
                name,
                value,
                setting.type,
                origins,
                fixed=not setting.is_dynamic,
                hidden=setting.is_sensitive,
            )
        )
    return described


def _default_configs(ctx: Context) -> list[_Config]:
    """Return the configs that requests have changed for all brokers."""
    described = []
    for name, value in ctx.broker.cluster.configs.cluster_overrides.items():
        setting = setting_of(name)
        shown = None if setting.is_sensitive else value
        origin = SourcedValue(name, shown, ConfigSource.DEFAULT_BROKER)
        described.append(
            _config(
                name,
                shown,
                setting.type,
                (origin,),
                fixed=not setting.is_dynamic,
                hidden=setting.is_sensitive,
            )
        )
    return described


def _config(
    name: str,
    value: str | None,
    kind: ConfigType,
    origin: tuple[SourcedValue, ...],
    *,
    fixed: bool = False,
    hidden: bool = False,
) -> _Config:
    """Return a config. ``origin`` has its value's source first, then the sources it overrides."""
    return _Config(
        name=name,
        value=value,
        read_only=fixed,
        is_sensitive=hidden,
        config_source=origin[0].source if origin else ConfigSource.DEFAULT,
        config_type=kind,
        synonyms=[
            _Synonym(name=name, value=value, source=source) for name, value, source in origin
        ],
    )
