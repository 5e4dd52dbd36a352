"""Java's hashes: the same numbers as in Java."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

from kohort.broker._hashes import coordinator_partition, java_string_hash
from kohort.records._key_partition import key_partition, murmur2

VECTORS: dict[str, Any] = json.loads(
    (Path(__file__).parents[1] / "data" / "hash_vectors.json").read_text()
)


def test_murmur2_places_keys_where_javas_producer_does() -> None:
    for vector in VECTORS["murmur2"]:
        key = base64.b64decode(vector["key_b64"])
        assert murmur2(key) == vector["murmur2"] & 0xFFFFFFFF
        assert [key_partition(key, n) for n in (1, 3, 10, 50)] == [
            vector[f"p{n}"] for n in (1, 3, 10, 50)
        ]


def test_groups_go_to_the_partition_that_kafka_puts_them_in() -> None:
    for vector in VECTORS["coordinator"]:
        group = vector["group"]
        assert java_string_hash(group) == vector["hash"]
        assert coordinator_partition(group, 50) == vector["p50"]
        assert coordinator_partition(group, 4) == vector["p4"]


def test_smallest_hash_without_absolute_value_counts_as_zero() -> None:
    smallest = next(v["group"] for v in VECTORS["coordinator"] if v["is_min"])
    assert java_string_hash(smallest) == -(1 << 31)
    assert coordinator_partition(smallest, 50) == 0
