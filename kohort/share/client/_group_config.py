"""The start of a share group, which only a config of the group decides."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kohort.admin._topics import ConfigResource, alter_configs, describe_configs

if TYPE_CHECKING:
    from kohort.consumer.engine._engine import Engine

START: Final = "share.auto.offset.reset"


async def set_start(engine: Engine, group_id: str, start: str, seconds: float) -> None:
    """Set where a group begins, unless the group has a value for it.

    Raise the error of the brokers, for example if this client may not change the group.
    """
    resource = ConfigResource("group", group_id)
    described = await describe_configs(engine, [resource], seconds)
    entry = described[resource].get(START)
    if entry is not None and entry.source == "group":
        return
    changed = await alter_configs(engine, {resource: {START: start}}, False, seconds)
    changed.raise_errors()


async def group_configs(engine: Engine, group_id: str, seconds: float) -> dict[str, str | None]:
    """Return the configs of a group by name, with the defaults of the brokers."""
    resource = ConfigResource("group", group_id)
    described = await describe_configs(engine, [resource], seconds)
    return {name: entry.value for name, entry in described[resource].items()}
