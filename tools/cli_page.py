"""Writer of docs/reference/cli.md.

The parser of the command ``kohort`` is the source.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from kohort.cli import parser
from tools.markdown import table, wrapped

PAGE: Final = Path(__file__).parents[1] / "docs" / "reference" / "cli.md"

_HEAD: Final = """\
# The command kohort

With this page you look up the options of `kohort` and its commands. `python -m kohort` is the same
command, for an environment whose `bin` folder is not on the `PATH`.

`python -m tools.generate` writes this page from the parser of the command.
"""
_EXAMPLES: Final = {
    "broker": "kohort broker --port 9092 --topic orders:6",
    "completion": 'eval "$(kohort completion bash)"',
    "copy": "kohort copy orders --to orders.parquet\nkohort copy orders --from -1d --to day.arrow",
    "dead-letters": "kohort dead-letters dlq.billing\nkohort dead-letters dlq.billing --replay",
    "demo": "kohort demo --flights 50000 --no-spark",
    "errors": "kohort errors NoBrokersAvailable\nkohort errors UNKNOWN_MEMBER_ID\nkohort errors 25",
    "groups": "kohort groups\nkohort groups billing --during 5\nkohort groups --fail-above 5m\n"
    "kohort groups reset billing --to -2h --execute",
    "proxy": "kohort proxy --to localhost:9092 --port 19092 --disconnect 0.01",
    "produce": "kohort produce orders lines.txt --key-separator :\n"
    """echo '{"key": "alice", "value": {"item": "tea"}}' | kohort produce orders --json""",
    "spark-compile": "kohort spark-compile --output /tmp/pyspark.zip",
    "tail": "kohort tail orders\nkohort tail orders --from -5m --format '%t[%p]@%o %k %v'",
    "top": "kohort top\nkohort top billing --interval 2 --sort read\nkohort top --count 1 --json",
    "topics": "kohort topics\nkohort topics orders\nkohort topics create orders --partitions 6",
}
_NEXT: Final = "Next: [public names](api.md).\n"


def page() -> str:
    """Return the text of the page."""
    found = parser()
    parts = [_HEAD, *_table(found)]
    for name, command in _commands(found).items():
        parts += [f"## `kohort {name}`\n", wrapped(command.description or "") + "\n"]
        parts += [f"```sh\n{_EXAMPLES[name]}\n```\n", *_table(command)]
    return "\n".join([*parts, _NEXT])


def _commands(found: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    [choices] = (
        action.choices
        for action in found._actions
        if isinstance(action, argparse._SubParsersAction)
    )
    return dict(choices)


def _table(found: argparse.ArgumentParser) -> Iterator[str]:
    rows = []
    for action in found._actions:
        if action.option_strings and action.help:
            names = ", ".join(f"`{name}`" for name in action.option_strings)
            value = action.metavar or (action.dest.upper() if action.nargs != 0 else "")
            value = f"[{value}]" if action.nargs == "?" else value
            shown = f"{names} `{value}`" if value else names
            rows.append((shown, " ".join((action.help % _values(action)).split())))
    yield from table(("option", "meaning"), rows)
    yield ""


def _values(action: argparse.Action) -> dict[str, object]:
    return {**vars(action), "prog": "kohort"}
