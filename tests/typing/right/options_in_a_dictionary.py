"""Options in a dictionary have a type."""

from __future__ import annotations

from kohort import ConsumerOptions, KafkaConsumer

options: ConsumerOptions = {"bootstrap_servers": ["a:9092", "b:9092"], "group_id": "billing"}
options["auto_offset_reset"] = "earliest"
KafkaConsumer("orders", **options)
