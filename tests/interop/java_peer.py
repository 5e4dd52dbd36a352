"""kafka-clients as a member of a group: Kafka's VerifiableConsumer in a separate process."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from tests.interop.peers import HEARTBEAT_MS, POLL_MS, Read, Settings
from tests.interop.waiting import look_again_soon, wait_until
from tests.support.java_tools import RunningTool, java_command

MAIN_CLASS = "org.apache.kafka.tools.VerifiableConsumer"
ASSIGNORS = {
    "range": "org.apache.kafka.clients.consumer.RangeAssignor",
    "roundrobin": "org.apache.kafka.clients.consumer.RoundRobinAssignor",
    "cooperative-sticky": "org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
}
STOPPED = 128 + 15  # by SIGTERM, after the member has left its group
LOOKS = POLL_MS // 10


class Java:
    """Member that commits what it has printed, before it polls again.

    ``more`` of the settings are the Java client's own options. What it had read when it was closed
    can still be polled then.
    """

    def __init__(self, settings: Settings) -> None:
        options = {
            "client.id": settings.client_id,
            "heartbeat.interval.ms": HEARTBEAT_MS,
            "metadata.max.age.ms": 1000,
            **settings.more,
        }
        arguments = {
            "--bootstrap-server": settings.bootstrap_servers,
            "--topic": settings.topic,
            "--group-id": settings.group,
            "--session-timeout": settings.session_ms,
            "--assignment-strategy": ASSIGNORS[settings.strategy or "range"],
        }
        if settings.instance is not None:
            arguments["--group-instance-id"] = settings.instance
        flat = [str(word) for pair in arguments.items() for word in pair]
        self._folder = tempfile.TemporaryDirectory()
        config = Path(self._folder.name, "consumer.properties")
        config.write_text("".join(f"{key}={value}\n" for key, value in options.items()))
        command = java_command(MAIN_CLASS, "--verbose", "--command-config", config, *flat)
        self._tool = RunningTool(*command)
        self._seen = 0
        self._owned: set[int] = set()
        self._closed = False

    def poll_once(self) -> list[Read]:
        for _ in range(LOOKS):
            if self._seen < len(self._tool.lines) or self._closed:
                break
            look_again_soon()
        reads: list[Read] = []
        while self._seen < len(self._tool.lines):
            line = self._tool.lines[self._seen]
            self._seen += 1
            self._take(json.loads(line), reads)
        if not self._closed and not self._tool.is_running:
            raise AssertionError("VerifiableConsumer ended: " + "\n".join(self._tool.errors[-20:]))
        return reads

    def _take(self, event: dict[str, object], reads: list[Read]) -> None:
        match event:
            case {"name": "record_data", "partition": int(p), "offset": int(o), "value": str(v)}:
                reads.append(Read(p, o, v.encode()))
            case {"name": "partitions_assigned", "partitions": list(given)}:
                self._owned |= {place["partition"] for place in given}
            case {"name": "partitions_revoked" | "partitions_lost", "partitions": list(taken)}:
                self._owned -= {place["partition"] for place in taken}

    def assignment(self) -> frozenset[int]:
        return frozenset(self._owned)

    def commit(self) -> None:
        """Do nothing, because the tool commits without a request."""

    def close(self) -> None:
        wait_until(lambda: self._tool.lines or not self._tool.is_running)
        status = self._tool.end()
        self._closed = True
        self._folder.cleanup()
        assert status == STOPPED, (status, self._tool.errors[-20:])

    def kill(self) -> None:
        """Kill it immediately, as a crash would."""
        self._closed = True
        self._tool.kill()
        self._folder.cleanup()
