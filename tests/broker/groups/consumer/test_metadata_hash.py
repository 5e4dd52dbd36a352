"""Hashes of topics and groups, as Apache Kafka stores them in ``__consumer_offsets``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kohort.broker.groups.consumer._metadata_hash import group_hash, topic_hash
from kohort.broker.groups.consumer._xxh3 import xxh3_64

VECTORS: dict[str, Any] = json.loads(
    (Path(__file__).parents[3] / "data" / "metadata_hashes.json").read_text()
)
TOPICS = {topic["name"]: topic for topic in VECTORS["topics"]}
XXH3 = {
    4: 0x60DAB036A58211F2,
    8: 0x3A1C2D7C85AF88F8,
    9: 0xE9612598145BB9DC,
    16: 0x8355E3A6F61770DB,
    17: 0x9EF341A99DE37328,
    128: 0x85C6174C7FF4C46B,
    129: 0xEC7642B431BA3E5A,
    240: 0x375A384D957FE865,
    241: 0x02E8CD95421C6D02,
    1_025: 0xE95C42288F28186E,
    5_000: 0xB418500FC42320EE,
}
"""Hashes of 0, 1, .. 250, 0, .. by size, computed with the library of the authors of XXH3."""


def test_topics_have_the_hashes_of_kafka() -> None:
    assert len(TOPICS) == 24
    for topic in VECTORS["topics"]:
        topic_id = bytes.fromhex(topic["id_hex"])
        assert topic_hash(topic_id, topic["name"], topic["racks"]) == topic["hash"]


def test_order_of_racks_does_not_change_the_hash() -> None:
    topic = max(VECTORS["topics"], key=lambda each: sum(map(len, each["racks"])))
    racks = [racks[::-1] for racks in topic["racks"]]
    assert racks != topic["racks"]
    assert topic_hash(bytes.fromhex(topic["id_hex"]), topic["name"], racks) == topic["hash"]


def test_groups_have_the_hashes_of_kafka() -> None:
    assert len(VECTORS["groups"]) == 12
    for group in VECTORS["groups"]:
        hashes = dict(reversed(group["topics"].items()))
        assert group_hash(hashes) == group["hash"]


@pytest.mark.parametrize("size", XXH3)
def test_hash_of_each_length_is_that_of_xxh3(size: int) -> None:
    data = (bytes(range(251)) * (size // 251 + 1))[:size]
    assert xxh3_64(data) == XXH3[size]
