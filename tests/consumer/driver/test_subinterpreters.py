"""Subinterpreters: the async API works, and a missing codec or thread is one clear error."""

from __future__ import annotations

import subprocess
import sys

import pytest

from kohort.errors import UnsupportedCodecError
from kohort.records import Compression, compress, decompress
from kohort.records.codecs import _compression
from kohort.testing import Cluster

OUTER = """
import os, sys

try:
    import _interpreters
except ImportError:
    import _xxsubinterpreters as _interpreters

inner = _interpreters.create()
failure = _interpreters.run_string(inner, sys.argv[1])
if failure is not None:
    sys.exit(str(failure))
sys.stdout.flush()
os._exit(0)  # CPython 3.12.1 aborts at its end after "import asyncio" in a subinterpreter
"""

INNER = """
import asyncio, sys
sys.path[:] = {path!r}
from kohort import AsyncKafkaConsumer, KafkaConsumer
from kohort.errors import ThreadStartError

options = dict(bootstrap_servers={servers!r}, auto_offset_reset="earliest", group_id="g")

async def main():
    async with AsyncKafkaConsumer("t", **options) as consumer:
        found = []
        while len(found) < 2:
            for records in (await consumer.poll(timeout_ms=1000)).values():
                found += [record.value for record in records]
    assert found == [b"plain", b"gzipped"], found

asyncio.run(main())
print("read", flush=True)
try:
    with KafkaConsumer("t", **options) as consumer:
        consumer.poll(timeout_ms=100)
except ThreadStartError as error:
    assert "use AsyncKafkaConsumer" in str(error)
print("done", flush=True)
"""


def test_consumer_reads_in_a_subinterpreter(cluster: Cluster) -> None:
    cluster.create_topic("t", 1)
    cluster.produce("t", [b"plain"])
    cluster.produce("t", [b"gzipped"], compression=Compression.GZIP)
    inner = INNER.format(path=sys.path, servers=cluster.bootstrap_servers)
    ended = subprocess.run(
        [sys.executable, "-c", OUTER, inner],
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (0, "read\ndone\n"), ended.stderr


@pytest.mark.parametrize("codec", [Compression.SNAPPY, Compression.LZ4, Compression.ZSTD])
def test_codec_raises_one_error_when_its_library_does_not_import(
    monkeypatch: pytest.MonkeyPatch, codec: Compression
) -> None:
    blob, gzipped = compress(codec, b"a" * 100), compress(Compression.GZIP, b"b")
    _compression.cramjam.cache_clear()
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "cramjam", None)
        for _ in range(2):
            with pytest.raises(UnsupportedCodecError, match="cannot be imported"):
                decompress(codec, blob)
            with pytest.raises(UnsupportedCodecError, match="cannot be imported"):
                compress(codec, b"a")
        assert decompress(Compression.GZIP, gzipped) == b"b"
    assert decompress(codec, blob) == b"a" * 100
