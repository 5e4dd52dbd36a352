"""The demo's member processes, seen from the demo."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from typing import IO, Any

Report = tuple["DemoMember", dict[str, Any] | None]
"""A member and what it told; None when its output has ended."""


class DemoMember:
    """One process; what it tells goes into a queue that all members share."""

    module = "kohort.cli.demo._member"
    reports_on_stderr = False
    """Whether its standard error holds messages, too, among other lines."""

    def __init__(self, name: str, arguments: list[str], reports: queue.Queue[Report]) -> None:
        self.name = name
        self.ended_by = ""
        self.rebalances = 0
        self.reports_by_event: dict[str, dict[str, Any]] = {}
        """What it told once: that it has ``left``, is ``ready``, has ``counted``."""
        self._reports = reports
        self._process = subprocess.Popen(
            [sys.executable, "-m", self.module, *arguments, name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE if self.reports_on_stderr else None,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
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
        """Of the process."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self._process.poll() is None

    @property
    def running(self) -> bool:
        """Neither told to leave nor killed."""
        return not self.ended_by

    def _read(self, stream: IO[str]) -> None:
        for line in stream:
            if line.startswith("{") and line.endswith("}\n"):  # what a killed one did not finish
                self._reports.put((self, json.loads(line)))
        self._reports.put((self, None))

    def leave(self) -> None:
        """Have it leave the group and end."""
        self.ended_by = "left"
        self._process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL: the group learns of it when the session is over."""
        self.ended_by = "killed"
        self._process.kill()

    def destroy(self) -> None:
        """End the process, if it still runs; for a demo that ends before its time."""
        self._process.kill()
        self.wait(5)

    def wait(self, timeout: float) -> int:
        """The exit status; killed if it does not end in time."""
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
    """A streaming query; it does what it is told, and is a member from ``start`` to ``leave``."""

    module = "kohort.cli.demo._query"
    reports_on_stderr = True

    def send_order(self, order: str) -> None:
        """Tell it to do something: ``start``, ``leave`` or ``count``."""
        assert self._process.stdin is not None
        self._process.stdin.write(order + "\n")
        self._process.stdin.flush()

    def leave(self) -> None:
        self.ended_by = "left"
        self.send_order("leave")

    def stop(self) -> None:
        """Let it stop Spark and end."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self.wait(30)
