"""Changes of configs of groups by AlterConfigs and IncrementalAlterConfigs (KIP-848)."""

from __future__ import annotations

from collections.abc import Mapping

from kohort.broker.apis._broker_changes import ChangeRefusedError
from kohort.broker.apis._registry import Context
from kohort.broker.configs._group_settings import group_configs_problem
from kohort.errors import ErrorCode


def check_group_name(name: str) -> None:
    """Raise ChangeRefusedError for the empty name, which would stand for all groups."""
    if not name:
        raise ChangeRefusedError(
            ErrorCode.INVALID_REQUEST, "Default group resources are not allowed."
        )


def change_group(
    ctx: Context, group_id: str, configs: Mapping[str, str], *, validate_only: bool
) -> None:
    """Replace the configs of a group. ChangeRefusedError if one of them is not valid."""
    brokers, node = ctx.broker.cluster.configs, ctx.broker.node

    def broker_value(name: str) -> str:
        return brokers.origins(name, node)[0].value or ""

    problem = group_configs_problem(configs, broker_value)
    if problem is not None:
        raise ChangeRefusedError(ErrorCode.INVALID_CONFIG, problem)
    if not validate_only:
        ctx.broker.cluster.configs.groups.change(group_id, configs)
        ctx.broker.cluster.settings_changed()
