"""Topics come in any collection, and patterns as text or compiled."""

from __future__ import annotations

import re

from kohort import KafkaConsumer

consumer = KafkaConsumer(group_id="billing")
consumer.subscribe(["orders", "refunds"])
consumer.subscribe(("orders",))
consumer.subscribe({"orders"})
consumer.subscribe({"orders": 3}.keys())
consumer.subscribe(name for name in ("orders", "refunds"))
consumer.unsubscribe()
consumer.subscribe(pattern="orders-.*")
consumer.subscribe(pattern=re.compile("orders-.*"), listener=None)
