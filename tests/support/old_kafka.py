"""Apache Kafka 2.8 with the ZooKeeper that it needs, as child processes."""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping
from pathlib import Path

from tests.support.java_tools import RunningTool, java_command
from tests.support.kafka_server import START_TIMEOUT_S, KafkaServer, KafkaStartError

ZOOKEEPER = "org.apache.zookeeper.server.ZooKeeperServerMain"
PROPERTIES = {
    "broker.id": "1",
    "offsets.topic.replication.factor": "1",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "500",
    "auto.create.topics.enable": "false",
    "log.retention.ms": "-1",
    "log.cleaner.enable": "false",
    "zookeeper.session.timeout.ms": "30000",
}


class ZooKeeperKafka(KafkaServer):
    """Broker and its ZooKeeper, which starts before the broker and ends after it."""

    def __init__(
        self, jars: Path, folder: Path, properties: Mapping[str, str] | None = None
    ) -> None:
        self._zookeeper: RunningTool | None = None
        self._zookeeper_port = 0
        super().__init__(jars, folder, properties)

    def start(self) -> None:
        """Start both and return once the broker responds to requests."""
        if self._zookeeper is None:
            port, data = self._zookeeper_port, self._folder / "zookeeper"
            command = java_command(ZOOKEEPER, port, data, folder=self._jars)
            # Otherwise it serves a web page on a further port.
            command.insert(1, "-Dzookeeper.admin.enableServer=false")
            self._zookeeper = RunningTool(*command)
            self._wait_for_zookeeper(self._zookeeper)
        super().start()

    def kill(self) -> None:
        """Kill both immediately."""
        super().kill()
        if self._zookeeper is not None:
            self._zookeeper.kill()
            self._zookeeper = None

    def _wait_for_zookeeper(self, process: RunningTool) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", self._zookeeper_port), 1).close()
                return
            except OSError:
                if not process.is_running or time.monotonic() > deadline:
                    said = "\n".join([*process.lines, *process.errors])
                    self.kill()
                    raise KafkaStartError(f"ZooKeeper did not start:\n{said}") from None
                time.sleep(0.05)

    def _write_config(self, controller: int) -> None:
        self._zookeeper_port = controller
        values = {
            **PROPERTIES,
            "zookeeper.connect": f"127.0.0.1:{controller}",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "log.dirs": str(self._folder / "data"),
            **self._extra,
        }
        self._config.write_text("".join(f"{key}={value}\n" for key, value in values.items()))

    def _format(self) -> None:
        """Do nothing, because the folder needs no preparation."""
