"""Code blocks of Markdown pages, extracted and run as a reader would run them from a file."""

from __future__ import annotations

import atexit
import builtins
import functools
import gc
import importlib
import os
import re
import select
import signal
import subprocess
import sys
import threading
import types
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]
NOT_RUN = "# not run"
RUN_ELSEWHERE = "# not run by itself: "
"""First line of a block that needs more than a process, which a test of its page provides."""
FENCED = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
SHOWN = re.compile(r"\n((?:.+\n)+)\n```text\n((?:.*\n)*?)```$", re.MULTILINE)

KAFKA_PYTHON_WARNINGS = [
    f"-Wignore:{name} is deprecated:DeprecationWarning" for name in ("read_text", "open_text")
]
"""kafka-python reads its schemas with functions that Python 3.11 and 3.12 call deprecated."""

ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
PYTHON = [sys.executable, "-W", "error", *KAFKA_PYTHON_WARNINGS]

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FRAGMENTS = ("architecture.md",)
"""Pages with fragments of signatures, which cannot run."""
EXAMPLES = sorted((ROOT / "examples").glob("[!_]*.py"))


def python_blocks(page: Path) -> Iterator[tuple[int, str]]:
    """Yield line and text of every ``python`` block that is not marked ``# not run``."""
    text = page.read_text()
    for match in FENCED.finditer(text):
        if not match[1].startswith(NOT_RUN):
            yield text.count("\n", 0, match.start(1)) + 1, match[1]


def run_elsewhere(page: Path) -> list[str]:
    """Return the blocks of a page that a test of this page runs."""
    return [code for code in FENCED.findall(page.read_text()) if code.startswith(RUN_ELSEWHERE)]


def replaced(code: str, texts: Mapping[str, str]) -> str:
    """Return a block with other addresses, paths and names. Each must occur in the block."""
    for old, new in texts.items():
        assert old in code, f"the block does not have {old}"
        code = code.replace(old, new)
    return code


def shown_output(page: Path, code: str) -> str | None:
    """Return the output that a page shows for a block, or None if it shows none.

    The page shows it in a ``text`` block, after one paragraph with the words "It prints".
    """
    after = page.read_text().partition(f"```python\n{code}```\n")[2]
    match = SHOWN.match(after)
    return match[2] if match and "It prints" in match[1].replace("\n", " ") else None


def is_shown(output: str, shown: str) -> bool:
    """True if the output is the shown one, where a line of ``...`` stands for any lines."""
    parts = [re.escape(part) for part in re.split(r"^\.\.\.\n", shown, flags=re.MULTILINE)]
    return re.fullmatch("(?:.*\n)*".join(parts), output) is not None


def run_python(code: str, folder: Path, timeout_s: float = 150.0) -> str:
    """Run code as a script in ``folder`` and return its output. Fail with its traceback.

    Tests are run by pytest, in the same way.
    """
    script = folder / "test_snippet.py"
    script.write_text(code)
    is_test = re.search(r"^(async )?def test_", code, re.MULTILINE) is not None
    if FORKED.search(code) and not is_test and "pyspark" not in code:
        returncode, stdout, stderr = _run_forked(script, timeout_s)
    else:
        pytest = ["-m", "pytest", "-p", "pytest_kohort", "-q", "-W", "error"]
        done = subprocess.run(
            [*PYTHON, *(pytest if is_test else ()), str(script)],
            cwd=folder,
            env=ENVIRONMENT,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        returncode, stdout, stderr = done.returncode, done.stdout, done.stderr
    assert returncode == 0, stdout + stderr
    assert "Traceback" not in stderr, stderr
    return stdout


# -- a process that forks for each program, because most of a program's time is its imports --------

FORKED = re.compile(r"^from kohort\.testing import", re.MULTILINE)
"""Programs that a fork runs."""
IMPORTED = ("kohort.coordinator_client", "anyio._backends._asyncio", "crc32c")
"""What most of these programs import late, all without a thread."""


def _run_forked(script: Path, timeout_s: float) -> tuple[int, str, str]:
    """Return exit code, output and errors of a program."""
    server = _server()
    assert server.stdin is not None and server.stdout is not None
    server.stdin.write(f"{script}\n")
    server.stdin.flush()
    if not select.select([server.stdout], [], [], timeout_s)[0]:
        os.killpg(server.pid, signal.SIGKILL)
        _server.cache_clear()
        raise TimeoutError(f"{script} runs for more than {timeout_s} s")
    returncode = int(server.stdout.readline())
    output, errors = (script.with_suffix(suffix).read_text() for suffix in (".out", ".err"))
    return returncode, output, errors


@functools.cache
def _server() -> subprocess.Popen[str]:
    code = "from tests.support.snippets import serve; serve()"
    pipe = subprocess.PIPE
    server = subprocess.Popen(
        [*PYTHON, "-c", code],
        env=ENVIRONMENT,
        stdin=pipe,
        stdout=pipe,
        text=True,
        start_new_session=True,
    )
    atexit.register(server.communicate)
    return server


def serve() -> None:
    """Fork for each script that is named on stdin, and print the exit code of each."""
    from kohort import AsyncKafkaConsumer, KafkaConsumer  # noqa: F401
    from kohort.testing import Cluster  # noqa: F401

    for name in IMPORTED:
        importlib.import_module(name)
    assert threading.active_count() == 1
    gc.freeze()
    for line in sys.stdin:
        if os.fork() == 0:
            return _become(Path(line.rstrip("\n")))
        print(os.waitstatus_to_exitcode(os.wait()[1]), flush=True)


def _become(script: Path) -> None:
    """Run the script in this process, which then ends as every interpreter does."""
    os.chdir(script.parent)
    files = (Path(os.devnull), script.with_suffix(".out"), script.with_suffix(".err"))
    for number, path in enumerate(files):
        os.dup2(os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC), number)
    sys.argv, sys.path[0] = [str(script)], str(script.parent)
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    vars(main).update(__file__=str(script), __builtins__=builtins)
    exec(compile(script.read_text(), script, "exec", dont_inherit=True), vars(main))
