"""Runs of mypy and pyright over the programs, and the language server of pyright."""

from __future__ import annotations

import ast
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from tests.house._source import ROOT

PROGRAMS = Path(__file__).parent
TIMEOUT = 300
_MYPY_LINE = re.compile(r"(?P<file>[^:]+):(?P<line>\d+): error: .*\[(?P<code>[\w-]+)\]$")
_EXPECTATION = re.compile(r"# expect: mypy (?P<mypy>\S+)(?: \| pyright (?P<pyright>\S+))?$")


class Finding(NamedTuple):
    """Error of a checker in a statement."""

    file: str
    statement: int
    """Line of the first character of the statement."""
    code: str


class Program:
    """Source file with the errors that it expects."""

    def __init__(self, path: Path) -> None:
        self.name = f"{path.parent.name}/{path.name}"
        self.path = path
        self._lines = path.read_text().splitlines()
        self._spans = sorted(
            ((node.end_lineno or node.lineno) - node.lineno, node.lineno, node.end_lineno)
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.stmt)
        )

    def expected(self, checker: str) -> set[Finding]:
        """Return the errors that the comments name. Each comment is about the next line."""
        return {
            Finding(self.name, number + 1, code)
            for number, line in enumerate(self._lines, 1)
            if (match := _EXPECTATION.search(line))
            for code in (match[checker] or "").split(",")
            if code
        }

    def statement(self, line: int) -> int:
        """Return the first line of the smallest statement that has this line."""
        return next(first for _, first, last in self._spans if first <= line <= (last or first))


def programs(folder: str) -> list[Program]:
    """Return the programs of a folder by name."""
    return [Program(path) for path in sorted((PROGRAMS / folder).glob("*.py"))]


def run_mypy(given: Sequence[Program]) -> set[Finding]:
    """Return the errors of ``mypy --strict``, with the project's settings and its cache."""
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--no-error-summary",
        "--hide-error-context",
    ]
    done = subprocess.run(
        [*command, *(str(each.path) for each in given)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    by_name = {each.name: each for each in given}
    found: set[Finding] = set()
    for line in done.stdout.splitlines():
        if match := _MYPY_LINE.match(line):
            # The cache of mypy repeats errors with the folder of an earlier run.
            program = by_name["/".join(Path(match["file"]).parts[-2:])]
            found.add(Finding(program.name, program.statement(int(match["line"])), match["code"]))
    return found


def run_pyright(given: Sequence[Program]) -> set[Finding]:
    """Return the errors of pyright with its standard settings."""
    done = subprocess.run(
        [*_pyright("pyright"), "--outputjson", *(str(each.path) for each in given)],
        cwd=ROOT,
        env=_environment(),
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    by_path = {str(each.path): each for each in given}
    found: set[Finding] = set()
    for each in json.loads(done.stdout)["generalDiagnostics"]:
        if each["severity"] == "error":
            program = by_path[each["file"]]
            line = program.statement(each["range"]["start"]["line"] + 1)
            found.add(Finding(program.name, line, each.get("rule", "syntax")))
    return found


class LanguageServer:
    """Language server of pyright, as an editor runs it."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [*_pyright("pyright-langserver"), "--stdio"],
            cwd=ROOT,
            env=_environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._calls = 0

    def __enter__(self) -> Self:
        root = ROOT.as_uri()
        folders = [{"uri": root, "name": "kohort"}]
        workspace = {"configuration": True, "workspaceFolders": True}
        self.call(
            "initialize",
            {
                "processId": os.getpid(),
                "rootUri": root,
                "workspaceFolders": folders,
                "capabilities": {"workspace": workspace},
            },
        )
        self.notify("initialized", {})
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # The command is a wrapper in Python. Its child is node.
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate()

    def complete(self, text: str, line: int, character: int) -> set[str]:
        """Return the labels that the server offers in a file with this text."""
        uri = (PROGRAMS / "right" / "edited.py").as_uri()
        document = {"uri": uri, "languageId": "python", "version": 1, "text": text}
        self.notify("textDocument/didOpen", {"textDocument": document})
        place = {"line": line, "character": character}
        answer = self.call(
            "textDocument/completion", {"textDocument": {"uri": uri}, "position": place}
        )
        items = answer["items"] if isinstance(answer, dict) else answer
        return {each["label"] for each in items}

    def call(self, method: str, parameters: Any) -> Any:
        """Send a request and return its result. Answer the server's own requests meanwhile."""
        self._calls += 1
        self._send({"id": self._calls, "method": method, "params": parameters})
        while True:
            message = self._receive()
            if "method" in message and "id" in message:
                wanted = message["method"] == "workspace/configuration"
                result: object = [{} for _ in message["params"]["items"]] if wanted else None
                self._send({"id": message["id"], "result": result})
            elif message.get("id") == self._calls:
                assert "error" not in message, message
                return message["result"]

    def notify(self, method: str, parameters: Any) -> None:
        """Send a notification."""
        self._send({"method": method, "params": parameters})

    def _send(self, message: dict[str, Any]) -> None:
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        assert self._process.stdin is not None
        self._process.stdin.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
        self._process.stdin.flush()

    def _receive(self) -> Any:
        assert self._process.stdout is not None
        size = 0
        while line := self._process.stdout.readline().strip():
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                size = int(value)
        assert size, "the language server has ended"
        return json.loads(self._process.stdout.read(size))


def _pyright(name: str) -> list[str]:
    return [str(Path(sys.executable).parent / name)]


def _environment() -> dict[str, str]:
    """Return the environment in which pyright finds this Python and asks no server for updates."""
    folder = str(Path(sys.executable).parent)
    path = os.pathsep.join([folder, os.environ.get("PATH", "")])
    return os.environ | {"PATH": path, "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"}
