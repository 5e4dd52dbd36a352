"""Changes of broker configs while the brokers run (KIP-226)."""

from __future__ import annotations

from collections.abc import Mapping

from kohort.broker.apis._registry import Context
from kohort.broker.configs._broker_configs import MIN_ISR, setting_of
from kohort.broker.configs._config_types import ConfigType
from kohort.broker.configs._group_settings import ASSIGNMENT_INTERVAL
from kohort.errors import ErrorCode

_BY_LISTENER = ("ssl.key", "ssl.truststore.")
_ALGORITHM = "ssl.keymanager.algorithm"


class ChangeRefusedError(Exception):
    """Refusal to change settings."""

    def __init__(self, code: ErrorCode, message: str | None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def changeable_broker(ctx: Context, name: str) -> int | None:
    """Return the id of the broker to change, None for all brokers; ChangeRefusedError for
    others.
    """
    if not name:
        return None
    if name != str(ctx.broker.node.id):
        raise ChangeRefusedError(
            ErrorCode.INVALID_REQUEST, f"This is broker {ctx.broker.node.id}, not {name!r}."
        )
    return ctx.broker.node.id


def check_broker_values(ctx: Context, node_id: int | None, configs: Mapping[str, str]) -> None:
    """Raise ChangeRefusedError if one of the configs cannot be set, or not to this value."""
    for name, value in configs.items():
        setting = setting_of(name)
        problem = None
        if setting.type is not ConfigType.UNKNOWN:
            if not setting.is_dynamic:
                problem = f"Brokers read {name} when they start."
            elif name.startswith(_BY_LISTENER) and name != _ALGORITHM:
                problem = f"{name} changes for one listener only."
            elif setting.is_per_broker and node_id is None:
                problem = f"{name} changes for one broker only."
            else:
                problem = setting.problem(value)
        if problem is None and name == f"group.{ASSIGNMENT_INTERVAL}":
            problem = _interval_problem(ctx, name, int(value))
        if problem is not None:
            raise ChangeRefusedError(ErrorCode.INVALID_REQUEST, problem)


def _interval_problem(ctx: Context, name: str, value: int) -> str | None:
    """Return the reason why an assignment interval is outside of the broker's bounds."""
    limits = ctx.broker.cluster.config.groups
    low, high = limits.bounds_of("assignment_interval_ms")
    if value < low:
        return f"{name} must be greater than or equal to group.consumer.min.assignment.interval.ms"
    if value > high:
        return f"{name} must be less than or equal to group.consumer.max.assignment.interval.ms"
    return None


def change_broker(
    ctx: Context, node_id: int | None, configs: Mapping[str, str], *, validate_only: bool
) -> None:
    """Replace the changed configs of one broker, None for all brokers."""
    if node_id is None and MIN_ISR not in configs:
        raise ChangeRefusedError(
            ErrorCode.INVALID_CONFIG, f"{MIN_ISR} of the cluster cannot be removed."
        )
    if node_id is not None and MIN_ISR in configs:
        raise ChangeRefusedError(
            ErrorCode.INVALID_CONFIG, f"{MIN_ISR} changes for all brokers only."
        )
    if not validate_only:
        ctx.broker.cluster.configs.change(node_id, configs)
        ctx.broker.cluster.settings_changed()
