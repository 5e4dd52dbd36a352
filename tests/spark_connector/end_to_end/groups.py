"""A group as others see it: its members over time, and its lag by Kafka's tool."""

from __future__ import annotations

import threading
import time
from types import TracebackType

from confluent_kafka import KafkaException

from tests.interop.brokers import Broker
from tests.spark_connector.end_to_end import processes
from tests.spark_connector.end_to_end.waiting import wait_until
from tests.support.java_tools import run_tool

GROUP_COMMAND = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
LOOK_S = 0.02


def lag(broker: Broker, group: str) -> dict[int, int]:
    """Return the lag of the group by partition, from ConsumerGroupCommand."""
    table = run_tool(
        GROUP_COMMAND,
        "--bootstrap-server",
        broker.bootstrap_servers,
        "--describe",
        "--group",
        group,
    )
    lines = [line.split() for line in table.splitlines() if line.strip()]
    (heading,) = (number for number, words in enumerate(lines) if "LAG" in words)
    rows = [dict(zip(lines[heading], words, strict=False)) for words in lines[heading + 1 :]]
    return {int(row["PARTITION"]): int(row["LAG"]) for row in rows}


class Watch:
    """A watch on a group and on processes that notes when each was last alive."""

    def __init__(self, broker: Broker, group: str) -> None:
        self._broker = broker
        self._group = group
        self._members: dict[str, float] = {}
        self._processes: dict[int, float] = {}
        self._over = threading.Event()
        self._threads = [
            threading.Thread(target=self._repeat, args=(look,), daemon=True)
            for look in (self._look_at_group, self._look_at_processes)
        ]

    def process(self, pid: int) -> None:
        """Watch this process, too."""
        self._processes[pid] = time.monotonic()

    def members(self) -> set[str]:
        """Return the client ids of the current members."""
        while True:
            try:
                return set(self._broker.describe(self._group).members)
            except KafkaException:  # the coordinator is moving
                if self._over.wait(LOOK_S):
                    raise

    def left_after(self, pid: int) -> float:
        """Wait until the process has ended and the group is empty. Return the seconds between.

        A negative result means that the group was empty first. The error is at most the time of one
        check.
        """
        wait_until(lambda: not processes.is_alive(pid))
        wait_until(lambda: not self.members())
        ended = self._processes[pid]
        return max(self._members.values(), default=ended) - ended

    def __enter__(self) -> Watch:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _repeat(self, look: object) -> None:
        assert callable(look)
        while not self._over.wait(LOOK_S):
            look()

    def _look_at_group(self) -> None:
        for member in self.members():
            self._members[member] = time.monotonic()

    def _look_at_processes(self) -> None:
        for pid in list(self._processes):
            if processes.is_alive(pid):
                self._processes[pid] = time.monotonic()
