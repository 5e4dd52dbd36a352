"""The demo's member processes, seen from the demo."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from typing import Any

Told = tuple["Member", dict[str, Any] | None]
"""A member and what it told; None when its output has ended."""


class Member:
    """One process; what it tells goes into a queue that all members share."""

    def __init__(self, name: str, arguments: list[str], told: queue.Queue[Told]) -> None:
        self.name = name
        self.ended_by = ""
        self.rebalances = 0
        self._told = told
        self._process = subprocess.Popen(
            [sys.executable, "-m", "kohort.cli.demo._member", *arguments, name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

    @property
    def running(self) -> bool:
        """Neither told to leave nor killed."""
        return not self.ended_by

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.endswith("\n"):  # what a killed process did not finish was not told
                self._told.put((self, json.loads(line)))
        self._told.put((self, None))

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
        self._reader.join(timeout)
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()
        return status
