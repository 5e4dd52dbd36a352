"""kafka-clients as a member of a group: Kafka's VerifiableConsumer in a separate process."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from tests.interop.ownership import Change, Ownership
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
        self._folder = tempfile.TemporaryDirectory()
        self._tool = RunningTool(*self.command(settings, Path(self._folder.name)))
        self._seen = 0
        self._ownership = Ownership()
        self.started_at = 0.0
        """Time when the tool had started, in seconds since 1970."""
        self._closed = False

    def command(self, settings: Settings, folder: Path) -> list[str]:
        """Return the command of the tool. Its files are in the folder."""
        options = {
            "client.id": settings.client_id,
            "metadata.max.age.ms": 1000,
            **({"heartbeat.interval.ms": HEARTBEAT_MS} if settings.is_classic else {}),
            **settings.more,
        }
        arguments: dict[str, object] = {
            "--bootstrap-server": settings.bootstrap_servers,
            "--topic": settings.topic,
            "--group-id": settings.group,
        }
        if settings.is_classic:
            arguments["--session-timeout"] = settings.session_ms
            arguments["--assignment-strategy"] = ASSIGNORS[settings.strategy or "range"]
        else:
            arguments["--group-protocol"] = "CONSUMER"
            if settings.strategy is not None:
                arguments["--group-remote-assignor"] = settings.strategy
        if settings.instance is not None:
            arguments["--group-instance-id"] = settings.instance
        flat = [str(word) for pair in arguments.items() for word in pair]
        config = folder / "consumer.properties"
        config.write_text("".join(f"{key}={value}\n" for key, value in options.items()))
        return java_command(MAIN_CLASS, "--verbose", "--command-config", config, *flat)

    @property
    def changes(self) -> list[Change]:
        return self._ownership.changes

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
            case {"name": "startup_complete", "timestamp": int(at)}:
                self.started_at = at / 1000
            case {"name": "record_data", "partition": int(p), "offset": int(o), "value": str(v)}:
                reads.append(Read(p, o, v.encode()))
            case {"name": "partitions_assigned", "partitions": list(given), "timestamp": int(at)}:
                # The time is cut to milliseconds, which must not make it earlier.
                self._ownership.gain((place["partition"] for place in given), (at + 1) / 1000)
            case {
                "name": "partitions_revoked" | "partitions_lost",
                "partitions": list(taken),
                "timestamp": int(at),
            }:
                self._ownership.lose((place["partition"] for place in taken), at / 1000)

    def assignment(self) -> frozenset[int]:
        return self._ownership.owned()

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
