"""Handle records in the order of their keys, with retries, until SIGTERM or Ctrl-C."""

from __future__ import annotations

import json

import anyio

from kohort import AsyncKafkaConsumer, ConsumerRecord
from kohort.processing import GiveUp, Retry, context, process
from kohort.testing import Cluster

RECORDS = 60


class Accounts:
    """Balances by account, and the records that could not be booked."""

    def __init__(self) -> None:
        self.balances: dict[str, int] = {}
        self.failed: list[tuple[int, str]] = []
        self.booked = 0

    async def book(self, record: ConsumerRecord[str, bytes]) -> None:
        """Book a record. Records of one account come one after the other."""
        try:
            cents = json.loads(record.value or b"")["cents"]
        except ValueError as error:
            raise GiveUp from error  # another attempt would not help
        if cents == 13 and context.attempt < 3:
            raise ConnectionError("the bank is away")
        account = record.key or "unknown"
        self.balances[account] = self.balances.get(account, 0) + cents
        self.booked += 1

    async def handle(
        self, record: ConsumerRecord[str, bytes], error: Exception, attempts: int
    ) -> None:
        """Keep a record that has failed for good."""
        self.failed.append((record.offset, type(error).__name__))
        self.booked += 1


async def main(bootstrap_servers: str) -> None:
    accounts = Accounts()
    consumer = AsyncKafkaConsumer(
        "payments",
        bootstrap_servers=bootstrap_servers,
        group_id="ledger",
        auto_offset_reset="earliest",
        key_deserializer=bytes.decode,
    )

    async def stop_after_all() -> None:
        while accounts.booked < RECORDS:  # noqa: ASYNC110  # a service waits for SIGTERM
            await anyio.sleep(0.05)
        consumer.wakeup()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(stop_after_all)
        await process(
            consumer,
            accounts.book,
            order="key",
            concurrency=20,
            retry=[Retry(None, on=ConnectionError, first=0.1), Retry(3)],
            failed=accounts,
            drain=20,
        )
    print(len(accounts.balances), "accounts with", sum(accounts.balances.values()), "cents")
    print("failed:", accounts.failed)


if __name__ == "__main__":
    with Cluster(topics={"payments": 1}) as cluster:
        payments = [
            (f"account {n % 7}", json.dumps({"cents": n}) if n != 20 else "not JSON")
            for n in range(RECORDS)
        ]
        cluster.produce("payments", payments)
        anyio.run(main, cluster.bootstrap_servers)
