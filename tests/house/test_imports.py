"""Limits of an import: it loads only what most consumers need. Each process of Spark runs one."""

from __future__ import annotations

import pytest

from tests.house._source import run

NOT_AT_ONCE = {
    "cramjam": "for compressed batches; it cannot be imported in a subinterpreter",
    "kohort.records.codecs._lz4_c": "for batches of LZ4",
    "crc32c": "the plain decoder's checksum; it imports all of importlib.metadata and argparse",
    "kohort.coordinator_client": "for a consumer in a group",
    "kohort.protocol._registry": "for servers and group members",
    "kohort.protocol.messages.create_topics": "a consumer has no use for it, as for most messages",
    "kohort.protocol.messages.fetch": "for the first fetch",
    "kohort.protocol.messages.list_offsets": "for partitions without a committed offset",
    "kohort.protocol.messages.offset_for_leader_epoch": "for leaders that change",
    "kohort.records._columns_c": "for tables",
    "kohort.records.codecs._decompress": "for compressed batches",
    "kohort.records._encode": "for producers",
    "kohort.records.tables._table": "for tables",
    "anyio.abc": "anyio imports it when an event loop runs",
    "asyncio": "for the consumer thread; with ssl it takes a third of the time of an import",
    "difflib": "for the error of an unknown option",
    "pyarrow": "for tables",
    "ssl": "for TLS, and asyncio imports it",
    "trio": "asyncio is the default",
    "uuid": "for messages about recreated topics; it imports platform",
}
OF_PYSPARK = {"asyncio", "pyarrow", "ssl", "uuid"}
"""What pyspark may import."""

OTHERS = {
    "anyio",
    "bisect",
    "copy",
    "dataclasses",
    "random",
    "sniffio",
    "typing_extensions",
    "zlib",
}
"""Packages outside kohort that an import of it may load, besides those of asyncio."""
MODULES_MAX = 150
"""Modules of kohort that one consumer class may load. Each takes about 0.2 ms of CPU time."""
OTHER_API = {
    "AsyncKafkaConsumer": "kohort.consumer.api._sync",
    "KafkaConsumer": "kohort.consumer.api._async",
}

_LIST_LOADED = """
import asyncio, sys
before = set(sys.modules)
from kohort import {name}
print(*(set(sys.modules) - before))
"""
_LIST_COMPILING = """
import asyncio, concurrent.futures, dataclasses, inspect, random, ssl, sys
import anyio, anyio.abc, anyio.lowlevel, anyio.to_thread

compiling = set()

def note(event, args):
    is_generated = event == "compile" and not str(args[1]).endswith(".py")
    frame = sys._getframe() if is_generated else None
    while frame is not None:
        if frame.f_code.co_name == "<module>":
            compiling.add(frame.f_globals["__name__"])
            break
        frame = frame.f_back

sys.addaudithook(note)
from kohort import AsyncKafkaConsumer, KafkaConsumer
KafkaConsumer("t", group_id="g")
print(*(name for name in compiling if name.startswith("kohort.")))
"""


@pytest.mark.parametrize("module", ["kohort.consumer.api._sync", "kohort.spark_connector._stream"])
def test_an_import_leaves_out_what_can_wait(module: str) -> None:
    if "spark" in module:
        pytest.importorskip("pyspark")
    loaded = run(f"import {module}, sys; print(*sys.modules)").split()
    waiting = NOT_AT_ONCE.keys() - (OF_PYSPARK if "spark" in module else set())
    assert not waiting.intersection(loaded)


def test_import_compiles_no_source() -> None:
    # A dataclass compiles its methods when it is created, and typing.NamedTuple each annotation.
    # That takes 0.1 to 1 ms of each start. kohort.types.NamedTuple does not.
    assert run(_LIST_COMPILING) == ""


@pytest.mark.parametrize("name", sorted(OTHER_API))
def test_a_consumer_class_loads_few_modules(name: str) -> None:
    loaded = set(run(_LIST_LOADED.format(name=name)).split())
    ours = {module for module in loaded if module.partition(".")[0] == "kohort"}
    others = {module.partition(".")[0] for module in loaded - ours}
    # Names with an underscore are C parts of the others, or of the compiled decoder.
    assert {each for each in others if each[0] != "_"} <= OTHERS | {"cython_runtime"}
    assert OTHER_API[name] not in ours
    assert len(ours) <= MODULES_MAX
