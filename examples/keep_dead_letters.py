"""Copy records that fail to a topic of dead letters, correct the handler, and replay them."""

from __future__ import annotations

from kohort import ConsumerRecord, KafkaConsumer
from kohort.cli import main as kohort
from kohort.processing import DeadLetters, Retry, process
from kohort.testing import Cluster

DEAD = "dlq.billing"


class Billing:
    """Charges, where a first version does not know the currency SEK."""

    def __init__(self, rates: dict[str, float]) -> None:
        self._rates = rates
        self.charged: list[str] = []

    def charge(self, record: ConsumerRecord[bytes, str]) -> None:
        """Charge one order."""
        amount, currency = (record.value or "").split()
        self.charged.append(f"{float(amount) * self._rates[currency]:.2f} EUR")


def run(bootstrap_servers: str, billing: Billing, orders: int) -> None:
    """Process until this number of orders is charged or set aside."""
    consumer = KafkaConsumer(
        "orders",
        bootstrap_servers=bootstrap_servers,
        group_id="billing",
        auto_offset_reset="earliest",
        value_deserializer=bytes.decode,
    )
    handled: set[int] = set()

    def handler(record: ConsumerRecord[bytes, str]) -> None:
        handled.add(record.offset)
        if len(handled) == orders:
            consumer.wakeup()  # a service runs until SIGTERM
        billing.charge(record)

    process(consumer, handler, retry=Retry(2, first=0.1), failed=DeadLetters(DEAD))


if __name__ == "__main__":
    with Cluster(topics={"orders": 1, DEAD: 1}) as cluster:
        servers = ["--bootstrap-servers", cluster.bootstrap_servers]
        cluster.produce("orders", ["5.00 EUR", "70.00 SEK", "140.00 SEK", "8.50 USD"])

        first = Billing({"EUR": 1.0, "USD": 0.9})
        run(cluster.bootstrap_servers, first, orders=4)
        print("charged:", first.charged)
        kohort(["dead-letters", DEAD, *servers])

        kohort(["dead-letters", DEAD, "--replay", *servers])
        second = Billing({"EUR": 1.0, "USD": 0.9, "SEK": 0.1})
        run(cluster.bootstrap_servers, second, orders=2)
        print("charged:", second.charged)
