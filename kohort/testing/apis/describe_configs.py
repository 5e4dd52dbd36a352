"""DescribeConfigs (32), versions 1-4. Version 1 adds synonyms, 3 types and documentation.

Topics show all their settings. Brokers have the few that the cluster itself goes by.
"""

from __future__ import annotations

from kohort.errors import ErrorCode
from kohort.protocol.messages import DescribeConfigsRequest, DescribeConfigsResponse
from kohort.testing._configs import TOPIC_SETTINGS, ConfigType
from kohort.testing.apis._registry import Context, serves

_TOPIC, _BROKER = 2, 4
_DYNAMIC_TOPIC, _STATIC_BROKER, _DEFAULT = 1, 4, 5

_Asked = DescribeConfigsRequest.DescribeConfigsResource
_Result = DescribeConfigsResponse.DescribeConfigsResult
_Config = DescribeConfigsResponse.DescribeConfigsResourceResult
_Synonym = DescribeConfigsResponse.DescribeConfigsSynonym


@serves(DescribeConfigsRequest, (1, 4))
async def describe_configs(
    ctx: Context, request: DescribeConfigsRequest
) -> DescribeConfigsResponse:
    return DescribeConfigsResponse(
        results=[_describe(ctx, request, resource) for resource in request.resources]
    )


def _describe(ctx: Context, request: DescribeConfigsRequest, asked: _Asked) -> _Result:
    result = _Result(resource_type=asked.resource_type, resource_name=asked.resource_name)
    if asked.resource_type == _TOPIC:
        configs = _topic_configs(ctx, asked.resource_name)
        if configs is None:
            result.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            result.error_message = "This server does not host this topic-partition."
            return result
    elif asked.resource_type == _BROKER:
        configs = _broker_configs(ctx)
    else:
        result.error_code = ErrorCode.INVALID_REQUEST
        result.error_message = f"Unsupported resource type: {asked.resource_type}"
        return result
    keys = asked.configuration_keys
    for config in configs:
        # Some clients send an empty list for "all".
        if keys and config.name not in keys:
            continue
        config.documentation = None
        if not request.include_synonyms:
            config.synonyms = []
        result.configs.append(config)
    return result


def _topic_configs(ctx: Context, name: str) -> list[_Config] | None:
    topic = ctx.broker.cluster.topics.get(name)
    if topic is None:
        return None
    configs = []
    for setting, (default, kind) in TOPIC_SETTINGS.items():
        synonyms = [_Synonym(name=setting, value=default, source=_DEFAULT)]
        source = _DEFAULT
        if setting in topic.configs:
            source = _DYNAMIC_TOPIC
            own = _Synonym(name=setting, value=topic.configs[setting], source=source)
            synonyms.insert(0, own)
        configs.append(
            _Config(
                name=setting,
                value=topic.config(setting),
                config_source=source,
                config_type=kind,
                synonyms=synonyms,
            )
        )
    return configs


def _broker_configs(ctx: Context) -> list[_Config]:
    config = ctx.broker.cluster.config
    groups = config.groups
    values = (
        ("auto.create.topics.enable", str(config.auto_create_topics).lower(), ConfigType.BOOLEAN),
        ("broker.id", ctx.broker.node.id, ConfigType.INT),
        (
            "group.initial.rebalance.delay.ms",
            groups.initial_rebalance_delay_ms,
            ConfigType.INT,
        ),
        ("group.max.session.timeout.ms", groups.max_session_timeout_ms, ConfigType.INT),
        ("group.max.size", groups.max_size, ConfigType.INT),
        ("group.min.session.timeout.ms", groups.min_session_timeout_ms, ConfigType.INT),
        ("num.partitions", config.default_partitions, ConfigType.INT),
        ("offset.metadata.max.bytes", groups.offset_metadata_max_bytes, ConfigType.INT),
        ("socket.request.max.bytes", config.max_request_bytes, ConfigType.INT),
    )
    return [
        _Config(
            name=name,
            value=str(value),
            read_only=True,
            config_source=_STATIC_BROKER,
            config_type=kind,
            synonyms=[_Synonym(name=name, value=str(value), source=_STATIC_BROKER)],
        )
        for name, value, kind in values
    ]
