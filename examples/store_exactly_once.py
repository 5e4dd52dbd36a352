"""Add amounts up in SQLite, each exactly once, though the process dies in between."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sqlite3
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

from kohort import ConsumerRecord, KafkaConsumer
from kohort.processing import Batch, SqlOffsets, process
from kohort.testing import Cluster

RECORDS = 500


def main(bootstrap_servers: str, path: Path, dies_after: int | None = None) -> None:
    consumer = KafkaConsumer(
        "payments",
        bootstrap_servers=bootstrap_servers,
        group_id="ledger",
        group_instance_id="only",  # the next process takes over at once
        group_protocol="classic",
        auto_offset_reset="earliest",
    )

    def connect() -> sqlite3.Connection:
        return sqlite3.connect(path, check_same_thread=False, timeout=60)

    def add(records: list[ConsumerRecord[bytes, bytes]], cursor: sqlite3.Cursor) -> None:
        amount = sum(int(record.value or 0) for record in records)
        cursor.execute(
            "UPDATE ledger SET amount = amount + ?, count = count + ?", (amount, len(records))
        )
        cursor.execute("SELECT count FROM ledger")
        (count,) = cursor.fetchone()
        if dies_after is not None and count > dies_after:
            os.kill(os.getpid(), signal.SIGKILL)  # before the commit of this batch
        if count == RECORDS:
            consumer.wakeup()  # a service waits for SIGTERM

    process(consumer, add, batch=Batch(rows=50, seconds=0.1), offsets=SqlOffsets(connect))


if __name__ == "__main__":
    with Cluster(topics={"payments": 2}) as cluster, TemporaryDirectory() as folder:
        cluster.produce("payments", [f"{n}" for n in range(RECORDS)])
        path = Path(folder) / "ledger.db"
        with closing(sqlite3.connect(path)) as database:
            database.execute("CREATE TABLE ledger (amount INTEGER, count INTEGER)")
            database.execute("INSERT INTO ledger VALUES (0, 0)")
            database.commit()
        context = multiprocessing.get_context("spawn")
        for dies_after in (100, 300, None):
            worker = context.Process(
                target=main, args=(cluster.bootstrap_servers, path, dies_after)
            )
            worker.start()
            worker.join()
            with closing(sqlite3.connect(path)) as database:
                print(worker.exitcode, *database.execute("SELECT amount, count FROM ledger"))
        assert sum(range(RECORDS)) == 124_750
