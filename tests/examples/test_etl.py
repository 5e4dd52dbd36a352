"""The ETL worker: three processes, poison, a kill, a stop, and a database that goes away."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from kohort.testing import Cluster
from tests.interop.waiting import wait_until
from tests.processing.databases import postgres

WORKER = Path(__file__).parents[2] / "examples" / "etl" / "worker.py"
RECORDS = 20_000
LIMIT_S = 300.0
CONFIGS = {  # members that are killed are noticed soon
    "group.consumer.min.session.timeout.ms": "6000",
    "group.consumer.session.timeout.ms": "6000",
}


class Worker:
    """One process, and its log."""

    def __init__(self, log: Path, kafka: str, database: str) -> None:
        self._log = log
        self._environment = {**os.environ, "KAFKA": kafka, "DATABASE": database, "PORT": "0"}
        with log.open("w") as stream:
            self.process = subprocess.Popen(
                [sys.executable, WORKER], env=self._environment, stderr=stream
            )

    def log(self) -> str:
        return self._log.read_text()

    def answers(self, path: str) -> bool:
        """Return True if the server of health answers this path with 200."""
        if (found := re.search(r"health is at port (\d+)", self.log())) is None:
            return False
        try:
            with urlopen(f"http://127.0.0.1:{found[1]}{path}"):
                return True
        except HTTPError:
            return False

    def wait_until_ready(self) -> None:
        """Wait for the first assignment. Then process() has its handlers of signals."""
        wait_until(lambda: self.answers("/ready"), deadline_s=LIMIT_S)

    def end(self, number: signal.Signals) -> int:
        self.process.send_signal(number)
        return self.process.wait(LIMIT_S)


@pytest.mark.timeout(1200)
def test_worker_counts_each_order_once_and_buries_poison_only(tmp_path: Path) -> None:
    expected: Counter[str] = Counter()
    poison: set[bytes] = set()
    values: list[bytes] = []
    for number in range(RECORDS):
        value = json.dumps({"product": f"p{number % 7}", "amount": number}).encode()
        if number % 500 == 99:
            value = b"poison %d" % number
            poison.add(value)
        else:
            expected[f"p{number % 7}"] += number
        values.append(value)
    workers: list[Worker] = []
    with (
        Cluster(topics={"orders": 3, "dlq.etl": 1}, configs=CONFIGS) as cluster,
        postgres() as database,
    ):
        database.change("CREATE TABLE totals (product TEXT PRIMARY KEY, amount BIGINT NOT NULL)")

        def start() -> Worker:
            log = tmp_path / f"{len(workers)}.log"
            workers.append(Worker(log, cluster.bootstrap_servers, database.address))
            return workers[-1]

        def total() -> int:
            ((found,),) = database.rows("SELECT coalesce(sum(amount), 0) FROM totals")
            return int(found)

        def produce(first: int, last: int) -> int:
            """Produce a part of the records, and wait until the first of them count."""
            before = total()
            for at in range(first, last, 500):
                cluster.produce("orders", values[at : at + 500], partition=at // 500 % 3)
            return wait_until(lambda: total() > before, deadline_s=LIMIT_S)

        try:
            killed, stopped, _ = (start() for _ in range(3))
            for worker in workers:
                worker.wait_until_ready()
            produce(0, RECORDS // 4)
            assert killed.end(signal.SIGKILL) == -signal.SIGKILL
            produce(RECORDS // 4, RECORDS // 2)
            database.stop()
            for at in range(RECORDS // 2, RECORDS, 500):
                cluster.produce("orders", values[at : at + 500], partition=at // 500 % 3)
            wait_until(
                lambda: any("OperationalError" in worker.log() for worker in workers[1:]),
                deadline_s=LIMIT_S,
            )
            assert stopped.answers("/live")
            late = start()
            database.start()
            assert stopped.end(signal.SIGTERM) == 0
            wait_until(lambda: total() >= sum(expected.values()), deadline_s=LIMIT_S)
            wait_until(
                lambda: {letter.value for letter in cluster.records("dlq.etl")} >= poison,
                deadline_s=LIMIT_S,
            )
            late.wait_until_ready()
            assert [worker.end(signal.SIGTERM) for worker in workers[2:]] == [0, 0]
        finally:
            for worker in workers:
                worker.process.kill()
                worker.process.wait()
        assert dict(database.rows("SELECT product, amount FROM totals")) == dict(expected)
        assert {letter.value for letter in cluster.records("dlq.etl")} == poison
