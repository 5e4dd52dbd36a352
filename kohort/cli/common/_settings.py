"""Settings as arguments: ``NAME=VALUE``, and those of groups."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from kohort.cli.common._tables import table

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
    if options.json:
        shown = {
            name: {"value": each.value, "source": each.source} for name, each in before.items()
        }
        found = {"group": group, "settings": shown, "changes": changes}
        print(json.dumps(found, indent=1))
    elif changes:
        print(f"The settings of {group} are changed.\n{_undo(group, before, changes)}")
    else:
        rows = [[name, each.value or "-", each.source] for name, each in sorted(before.items())]
        print(table(["SETTING", "VALUE", "FROM"], rows))
    return 0


def _undo(group: str, before: Mapping[str, ConfigEntry], changes: Mapping[str, str | None]) -> str:
    """Return the command for the way back."""
    words = [f"Undo: kohort groups configure {group}"]
    for name in changes:
        entry = before.get(name)
        if entry is None or entry.source != "group":
            words.append(f"--unset {name}")
        else:
            words.append(f"--config {name}={entry.value}")
    return " ".join(words)
