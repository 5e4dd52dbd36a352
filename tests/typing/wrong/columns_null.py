"""A value of a column may be null."""

from __future__ import annotations

import json

from kohort import KafkaConsumer

for columns in KafkaConsumer("orders").poll_batches():
    # expect: mypy arg-type | pyright reportArgumentType
    json.loads(columns.value[0])
