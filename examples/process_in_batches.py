"""Insert records into SQLite in batches, by plain functions in threads."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

from kohort import ConsumerRecord, KafkaConsumer
from kohort.processing import Batch, Retry, process
from kohort.testing import Cluster

RECORDS = 500


def main(bootstrap_servers: str, path: Path) -> None:
    consumer = KafkaConsumer(
        "readings",
        bootstrap_servers=bootstrap_servers,
        group_id="archive",
        auto_offset_reset="earliest",
    )

    def insert(records: list[ConsumerRecord[bytes, bytes]]) -> None:
        rows = [(record.partition, record.offset, record.value) for record in records]
        with closing(sqlite3.connect(path)) as database, database:
            # After a crash a batch may come again, so the rows have a primary key.
            database.executemany("INSERT OR IGNORE INTO readings VALUES (?, ?, ?)", rows)
            ((count,),) = database.execute("SELECT count(*) FROM readings")
        if count == RECORDS:
            consumer.wakeup()  # a service waits for SIGTERM

    with closing(sqlite3.connect(path)) as database:
        database.execute(
            "CREATE TABLE readings (part, at, value, PRIMARY KEY (part, at)) WITHOUT ROWID"
        )
    process(
        consumer,
        insert,
        batch=Batch(rows=100, seconds=0.5),
        concurrency=1,
        retry=Retry(None, on=sqlite3.OperationalError),
    )
    with closing(sqlite3.connect(path)) as database:
        print(*database.execute("SELECT part, count(*) FROM readings GROUP BY part"))


if __name__ == "__main__":
    with Cluster(topics={"readings": 2}) as cluster, TemporaryDirectory() as folder:
        cluster.produce("readings", [f"{n}" for n in range(RECORDS)])
        main(cluster.bootstrap_servers, Path(folder) / "readings.db")
