"""Member processes of the demo, as the demo starts and stops them."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import IO, Any

CLONE = Path(__file__).parents[2]
"""Folder that has the package ``examples``."""

Report = tuple["DemoMember", dict[str, Any] | None]
"""Member and its report, or None at the end of its output."""


SESSION_MS = 6_000
"""Session timeout of the group, so that a killed member is removed soon."""


class DemoMember:
    """Member process. Its reports go into a queue that all members share."""

    module = "examples.demo.member"
    reports_on_stderr = False
    """True if the standard error has reports too, among other lines."""

    def __init__(self, name: str, arguments: list[str], reports: queue.Queue[Report]) -> None:
        self.name = name
        self.ended_by = ""
        self.rebalances = 0
        self.reports_by_event: dict[str, dict[str, Any]] = {}
        """Reports of single events: ``left``, ``ready`` and ``counted``."""
        self._reports = reports
        # Python processes of Spark import the listener of the query by this path, too.
        path = os.pathsep.join(filter(None, [str(CLONE), os.environ.get("PYTHONPATH")]))
        self._process = subprocess.Popen(
            [sys.executable, "-m", self.module, *arguments, name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE if self.reports_on_stderr else None,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONPATH": path},
        )
        self._streams = [
            stream for stream in (self._process.stdout, self._process.stderr) if stream is not None
        ]
        self._readers = [
            threading.Thread(target=self._read, args=(stream,), daemon=True)
            for stream in self._streams
        ]
        for reader in self._readers:
            reader.start()

    @property
    def pid(self) -> int:
        """Id of the process."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """True if the process runs."""
        return self._process.poll() is None

    @property
    def running(self) -> bool:
        """True if the member has neither been killed nor got the order to leave."""
        return not self.ended_by

    def _read(self, stream: IO[str]) -> None:
        for line in stream:
            if line.startswith("{") and line.endswith(
                "}\n"
            ):  # a killed process may leave a partial line
                self._reports.put((self, json.loads(line)))
        self._reports.put((self, None))

    def leave(self) -> None:
        """Order the member to leave the group and end."""
        self.ended_by = "left"
        self._process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL. The group removes the member when its session expires."""
        self.ended_by = "killed"
        self._process.kill()

    def destroy(self) -> None:
        """Kill the process if it still runs, for a demo that ends early."""
        self._process.kill()
        self.wait(5)

    def wait(self, timeout: float) -> int:
        """Return the exit status. Kill the process if it does not end in time."""
        try:
            status = self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            self._process.kill()
            status = self._process.wait()
        for reader in self._readers:
            reader.join(timeout)
        for stream in (self._process.stdin, *self._streams):
            if stream is not None:
                stream.close()
        return status


class SparkMember(DemoMember):
    """Process with a streaming query, which is a member from ``start`` to ``leave``."""

    module = "examples.demo.query"
    reports_on_stderr = True

    def send_order(self, order: str) -> None:
        """Send an order: ``start``, ``leave`` or ``count``."""
        assert self._process.stdin is not None
        self._process.stdin.write(order + "\n")
        self._process.stdin.flush()

    def leave(self) -> None:
        self.ended_by = "left"
        self.send_order("leave")

    def stop(self) -> None:
        """Stop Spark and the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self.wait(30)
