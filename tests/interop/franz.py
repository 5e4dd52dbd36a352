"""franz-go as a member of a group, a small Go program (``go/main.go``) in a separate process."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from tests.interop.ownership import Change, Ownership
from tests.interop.peers import HEARTBEAT_MS, POLL_MS, Make, Read, Settings
from tests.interop.waiting import look_again_soon, wait_until
from tests.support.java_tools import RunningTool

SOURCE = Path(__file__).parent / "go"
LOOKS = POLL_MS // 10
BALANCERS = {"uniform": "sticky", "range": "range"}
"""Balancers of franz-go, which stand for the broker's assignors."""


def build(folder: Path) -> str:
    """Build the program with the versions that go.sum pins, and return its path."""
    built = folder / "interop"
    command = ["go", "build", "-mod=readonly", "-o", str(built), "."]
    done = subprocess.run(
        command, cwd=SOURCE, capture_output=True, text=True, timeout=500, check=False
    )
    assert done.returncode == 0, done.stderr
    return str(built)


class FranzMember:
    """Member of a group in a separate process."""

    def __init__(self, command: list[str], environment: Mapping[str, str] | None = None) -> None:
        env = {**os.environ, **environment} if environment else None
        self.tool = RunningTool(*command, env=env)

    @property
    def events(self) -> list[dict[str, Any]]:
        assert self.tool.is_running or self.tool.end() == 0, self.tool.errors
        return [json.loads(line) for line in list(self.tool.lines)]

    @property
    def reads(self) -> list[tuple[int, int]]:
        return [(e["partition"], e["offset"]) for e in self.events if e["event"] == "record"]

    @property
    def owned(self) -> set[int]:
        owned: set[int] = set()
        for event in self.events:
            moved = {p for some in (event.get("partitions") or {}).values() for p in some}
            if event["event"] == "assigned":
                owned |= moved
            elif event["event"] == "revoked":
                owned -= moved
        return owned

    def leave(self) -> None:
        assert self.tool.end() == 0, self.tool.errors


class Franz:
    """Peer of franz-go, which commits what it has printed."""

    def __init__(self, settings: Settings, program: str) -> None:
        strategy = settings.strategy or ("range" if settings.is_classic else "uniform")
        flags = {
            "bootstrap": settings.bootstrap_servers,
            "topic": settings.topic,
            "group": settings.group,
            "client-id": settings.client_id,
            "strategy": strategy if settings.is_classic else BALANCERS[strategy],
            "protocol": settings.protocol or "classic",
            "heartbeat": f"{HEARTBEAT_MS}ms",
            **settings.more,
        }
        if settings.instance is not None:
            flags["instance"] = settings.instance
        words = [f"-{name}={value}" for name, value in flags.items()]
        self._tool = RunningTool(program, *words, "consume")
        self._seen = 0
        self._ownership = Ownership()
        self._ended = False

    @property
    def changes(self) -> list[Change]:
        return self._ownership.changes

    def poll_once(self) -> list[Read]:
        for _ in range(LOOKS):
            if self._seen < len(self._tool.lines) or self._ended:
                break
            look_again_soon()
        reads: list[Read] = []
        while self._seen < len(self._tool.lines):
            event = json.loads(self._tool.lines[self._seen])
            self._seen += 1
            moved = [p for some in (event.get("partitions") or {}).values() for p in some]
            match event["event"]:
                case "record":
                    value = event["value"].encode()
                    reads.append(Read(event["partition"], event["offset"], value))
                case "assigned":
                    self._ownership.gain(moved, event["at"])
                case "revoked":
                    self._ownership.lose(moved, event["at"])
        if not self._ended and not self._tool.is_running:
            raise AssertionError("franz-go ended: " + "\n".join(self._tool.errors[-20:]))
        return reads

    def assignment(self) -> frozenset[int]:
        return self._ownership.owned()

    def commit(self) -> None:
        """Do nothing, because the program commits without a request."""

    def close(self) -> None:
        wait_until(lambda: self._tool.lines or not self._tool.is_running)
        self._ended = True
        status = self._tool.end()
        assert status == 0, (status, self._tool.errors[-20:])

    def kill(self) -> None:
        """Kill it immediately, as a crash would."""
        self._ended = True
        self._tool.kill()


def franz_go(program: str) -> Make:
    """Return a function that starts a member of the built program."""
    return partial(Franz, program=program)
