"""Spark applications that a test starts, commands and kills."""

from __future__ import annotations

import dataclasses
import json
import os
import queue
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.spark_connector.end_to_end import application, processes
from tests.spark_connector.end_to_end.queries import Plan
from tests.spark_connector.end_to_end.waiting import DEADLINE_S

ROOT = Path(__file__).parents[3]
ANSWER_S = DEADLINE_S + 60.0
"""Longer than the waits of a command, so that their error is the one that is shown."""
END_S = 60.0
SETTINGS = {
    "spark.master": "local[2]",
    "spark.ui.enabled": "false",
    "spark.log.level": "ERROR",
    "spark.driver.memory": "512m",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.shuffle.partitions": "2",
}


def environment() -> dict[str, str]:
    """Return the environment with this Python, this project, and only the loopback interface."""
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    return {
        **os.environ,
        "PYTHONPATH": path,
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


class ApplicationProcess:
    """A running application. Its process and its JVM are ended when its ``with`` block ends."""

    def __init__(self, folder: Path, **settings: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._errors = folder / "application.log"
        self._answers: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        words = ["-m", application.__name__, json.dumps(SETTINGS | settings)]
        with self._errors.open("ab") as errors:
            self._process = subprocess.Popen(
                [sys.executable, *words],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                cwd=folder,
                env=environment(),
            )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self._jvm: int | None = None

    @property
    def jvm(self) -> int:
        """Process of its JVM. The property waits for the start of the JVM."""
        if self._jvm is None:
            self._jvm = int(self._answer())
        return self._jvm

    def start(self, plan: Plan) -> None:
        """Start a query."""
        self.do("start", **dataclasses.asdict(plan))

    def do(self, command: str, **given: object) -> Any:
        """Send a command and return its result. Raise the error of the application."""
        assert self.jvm and self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": command, **given}) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def kill(self, *, with_sources: bool = False) -> None:
        """Kill the JVM and the driver, and with ``with_sources`` the processes of the sources.

        A second call does nothing, because the system may have given the ids to other processes.
        """
        if self._process.returncode is not None:
            return
        with suppress(AssertionError):
            sources = processes.runners(self.jvm) if with_sources else set()
            processes.kill(self.jvm, *sources)
        self._process.kill()
        self._process.wait(END_S)
        self._reader.join(END_S)
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            with suppress(BrokenPipeError):
                stream.close()

    def __enter__(self) -> ApplicationProcess:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.kill()

    def _answer(self) -> Any:
        try:
            line = self._answers.get(timeout=ANSWER_S)
        except queue.Empty:
            line = None
        log = self._errors.read_text(errors="replace").splitlines()[-40:]
        assert line is not None, "the application does not answer:\n" + "\n".join(log)
        answer = json.loads(line)
        assert "error" not in answer, answer["error"]
        return answer["result"]

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                self._answers.put(line)
        self._answers.put(None)
