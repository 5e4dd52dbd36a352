"""Code blocks of Markdown pages, extracted and run as a reader would run them from a file."""

from __future__ import annotations

import os
import re
import subprocess
import sys
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


def run_python(code: str, folder: Path, timeout_s: float = 50.0) -> str:
    """Run code as a script in ``folder`` and return its output. Fail with its traceback.

    Tests are run by pytest, in the same way.
    """
    script = folder / "test_snippet.py"
    script.write_text(code)
    command = [sys.executable, "-W", "error", *KAFKA_PYTHON_WARNINGS]
    if re.search(r"^(async )?def test_", code, re.MULTILINE):
        command += ["-m", "pytest", "-p", "pytest_kohort", "-q", "-W", "error"]
    done = subprocess.run(
        [*command, str(script)],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    return done.stdout
