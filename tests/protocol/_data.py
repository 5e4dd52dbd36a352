"""The golden files of the protocol, read once."""

from __future__ import annotations

import base64
import json
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

DATA = Path(__file__).parents[1] / "data"


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
    """Return every captured request and response of the APIs that kohort has messages for."""
    return _frames("wire_frames.json")


@cache
def consumer_group_frames() -> list[Golden]:
    """Return the captured requests and responses about groups of the consumer protocol."""
    return _frames("wire_frames_848.json")


@cache
def share_group_frames() -> list[Golden]:
    """Return the captured requests and responses about share groups."""
    found = []
    for number, entry in enumerate(load("wire_frames_share.json")["frames"]):
        for kind in ("req", "resp"):
            frame = bytes.fromhex(entry[f"{kind}_hex"])
            request = bytes.fromhex(entry["req_hex"])
            length = int.from_bytes(request[8:10], "big")
            header = {
                "requestApiKey": entry["api"],
                "requestApiVersion": entry["version"],
                "correlationId": int.from_bytes(request[4:8], "big"),
                "clientId": request[10 : 10 + length].decode(),
            }
            name = f"{entry['client']}-{entry['scenario']}-{entry['api']}-{kind}-{number}"
            found.append(
                Golden(
                    name,
                    entry["api"],
                    entry["version"],
                    kind == "req",
                    frame,
                    entry[f"{kind}_json"],
                    header,
                )
            )
    return found


def _frames(name: str) -> list[Golden]:
    found = []
    for number, entry in enumerate(load(name)["frames"]):
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
