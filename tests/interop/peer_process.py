"""Peer in a separate process, which may be killed: ``python peer_process.py NAME SETTINGS``.

The process prints what each poll returned and what it owns, a JSON object a line. It leaves on
SIGTERM.
"""

from __future__ import annotations

import dataclasses
import json
import signal
import sys
import threading
from functools import partial

from tests.interop.ownership import Change
from tests.interop.peers import APIS, OTHERS, POLL_MS, Make, Read, Settings
from tests.interop.waiting import look_again_soon, wait_until
from tests.support.java_tools import RunningTool

LOOKS = POLL_MS // 10


class PeerProcess:
    """Peer of that name, seen from the test."""

    def __init__(self, settings: Settings, name: str) -> None:
        words = [name, json.dumps(dataclasses.asdict(settings))]
        self._tool = RunningTool(sys.executable, "-m", "tests.interop.peer_process", *words)
        self.changes: list[Change] = []
        self._seen = 0
        self._owned: frozenset[int] = frozenset()
        self._ended = False

    def poll_once(self) -> list[Read]:
        for _ in range(LOOKS):
            if self._seen < len(self._tool.lines) or self._ended:
                break
            look_again_soon()
        reads: list[Read] = []
        while self._seen < len(self._tool.lines):
            event = json.loads(self._tool.lines[self._seen])
            self._seen += 1
            reads += [Read(p, o, value.encode()) for p, o, value in event["reads"]]
            self._owned = frozenset(event["owned"])
            self.changes += [Change(*change) for change in event["changes"]]
        if not self._ended and not self._tool.is_running:
            raise AssertionError("the member ended: " + "\n".join(self._tool.errors[-20:]))
        return reads

    def assignment(self) -> frozenset[int]:
        return self._owned

    def commit(self) -> None:
        raise NotImplementedError("this peer commits automatically")

    def close(self) -> None:
        wait_until(lambda: self._tool.lines or not self._tool.is_running)
        self._ended = True
        status = self._tool.end()
        assert status == 0, (status, self._tool.errors[-20:])

    def kill(self) -> None:
        """Kill it immediately, as a crash would."""
        self._ended = True
        self._tool.kill()


def in_a_process(name: str) -> Make:
    """Return a function that starts the peer of that name in a separate process.

    The name is one of APIS or OTHERS.
    """
    return partial(PeerProcess, name=name)


def main(name: str, settings: str) -> None:
    """Poll and print events until SIGTERM."""
    leaving = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: leaving.set())
    peer = (APIS | OTHERS)[name](Settings(**json.loads(settings)))
    printed = 0

    def report(reads: list[Read], owned: frozenset[int]) -> None:
        nonlocal printed
        changes = peer.changes[printed:]
        printed += len(changes)
        places = [(read.partition, read.offset, read.value.decode()) for read in reads]
        line = json.dumps({"reads": places, "owned": sorted(owned), "changes": changes})
        sys.stdout.write(line + "\n")
        sys.stdout.flush()

    while not leaving.is_set():
        report(peer.poll_once(), peer.assignment())
    peer.close()
    report([], frozenset())


if __name__ == "__main__":
    main(*sys.argv[1:])
