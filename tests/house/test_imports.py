"""An import takes no more than what most consumers need: processes of Spark's start with one."""

from __future__ import annotations

import subprocess
import sys

import pytest

NOT_AT_ONCE = {
    "cramjam": "for compressed batches; it cannot be imported in a subinterpreter",
    "lz4.block": "for tables of compressed batches; nor can it",
    "lz4.frame": "for compressed batches; nor can it",
    "crc32c": "the plain decoder's checksum; it imports all of importlib.metadata and argparse",
    "kohort.coordinator_client": "for a consumer in a group",
    "kohort.protocol.messages.create_topics": "a consumer has no use for it, as for most messages",
    "pyarrow": "for tables",
    "trio": "asyncio is the default",
}


@pytest.mark.parametrize("module", ["kohort", "kohort.spark_connector._stream"])
def test_an_import_leaves_out_what_can_wait(module: str) -> None:
    # pyspark imports pyarrow by itself, if it is there.
    if "spark" in module:
        pytest.importorskip("pyspark")
    said = subprocess.run(
        [sys.executable, "-c", f"import {module}, sys; print(*sys.modules)"],
        capture_output=True,
        check=True,
        text=True,
    )
    waiting = NOT_AT_ONCE.keys() - ({"pyarrow"} if "spark" in module else set())
    assert not waiting.intersection(said.stdout.split())
