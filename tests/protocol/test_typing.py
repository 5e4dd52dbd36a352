"""Types of constructors and codecs: the errors of mypy for right and wrong uses."""

from __future__ import annotations

import re
from pathlib import Path

from mypy import api

ROOT = Path(__file__).parents[2]

USES = """
from kohort.protocol import decode, decode_response, encode, encode_request
from kohort.protocol.messages import FetchRequest, HeartbeatRequest, HeartbeatResponse

right = HeartbeatRequest(group_id="g", generation_id=3, group_instance_id=None)
text: str = right.group_id
nested = FetchRequest(topics=[FetchRequest.FetchTopic(topic="t", partitions=[])])
answer: HeartbeatResponse = decode(HeartbeatResponse, 4, b"")
number, answer = decode_response(HeartbeatResponse, 4, b"")
encode_request(right, 4, 1, None)

HeartbeatRequest(group="g")  # E: call-arg
HeartbeatRequest(group_id=b"g")  # E: arg-type
HeartbeatRequest(group_id=None)  # E: arg-type
HeartbeatRequest("g")  # E: call-arg
FetchRequest(topics=["t"])  # E: list-item
right.genration_id  # E: attr-defined
right.generation_id = "3"  # E: assignment
encode_request(answer, 4, 1, None)  # E: arg-type
encode(3, 4)  # E: arg-type
"""


def test_mypy_knows_the_fields(tmp_path: Path) -> None:
    file = tmp_path / "uses.py"
    file.write_text(USES)
    expected = {
        (number, match[1])
        for number, line in enumerate(USES.splitlines(), 1)
        if (match := re.search(r"# E: (\S+)", line))
    }
    out, problems, _ = api.run(
        [
            f"--config-file={ROOT / 'pyproject.toml'}",
            f"--cache-dir={ROOT / '.mypy_cache'}",
            "--no-pretty",
            "--show-error-codes",
            str(file),
        ]
    )
    assert problems == ""
    found = {
        (int(match[1]), match[2])
        for match in re.finditer(r"uses\.py:(\d+): error: .*\[([a-z-]+)\]$", out, re.MULTILINE)
    }
    assert found == expected, out
