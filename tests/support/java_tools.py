"""Kafka's own command-line classes as separate processes, on any cluster."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from tests.support import supervise
from tests.support.jars import jars
from tests.support.needs import java

JVM = (
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-Xshare:auto",
    "-Djava.awt.headless=true",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
)
TOOL_HEAP = "-Xmx256m"
END_S = 90.0


class ToolError(AssertionError):
    """A tool ended with another status than 0. The message has its output."""


def java_command(
    main_class: str,
    *args: object,
    folder: Path | None = None,
    heap: str = TOOL_HEAP,
    level: str = "warn",
) -> list[str]:
    """Return the command for a class of the jars in ``folder``, Kafka's own by default."""
    program = java()
    assert program is not None
    log_level = f"-Dorg.slf4j.simpleLogger.defaultLogLevel={level}"
    class_path = f"{folder or jars()}/*"
    return [program, heap, *JVM, log_level, "-cp", class_path, main_class, *map(str, args)]


def run_tool(main_class: str, *args: object, stdin: str = "", timeout_s: float = 60.0) -> str:
    """Run a tool to its end and return its output. Raise ToolError if its exit status is not 0."""
    done = subprocess.run(
        java_command(main_class, *args),
        input=stdin,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    if done.returncode != 0:
        raise ToolError(f"{main_class} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


class RunningTool:
    """Tool that runs until it is ended. ``lines`` grows with its output.

    The process ends when this one does.
    """

    def __init__(self, *command: str, env: Mapping[str, str] | None = None) -> None:
        self.lines: list[str] = []
        self.errors: list[str] = []
        self._process = subprocess.Popen(
            [sys.executable, supervise.__file__, *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=env,
        )
        self._readers = [
            threading.Thread(target=self._read, args=pair, daemon=True)
            for pair in (
                (self._process.stdout, self.lines),
                (self._process.stderr, self.errors),
            )
        ]
        for reader in self._readers:
            reader.start()

    @property
    def pid(self) -> int:
        """Id of the process whose child the tool is."""
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """True if the process is running."""
        return self._process.poll() is None

    def end(self) -> int:
        """End it with SIGTERM and return its exit status. All of its output is read by then."""
        self._process.terminate()
        try:
            self._process.wait(END_S)
        finally:
            self.kill()
        return self._process.returncode

    def kill(self) -> None:
        """Kill it immediately, as a crash would."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(END_S)
        for reader in self._readers:
            reader.join(END_S)
        for stream in (self._process.stdout, self._process.stderr):
            assert stream is not None
            stream.close()

    @staticmethod
    def _read(stream: IO[str], into: list[str]) -> None:
        for line in stream:
            into.append(line.rstrip("\n"))
