"""Write the sync API from the async one: ``python -m tools.sync_api [--check]``.

The methods of both say the same, and their drivers differ. Each rule is a regular expression and
its replacement. A rule that matches nothing is an error, so that none outlives its reason.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "kohort"

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

ADMIN_MODULE = '''"""The sync admin client. Its driver runs the engine in a daemon thread.

Written by ``python -m tools.sync_api`` from ``_async.py``. Change that file instead.
"""'''
ADMIN = '''\
    """A client for the groups, offsets, topics and settings of a cluster.

    ``with KafkaAdminClient(bootstrap_servers="localhost:9092") as admin``

    The constructor does no I/O and takes the options of a connection, which
    ``docs/reference/options.md`` lists. Methods that change or read several resources return
    AdminResults, with an error for each resource that failed.

    Every call has a time limit, also if the client's thread does not respond. The limit is its
    ``timeout_ms``, or else ``request_timeout_ms``, plus one second.
    """'''

SHARE_MODULE = '''"""The sync share consumer. Its driver runs the engine in a daemon thread.

Written by ``python -m tools.sync_api`` from ``_async.py``. Change that file instead.
"""'''
SHARE = '''\
    """A client that takes records of a share group, as many workers share a queue (KIP-932).

    ``with ShareConsumer("jobs", bootstrap_servers="localhost:9092", group_id="workers")``

    A group may have more members than partitions. Each record is locked for one member until it is
    acknowledged, or until its lock expires and the group delivers it again. With the default
    ``acknowledgement="implicit"``, the next poll(), commit() or step of an iteration accepts what
    the call before it returned. An exception in a ``with`` block releases it. With ``"explicit"``
    you call accept(), release(), reject() or renew() for each record.

    ``acquire_mode="record_limit"`` makes ``max_poll_records`` exact (KIP-1206). ``on_error`` says
    what becomes of data that cannot be read: ``reject``, ``release`` or ``raise``. It may be a
    function of the error that returns one of these or ``accept``.

    A group begins with records that are produced after its first fetch. ``start="earliest"`` sets
    the group to begin with all records, unless the group has a setting. Other options are those of
    a connection, ``group_id``, the deserializers and some limits of fetches.

    One thread at a time may poll. Every call has a time limit, also if the client's thread does not
    respond.
    """'''

COMMON_RULES = (
    (r"\basync def ", "def "),
    (r"\bawait (?=self\.)", ""),
    (r"await close\(\), or use an async with block", "call close(), or use a with block"),
    (r"_task_driver\b", "_thread_driver"),
    (r"\bTaskDriver\b", "ThreadDriver"),
)
ADMIN_RULES = (
    (r'(?s)\A""".*?"""', ADMIN_MODULE),
    (r'(?s)    """A client for the groups.*?"""', ADMIN),
    (r"__a(enter|exit)__", r"__\1__"),
    (r"\bAsync(KafkaAdminClient)\b(?=[\[(])", r"\1"),
    *COMMON_RULES,
)
SHARE_RULES = (
    (r'(?s)\A""".*?"""', SHARE_MODULE),
    (r'(?s)    """A client that takes records.*?"""', SHARE),
    (r"__a(enter|exit|iter|next)__", r"__\1__"),
    (r"\bAsync(ShareConsumer)\b(?=[\[(])", r"\1"),
    (r"import AsyncCommitFuture", "import CommitFuture"),
    (r"\) -> AsyncCommitFuture:", ") -> Future[None]:"),
    (r"AsyncCommitFuture\(\)", "CommitFuture.of_call(self._driver.request_seconds)"),
    (r"(from collections.abc import .*)", r"\1\nfrom concurrent.futures import Future"),
    *COMMON_RULES,
)
RULES = (
    (r'(?s)\A""".*?"""', MODULE),
    (r'(?s)    """A client that reads topics.*?"""', CONSUMER),
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
}
"""Folders with a module ``_async.py``, and the rules that make ``_sync.py`` of it."""


def sync_texts() -> dict[Path, str]:
    """Return the text of each sync API by its path."""
    texts = {}
    for folder, rules in FOLDERS.items():
        source = folder / "_async.py"
        text = source.read_text()
        for pattern, replacement in rules:
            text, count = re.subn(pattern, replacement, text)
            if not count:
                name = source.relative_to(PACKAGE)
                sys.exit(f"the rule {pattern!r} matches nothing in {name}: remove or correct it")
        texts[folder / "_sync.py"] = formatted(text, folder / "_sync.py")
    return texts


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
    for path, text in sync_texts().items():
        if sys.argv[1:] != ["--check"]:
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            sys.exit(f"{path.relative_to(PACKAGE)} is not current: run python -m tools.sync_api")


if __name__ == "__main__":
    main()
