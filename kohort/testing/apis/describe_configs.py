"""DescribeConfigs (32), versions 1-4. Version 1 adds synonyms, 3 types and documentation.

Topics show all their settings. Brokers have the few that the cluster itself goes by; what they
have in common and may change while they run, which is asked for without a broker's id, is nothing.
"""

from __future__ import annotations

from kohort.errors import ErrorCode
from kohort.protocol.messages import DescribeConfigsRequest, DescribeConfigsResponse
from kohort.testing._topic_settings import TOPIC_SETTINGS, ConfigSource, ConfigType, SourcedValue
from kohort.testing._topics import is_legal_name
from kohort.testing.apis._registry import Context, serves

TOPIC, BROKER = 2, 4

_Asked = DescribeConfigsRequest.DescribeConfigsResource
_Result = DescribeConfigsResponse.DescribeConfigsResult
_Config = DescribeConfigsResponse.DescribeConfigsResourceResult
_Synonym = DescribeConfigsResponse.DescribeConfigsSynonym


class _Refused(Exception):
    """Some errors of Kafka say more, some do not."""

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


def _describe(ctx: Context, request: DescribeConfigsRequest, asked: _Asked) -> _Result:
    result = _Result(resource_type=asked.resource_type, resource_name=asked.resource_name)
    try:
        configs = _configs(ctx, asked)
    except _Refused as error:
        result.error_code, result.error_message = error.code, str(error)
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


def _configs(ctx: Context, asked: _Asked) -> list[_Config]:
    if asked.resource_type == TOPIC:
        return _topic_configs(ctx, asked.resource_name)
    if asked.resource_type != BROKER:
        raise _Refused(
            ErrorCode.INVALID_REQUEST, f"Nothing of type {asked.resource_type} has settings here."
        )
    if not asked.resource_name:
        return []
    if asked.resource_name != str(ctx.broker.node.id):
        raise _Refused(
            ErrorCode.INVALID_REQUEST,
            f"This is broker {ctx.broker.node.id}, not {asked.resource_name!r}.",
        )
    return _broker_configs(ctx)


def _topic_configs(ctx: Context, name: str) -> list[_Config]:
    if not is_legal_name(name):
        raise _Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name!r} is not a topic's name.")
    topic = ctx.broker.cluster.topics.get(name)
    if topic is None:
        raise _Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return [
        _config(
            setting,
            topic.config(setting),
            kind,
            inherited
            if setting not in topic.configs
            else (SourcedValue(setting, topic.configs[setting], ConfigSource.TOPIC), *inherited),
        )
        for setting, (_, kind, _, inherited) in TOPIC_SETTINGS.items()
    ]


def _config(
    name: str,
    value: str,
    kind: ConfigType,
    origin: tuple[SourcedValue, ...],
    *,
    fixed: bool = False,
) -> _Config:
    """``origin``: where the value comes from, and from where it would come else."""
    return _Config(
        name=name,
        value=value,
        read_only=fixed,
        config_source=origin[0].source if origin else ConfigSource.DEFAULT,
        config_type=kind,
        synonyms=[
            _Synonym(name=name, value=value, source=source) for name, value, source in origin
        ],
    )


def _broker_configs(ctx: Context) -> list[_Config]:
    """Each with Kafka's default; what is not that was given to the cluster."""
    config = ctx.broker.cluster.config
    groups = config.groups
    switch = str(config.auto_create_topics).lower()
    configs = []
    for name, value, default, kind in (
        ("auto.create.topics.enable", switch, "true", ConfigType.BOOLEAN),
        ("broker.id", ctx.broker.node.id, "-1", ConfigType.INT),
        (
            "group.initial.rebalance.delay.ms",
            groups.initial_rebalance_delay_ms,
            "3000",
            ConfigType.INT,
        ),
        ("group.max.session.timeout.ms", groups.max_session_timeout_ms, "1800000", ConfigType.INT),
        ("group.max.size", groups.max_size, "2147483647", ConfigType.INT),
        ("group.min.session.timeout.ms", groups.min_session_timeout_ms, "6000", ConfigType.INT),
        (
            "log.retention.check.interval.ms",
            config.log_retention_check_interval_ms,
            "300000",
            ConfigType.LONG,
        ),
        ("num.partitions", config.default_partitions, "1", ConfigType.INT),
        ("offset.metadata.max.bytes", groups.offset_metadata_max_bytes, "4096", ConfigType.INT),
        (
            "offsets.retention.check.interval.ms",
            groups.offsets_retention_check_interval_ms,
            "600000",
            ConfigType.LONG,
        ),
        ("offsets.retention.minutes", groups.offsets_retention_minutes, "10080", ConfigType.INT),
        ("socket.request.max.bytes", config.max_request_bytes, "104857600", ConfigType.INT),
    ):
        origin: tuple[SourcedValue, ...] = (SourcedValue(name, default, ConfigSource.DEFAULT),)
        if str(value) != default or name == "auto.create.topics.enable":
            origin = (SourcedValue(name, str(value), ConfigSource.STATIC_BROKER), *origin)
        configs.append(_config(name, str(value), kind, origin, fixed=True))
    return configs
