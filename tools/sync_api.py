"""Write the sync API from the async one: ``python -m tools.sync_api [--check]``.

The methods of both say the same, and their drivers differ. Each rule is a regular expression and
its replacement. A rule that matches nothing is an error, so that none outlives its reason.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

API = Path(__file__).parents[1] / "kohort" / "consumer" / "api"
SOURCE, TARGET = API / "_async.py", API / "_sync.py"

MODULE = '''"""The sync API. Its driver runs the engine in a daemon thread, the consumer thread.

Written by ``python -m tools.sync_api`` from ``_async.py``. Change that file instead.
"""'''
CONSUMER = '''\
    """A client that reads topics, alone or as a member of a consumer group.

    ``KafkaConsumer("orders", bootstrap_servers="localhost:9092", group_id="billing")``

    ``docs/reference/options.md`` lists all options. The constructor does no I/O. It raises only
    UnknownOptionError, InvalidOptionError and UnsupportedOptionError.

    Only one thread at a time may use a consumer. Listeners, deserializers and assignors are called
    on that thread, inside poll(), iteration, close() and unsubscribe().

    With automatic commits, leaving a ``with`` block commits all positions. If an exception leaves
    the block, the records of the last poll(), or the current record of an iteration, are not
    committed. They are read again after a restart.

    Every call has a time limit, also if the consumer thread does not respond. The limit is its
    ``timeout_ms``, or else ``request_timeout_ms``, plus one second. After it the call raises
    KafkaTimeoutError. If the system refuses a thread, calls that need one raise ThreadStartError,
    and a later call tries again.
    """'''

RULES = (
    (r'(?s)\A""".*?"""', MODULE),
    (r'(?s)    """A client that reads topics.*?"""', CONSUMER),
    (r"Coroutine\[Any, Any, (.*)\]:", r"\1:"),
    (r"Callable, Coroutine, Iterable", "Callable, Iterable"),
    (r"(from collections.abc import .*)", r"\1\nfrom concurrent.futures import Future"),
    (r"from \S*_commit_future import .*\n", ""),
    (r"AsyncCommitFuture", "Future[None]"),
    (r"\basync def ", "def "),
    (r"\bawait (?=self\.)", ""),
    (r"await close\(\), or use an async with block", "call close(), or use a with block"),
    (r"__a(enter|exit|iter|next)__", r"__\1__"),
    (r"\bAsync(KafkaConsumer)\b(?=[\[(])", r"\1"),
    (r"\bAsync(RebalanceListener|ConsumerOptions)\b", r"\1"),
    (r"\bAsyncIteration\b", "SyncIteration"),
    (r"_task_driver\b", "_thread_driver"),
    (r"\bTaskDriver\b", "ThreadDriver"),
)


def sync_text() -> str:
    """Return the text of the sync API."""
    text = SOURCE.read_text()
    for pattern, replacement in RULES:
        text, count = re.subn(pattern, replacement, text)
        if not count:
            sys.exit(f"the rule {pattern!r} matches nothing in {SOURCE.name}: remove or correct it")
    return formatted(text, TARGET)


def formatted(text: str, path: Path) -> str:
    """Return the text of a module as ruff formats it, with sorted imports."""
    for options in (["check", "--quiet", "--select", "I", "--fix"], ["format", "--quiet"]):
        command = [sys.executable, "-m", "ruff", *options, "--stdin-filename", str(path), "-"]
        text = subprocess.run(
            command, input=text, capture_output=True, text=True, check=True
        ).stdout
    return text


def main() -> None:
    """Write the file, or with ``--check`` fail if it is not current."""
    text = sync_text()
    if sys.argv[1:] != ["--check"]:
        TARGET.write_text(text)
    elif TARGET.read_text() != text:
        sys.exit(f"{TARGET.name} is not current: run python -m tools.sync_api")


if __name__ == "__main__":
    main()
