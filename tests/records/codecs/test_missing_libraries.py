"""Records are read without the optional libraries in C, or the error names what to install."""

from __future__ import annotations

import subprocess
import sys

import crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.errors import UnsupportedCodecError
from kohort.records import Compression, compress, decompress
from kohort.records.codecs._compression import cramjam
from kohort.records.codecs._crc32c import plain_crc32c
from tests.records.codecs.lying_frames import TEXT

READ = """
import os, sys
import warnings
for name in {blocked!r}:
    sys.modules[name] = None
warnings.simplefilter("always")
from kohort import KafkaConsumer
from kohort.testing import Cluster
from kohort.records import COMPILED, Compression

with Cluster(topics={{"t": 1}}) as cluster:
    cluster.produce("t", [b"a" * 1000, b"b"] * 50, compression=Compression[{codec!r}])
    with KafkaConsumer(
        "t", bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest"
    ) as consumer:
        read = [next(consumer).value for _ in range(100)]
assert read == [b"a" * 1000, b"b"] * 50
print(COMPILED)
"""
WITHOUT_LZ4 = ("lz4", "kohort.records.codecs._lz4_c")


def read(codec: str, blocked: tuple[str, ...], *, pure: bool) -> subprocess.CompletedProcess[str]:
    """Run a consumer of compressed records without the blocked packages."""
    code = READ.format(codec=codec, blocked=blocked)
    if pure:
        code = "import os; os.environ['KOHORT_PURE'] = '1'" + code
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize("pure", [False, True])
def test_lz4_is_read_when_its_compiled_module_is_missing(pure: bool) -> None:
    done = read("LZ4", WITHOUT_LZ4, pure=pure)
    assert (done.returncode, done.stderr) == (0, "")
    assert not (pure and "True" in done.stdout)


def test_records_are_read_with_one_warning_if_crc32c_is_missing() -> None:
    done = read("NONE", ("crc32c",), pure=True)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("pip install crc32c") == 1


def test_codec_error_names_the_package_when_cramjam_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    packed = compress(Compression.LZ4, b"a" * 100)
    cramjam.cache_clear()
    monkeypatch.setitem(sys.modules, "cramjam", None)
    with pytest.raises(UnsupportedCodecError, match="pip install cramjam"):
        decompress(Compression.LZ4, packed)
    with pytest.raises(UnsupportedCodecError, match="pip install cramjam"):
        compress(Compression.LZ4, b"a")


@given(data=st.binary(max_size=300))
def test_plain_checksum_is_that_of_the_library(data: bytes) -> None:
    assert plain_crc32c(data) == plain_crc32c(bytearray(data)) == crc32c.crc32c(data)


@pytest.mark.parametrize("size", [0, 1, 65_535, 65_536, 65_537, len(TEXT)])
def test_lz4_frames_are_those_of_the_library(size: int) -> None:
    lz4_frame = pytest.importorskip("lz4.frame")
    plain = TEXT[:size]
    packed = compress(Compression.LZ4, plain)
    assert packed == lz4_frame.compress(plain, block_linked=False, store_size=False)
    assert lz4_frame.decompress(packed) == decompress(Compression.LZ4, packed) == plain


def test_lz4_blocks_that_do_not_shrink_are_stored() -> None:
    plain = bytes(range(256))
    packed = compress(Compression.LZ4, plain)
    assert plain in packed
    assert decompress(Compression.LZ4, packed) == plain
