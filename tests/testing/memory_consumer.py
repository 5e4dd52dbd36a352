"""Consumer whose network is a cluster in the same event loop."""

from __future__ import annotations

import random
from typing import Any

from kohort import AsyncKafkaConsumer
from kohort.testing import MemoryCluster


class MemoryConsumer(AsyncKafkaConsumer):
    """A consumer whose network is a cluster in the same event loop."""

    def __init__(self, cluster: MemoryCluster, *topics: str, **configs: Any) -> None:
        keywords = {
            "bootstrap_servers": cluster.bootstrap_servers,
            "connect": cluster.connect,
            "rng": random.Random(5),
            "group_id": "g",
            "auto_offset_reset": "earliest",
            **configs,
        }
        super().__init__(*topics, **keywords)
