"""franz-go as a member of a group, a small Go program (``go/main.go``) in a separate process."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.support.java_tools import RunningTool

SOURCE = Path(__file__).parent / "go"


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
