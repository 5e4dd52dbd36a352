"""Write the sync API from the async one: ``python -m tools.sync_api [--check]``.

The methods of both say the same, and their drivers differ. Each rule is a regular expression and
its replacement. A rule that matches nothing is an error, so that none outlives its reason.
"""

from __future__ import annotations

import re
import subprocess
import sys
from functools import partial
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "kohort"

WRITTEN = """\
Written by ``python -m tools.sync_api`` from ``_async.py``. Change that file instead. Only the
docstring of the class is written here."""
FUNCTIONS_WRITTEN = """\
Written by ``python -m tools.sync_api`` from ``_async.py``. Change that file instead."""
CLASS_DOCSTRING = re.compile(r'(?ms)(?<=^class )(\w+\(.*?\):\n)    (""".*?""")')
"""The one text that differs as a whole. Both modules have their own, written by hand."""

COMMON_RULES = (
    (r"\bThe async (.* runs the engine in) .*", r"The sync \1 a daemon thread."),
    (r"\n``python -m tools.sync_api`` writes .*", f"\n{WRITTEN}"),
    (r"\basync def ", "def "),
    (r"\bawait (?=self\.)", ""),
    (r"await close\(\), or use an async with block", "call close(), or use a with block"),
    (r"_task_driver\b", "_thread_driver"),
    (r"\bTaskDriver\b", "ThreadDriver"),
)
ADMIN_RULES = (
    (r"__a(enter|exit)__", r"__\1__"),
    (r"\bAsync(KafkaAdminClient)\b(?=[\[(])", r"\1"),
    *COMMON_RULES,
)
SHARE_RULES = (
    (r"__a(enter|exit|iter|next)__", r"__\1__"),
    (r"\bAsync(ShareConsumer)\b(?=[\[(])", r"\1"),
    (r"import AsyncCommitFuture", "import CommitFuture"),
    (r"\) -> AsyncCommitFuture:", ") -> Future[None]:"),
    (r"AsyncCommitFuture\(\)", "CommitFuture.of_call(self._driver.request_seconds)"),
    (r"(from collections.abc import .*)", r"\1\nfrom concurrent.futures import Future"),
    *COMMON_RULES,
)
READING_RULES = (
    (r"\n``python -m tools.sync_api`` writes (.*\n)*?\"\"\"", f'\n{FUNCTIONS_WRITTEN}\n"""'),
    (r"with the async clients", "with the sync clients"),
    (r"``await kohort\.read_async", "``kohort.read"),
    (r"\b(read|read_batches|read_bounds|find_bounds)_async\b", r"\1"),
    (r"async for part in parts:\n +yield part\n", "yield from parts\n"),
    (r"\basync (def|with|for) ", r"\1 "),
    (r"\bawait ", ""),
    (r"\baclosing\b", "closing"),
    (r"\bAsync(KafkaAdminClient|KafkaConsumer)\b", r"\1"),
    (r"\bAsyncGenerator\[RecordTable, None\]", "Generator[RecordTable, None, None]"),
    (r"\bAsyncGenerator\b", "Generator"),
    (r"(?m)^import anyio\n", "import time\n"),
    (r"anyio\.current_time\(\)", "time.monotonic()"),
)
RULES = (
    (r"Coroutine\[Any, Any, (.*)\]:", r"\1:"),
    (r"Callable, Coroutine, Iterable", "Callable, Iterable"),
    (r"(from collections.abc import .*)", r"\1\nfrom concurrent.futures import Future"),
    (r"from \S*_commit_future import .*\n", ""),
    (r"AsyncCommitFuture", "Future[None]"),
    (r"__a(enter|exit|iter|next)__", r"__\1__"),
    (r"\bAsync(KafkaConsumer)\b(?=[\[(])", r"\1"),
    (r"\bAsync(RebalanceListener|ConsumerOptions)\b", r"\1"),
    (r"\bAsyncIteration\b", "SyncIteration"),
    *COMMON_RULES,
)
FOLDERS = {
    PACKAGE / "consumer" / "api": RULES,
    PACKAGE / "admin": ADMIN_RULES,
    PACKAGE / "share": SHARE_RULES,
    PACKAGE / "reading": READING_RULES,
}
"""Folders with a module ``_async.py``, and the rules that make ``_sync.py`` of it."""


def sync_text(folder: Path) -> str:
    """Return the text of the sync API in a folder."""
    source, target = folder / "_async.py", folder / "_sync.py"
    text = source.read_text()
    for _, docstring in CLASS_DOCSTRING.findall(target.read_text() if target.exists() else ""):
        text = CLASS_DOCSTRING.sub(partial(_with_docstring, docstring), text)
    for pattern, replacement in FOLDERS[folder]:
        text, count = re.subn(pattern, replacement, text)
        if not count:
            name = source.relative_to(PACKAGE)
            sys.exit(f"the rule {pattern!r} matches nothing in {name}: remove or correct it")
    return formatted(text, target)


def _with_docstring(docstring: str, found: re.Match[str]) -> str:
    return f"{found[1]}    {docstring}"


def formatted(text: str, path: Path) -> str:
    """Return the text of a module as ruff formats it, with sorted imports."""
    for options in (["check", "--quiet", "--select", "I", "--fix"], ["format", "--quiet"]):
        command = [sys.executable, "-m", "ruff", *options, "--stdin-filename", str(path), "-"]
        text = subprocess.run(
            command, input=text, capture_output=True, text=True, check=True
        ).stdout
    return text


def main() -> None:
    """Write the files, or with ``--check`` fail if one is not current."""
    for folder in FOLDERS:
        path, text = folder / "_sync.py", sync_text(folder)
        if sys.argv[1:] != ["--check"]:
            path.write_text(text)
        elif path.read_text() != text:
            sys.exit(f"{path.relative_to(PACKAGE)} is not current: run python -m tools.sync_api")


if __name__ == "__main__":
    main()
