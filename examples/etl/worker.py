"""An ETL worker: orders in JSON become totals in PostgreSQL, and each order counts exactly once.

Start as many processes as you like. The table has to exist:
CREATE TABLE totals (product TEXT PRIMARY KEY, amount BIGINT NOT NULL)
"""

from __future__ import annotations

import json
import logging
import os
from collections import Counter
from typing import Any

import psycopg

from kohort import ConsumerRecord, KafkaConsumer
from kohort.health import serve
from kohort.processing import Batch, DeadLetters, Retry, SqlOffsets, process

ADD = (
    "INSERT INTO totals AS old VALUES (%s, %s) "
    "ON CONFLICT (product) DO UPDATE SET amount = old.amount + excluded.amount"
)


def connect() -> Any:
    return psycopg.connect(os.environ["DATABASE"])


def add(records: list[ConsumerRecord[bytes, bytes]], cursor: Any) -> None:
    totals: Counter[str] = Counter()
    for record in records:
        order = json.loads(record.value or b"")
        totals[order["product"]] += int(order["amount"])
    cursor.executemany(ADD, sorted(totals.items()))  # in one order, so none waits for another


def main() -> None:
    logging.basicConfig(level=logging.INFO)
    consumer = KafkaConsumer(
        "orders",
        bootstrap_servers=os.environ["KAFKA"],
        group_id="etl",
        auto_offset_reset="earliest",
    )
    with serve(consumer, port=int(os.environ.get("PORT", "8081"))) as health:
        logging.info("health is at port %d", health.port)
        process(  # until SIGTERM
            consumer,
            add,
            batch=Batch(rows=500, seconds=0.2, split=True),
            retry=Retry(None, on=psycopg.OperationalError, longest=5),  # the database is away
            failed=DeadLetters("dlq.etl"),
            offsets=SqlOffsets(connect),
        )


if __name__ == "__main__":
    main()
