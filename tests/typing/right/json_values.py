"""Values of ``json.loads`` have the type Any."""

from __future__ import annotations

import json
from typing import Any, assert_type

from kohort import KafkaConsumer

consumer = KafkaConsumer("orders", value_deserializer=json.loads)
assert_type(consumer, KafkaConsumer[bytes, Any])
for record in consumer:
    if record.value is not None:
        print(record.value["id"])
