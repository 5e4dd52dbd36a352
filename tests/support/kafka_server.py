"""One Apache Kafka node (broker and controller in one) as a child process."""

from __future__ import annotations

import base64
import contextlib
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.support import supervise
from tests.support.java_tools import java_command
from tests.support.net import answers_api_versions, free_ports

START_TIMEOUT_S = 90.0
STOP_TIMEOUT_S = 30.0
HEAP = "-Xmx512m"
PROPERTIES = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAINTEXT",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "500",
    "broker.session.timeout.ms": "6000",  # a killed node is fenced for this time
    "broker.heartbeat.interval.ms": "500",
    "auto.create.topics.enable": "false",
    "log.retention.ms": "-1",  # test records have any timestamp and must be kept
    "log.cleaner.dedupe.buffer.size": "16777216",  # the default takes a quarter of our heap
}


class KafkaStartError(Exception):
    """The node ended or did not respond in time. The message ends with its log."""


class KafkaServer:
    """Node with its ports, data and log in one folder. It can be stopped and started again.

    With ``first`` it is another broker in the cluster of that node, whose controller it uses. A
    third one needs its ``node.id`` in the properties.
    """

    format_options: tuple[str, ...] = ()
    """Further arguments of the program that prepares the folder, such as features."""

    def __init__(
        self,
        jars: Path,
        folder: Path,
        properties: Mapping[str, str] | None = None,
        features: Mapping[str, int] | None = None,
        first: KafkaServer | None = None,
    ) -> None:
        """``features`` are finalized in other versions than Kafka's defaults."""
        self._jars = jars
        self._first = first
        self._cluster_id: str = first._cluster_id if first else _new_cluster_id()
        self._folder = folder
        self._extra = dict(properties or {})
        self._features = dict(features or {})
        self._process: subprocess.Popen[bytes] | None = None
        self.log = folder / "kafka.log"
        self.port, self._controller = free_ports(2)
        self._config = folder / "server.properties"
        self._write_config(self._controller)
        self._format()

    @property
    def bootstrap_servers(self) -> str:
        """``host:port`` of the only broker."""
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """Id of the process that has started the node as its only child."""
        assert self._process is not None
        return self._process.pid

    def is_running(self) -> bool:
        """True if the process is running."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start the node and return once it responds to requests."""
        if self.is_running():
            return
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, supervise.__file__, *self._java("kafka.Kafka", self._config)],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        deadline = time.monotonic() + START_TIMEOUT_S
        while not answers_api_versions(self.port):
            if not self.is_running() or time.monotonic() > deadline:
                self.kill()
                raise KafkaStartError(f"Apache Kafka did not start:\n{self.log_tail()}")
            time.sleep(0.05)

    def stop(self) -> None:
        """Shut the node down normally, or kill it if that takes too long."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                pass
        self.kill()

    def kill(self) -> None:
        """Kill the node immediately, as a crash would."""
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.stdin.close()  # the supervisor kills the node at the end of its input
            self._process.wait()
            self._process = None

    @contextlib.contextmanager
    def hanging(self) -> Iterator[None]:
        """Stop the process by SIGSTOP within the block. The system accepts connections without
        responses.

        Keep it shorter than ``broker.session.timeout.ms``.
        """
        assert self._process is not None
        self._process.send_signal(signal.SIGUSR1)
        try:
            deadline = time.monotonic() + STOP_TIMEOUT_S
            while answers_api_versions(self.port):
                assert time.monotonic() < deadline, "Apache Kafka goes on"
            yield
        finally:
            self._process.send_signal(signal.SIGUSR2)
        deadline = time.monotonic() + START_TIMEOUT_S
        while not answers_api_versions(self.port):
            assert time.monotonic() < deadline, "Apache Kafka does not go on"

    def restart(self) -> None:
        """Stop and start on the same ports and data."""
        self.stop()
        self.start()

    def tool(
        self, main_class: str, *args: str, stdin: str = "", timeout_s: float = 60.0
    ) -> subprocess.CompletedProcess[str]:
        """Run one of Kafka's command-line classes. The caller checks the exit status."""
        return subprocess.run(
            self._java(main_class, *args, level="warn"),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )

    def create_topic(
        self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None
    ) -> str:
        """Create a topic and return its name once every partition has a leader."""
        from tests.support.topics import create_topic

        return create_topic(self.bootstrap_servers, name, partitions, config)

    def first_segment(self, topic: str, partition: int = 0) -> Path:
        """Return the file with the first stored batches of a partition."""
        return self._folder / "data" / f"{topic}-{partition}" / f"{0:020}.log"

    def log_tail(self, lines: int = 60) -> str:
        """Return the last lines of the node's log."""
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return "\n".join(text.splitlines()[-lines:])

    def _java(self, main_class: str, *args: object, level: str = "info") -> list[str]:
        return java_command(main_class, *args, folder=self._jars, heap=HEAP, level=level)

    def _write_config(self, controller: int) -> None:
        values = {
            **PROPERTIES,
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "log.dirs": str(self._folder / "data"),
            **self._extra,
        }
        values["controller.quorum.voters"] = f"{values['node.id']}@127.0.0.1:{controller}"
        if self._first is not None:
            values["controller.quorum.voters"] = f"1@127.0.0.1:{self._first._controller}"
            values["listeners"] = f"PLAINTEXT://127.0.0.1:{self.port}"
            values["process.roles"] = "broker"
            values["node.id"] = self._extra.get("node.id", "2")
        self._config.write_text("".join(f"{key}={value}\n" for key, value in values.items()))

    def _format(self) -> None:
        done = self.tool(
            "kafka.tools.StorageTool",
            "format",
            f"--cluster-id={self._cluster_id}",
            "-c",
            str(self._config),
            *self.format_options,
            *(f"--feature={name}={version}" for name, version in self._features.items()),
        )
        if done.returncode != 0:
            raise KafkaStartError(f"formatting failed:\n{done.stdout}{done.stderr}")


def _new_cluster_id() -> str:
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
