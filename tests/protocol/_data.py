"""The golden files of the protocol, read once."""

from __future__ import annotations

import base64
import json
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

DATA = Path(__file__).parents[1] / "data"
SHARE_GROUP_KEYS = frozenset({76, 77, 78, 79, 90})
"""APIs of share groups, which kohort declares no messages for."""
SHARE_GROUP_RECORDS = frozenset(range(10, 16))
"""Types of the records of share groups in __consumer_offsets."""


class Golden(NamedTuple):
    """One frame between a client and Apache Kafka, without its length prefix."""

    name: str
    api_key: int
    version: int
    is_request: bool
    frame: bytes
    json: dict[str, Any]
    header: dict[str, Any]


@cache
def load(name: str) -> Any:
    """Return a JSON file of ``tests/data``."""
    return json.loads((DATA / name).read_text())


@cache
def golden_frames() -> list[Golden]:
    """Return every captured request and response but those of share groups."""
    return _frames("wire_frames.json")


@cache
def consumer_group_frames() -> list[Golden]:
    """Return the captured requests and responses about groups of the consumer protocol."""
    return _frames("wire_frames_848.json")


def _frames(name: str) -> list[Golden]:
    found = []
    for number, entry in enumerate(load(name)["frames"]):
        if entry["key"] in SHARE_GROUP_KEYS:
            continue
        for kind, version in (("req", entry["ver"]), ("resp", entry.get("resp_ver", entry["ver"]))):
            found.append(
                Golden(
                    f"{entry['client']}-{entry['api']}-v{version}-{kind}-{number}",
                    entry["key"],
                    version,
                    kind == "req",
                    base64.b64decode(entry[kind]),
                    entry[f"{kind}_json"],
                    entry["req_header"],
                )
            )
    return found
