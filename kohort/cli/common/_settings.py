"""Settings as arguments: ``NAME=VALUE``, and those of groups."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from kohort.cli.common._tables import table, undo_text
from kohort.types import escaped

if TYPE_CHECKING:
    from kohort import KafkaAdminClient
    from kohort.admin import ConfigEntry


def add_to(group: argparse._ArgumentGroup, *, text: str) -> None:
    """Add the option ``--config``, whose help is ``text``."""
    group.add_argument(
        "--config",
        action="append",
        type=_name_and_value,
        default=[],
        metavar="NAME=VALUE",
        help=f"{text} (repeatable)",
    )


def _name_and_value(text: str) -> tuple[str, str]:
    """Return the parts of ``NAME=VALUE``."""
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value


def configure(options: argparse.Namespace, admin: KafkaAdminClient, names: list[str]) -> int:
    """Show the settings of a group, or change some of them."""
    from kohort.admin import ConfigResource

    [group] = names
    resource = ConfigResource("group", group)
    timeout_ms = options.timeout * 1000
    before = admin.describe_configs([resource], timeout_ms).raise_errors()[resource]
    changes: dict[str, str | None] = {**dict(options.config), **dict.fromkeys(options.unset)}
    if changes:
        done = admin.alter_configs({resource: changes}, timeout_ms=timeout_ms)
        done.raise_errors()
    former = {name: _own(before.get(name)) for name in changes}
    if options.json and changes:
        made = {name: {"before": former[name], "after": value} for name, value in changes.items()}
        print(json.dumps({"group": group, "changes": made}, indent=1))
    elif options.json:
        shown = {
            name: {"value": each.value, "source": each.source} for name, each in before.items()
        }
        print(json.dumps({"group": group, "settings": shown}, indent=1))
    elif changes:
        print(f"The settings of {escaped(group)} are changed.\n{_undo(group, former)}")
    else:
        rows = [
            [name, escaped(each.value or "-"), each.source] for name, each in sorted(before.items())
        ]
        print(table(["SETTING", "VALUE", "FROM"], rows))
    return 0


def _own(entry: ConfigEntry | None) -> str | None:
    """Return the value that the group has itself, or None."""
    return entry.value if entry is not None and entry.source == "group" else None


def _undo(group: str, former: Mapping[str, str | None]) -> str:
    """Return the command for the way back."""
    words = ["configure", group]
    for name, value in former.items():
        words += ["--unset", name] if value is None else ["--config", f"{name}={value}"]
    return undo_text(*words)
