"""Names that are imported on first use behave as if the import of kohort had loaded them."""

from __future__ import annotations

import copy
import importlib
import pickle

import pytest

import kohort
from kohort.config import ConsumerConfig
from kohort.errors import RecordDeserializationError
from kohort.types import ConsumerGroupMetadata
from tests.house._source import run

PACKAGES = [
    "kohort",
    "kohort.consumer",
    "kohort.protocol",
    "kohort.protocol.messages",
    "kohort.records",
]
FIRST_USE_IN_THREADS = """
import sys, threading
import kohort

names = [name for name in kohort.__all__ for _ in range(3)]
barrier, found, failed = threading.Barrier(len(names)), {name: set() for name in names}, []

def use(name):
    barrier.wait()
    try:
        found[name].add(id(getattr(kohort, name)))
    except BaseException as error:
        failed.append(error)

sys.setswitchinterval(1e-6)
threads = [threading.Thread(target=use, args=(name,)) for name in names]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert not failed, failed
assert all(len(each) == 1 for each in found.values()), found
print("done")
"""
FIRST_USE_AT_EXIT = """
import atexit
import sys
import kohort
from kohort.errors import ThreadStartError

def use():
    consumer = kohort.KafkaConsumer(bootstrap_servers="localhost:1")
    consumer.assign([kohort.TopicPartition("t", 0)])
    try:
        assert consumer.poll_batches() == []
    except ThreadStartError:
        assert sys.version_info >= (3, 12)  # no threads start at exit
    consumer.close()
    assert kohort.AsyncKafkaConsumer.__name__ == "AsyncKafkaConsumer"
    print("done")

atexit.register(use)
"""
LIKE_A_BROWSER = """
import sys, threading, socket, warnings
for name in ("cramjam", "crc32c", "trustme", "cryptography", "trio"):
    sys.modules[name] = None  # an import of it raises ImportError
warnings.simplefilter("ignore", RuntimeWarning)  # the plain CRC function says that it is slow

def refuse(*_, **__):
    raise RuntimeError("a browser has no threads and no sockets")

import asyncio
import kohort
from kohort.testing import MemoryCluster

async def main():
    threading.Thread.start = socket.socket.connect = socket.socket.bind = refuse
    async with MemoryCluster(brokers=2, topics={"orders": 2}) as cluster:
        cluster.produce("orders", ["a", "b"])
        async with kohort.AsyncKafkaConsumer(
            "orders",
            bootstrap_servers=cluster.bootstrap_servers,
            connect=cluster.connect,
            group_id="billing",
            auto_offset_reset="earliest",
        ) as consumer:
            print(*sorted([(await anext(consumer)).value for _ in range(2)]))

asyncio.run(main())
"""
INTERRUPTED_IMPORT = """
import sys
from kohort import KafkaConsumer
from kohort.records import to_columns, allocate_in_python  # compiled modules are not imported twice
import kohort.consumer.driver._tables

MODULES = ["kohort.consumer.driver._tables", "kohort.records._columns"]
MODULES += ["kohort.records.tables." + each for each in (
    "_arrow", "_capsule", "_column_views", "_table", "_table_decoder_choice", "_views")]
MODULES += ["kohort.records.tables"]
# Python ignores exceptions in callbacks of weak references ("cb", "remove"). An interrupt in the
# other functions leaves an import lock of Python held, and the consumer thread cannot import.
UNSAFE = {"cb", "remove", "_get_module_lock", "acquire", "release", "__init__", "__enter__",
    "__exit__"}

def forget():
    for name in MODULES:
        sys.modules.pop(name, None)
        package, _, last = name.rpartition(".")
        vars(sys.modules[package]).pop(last, None)
    package = sys.modules["kohort.records"]
    for name in package._LATER:
        vars(package).pop(name, None)

def interrupted_at(count):
    def trace(frame, event, argument):
        nonlocal count
        if frame.f_code.co_name in UNSAFE and "importlib" in frame.f_code.co_filename:
            return
        count -= 1
        if count == 0:
            sys.setprofile(None)
            raise KeyboardInterrupt
    forget()
    sys.setprofile(trace)
    try:
        consumer.poll_batches()
    except KeyboardInterrupt:
        return True
    finally:
        sys.setprofile(None)
    return False

consumer = KafkaConsumer(bootstrap_servers="localhost:1", bootstrap_timeout_ms=600_000)
strikes, count = 0, 1
while interrupted_at(count):
    assert consumer.poll_batches() == []
    strikes, count = strikes + 1, count + 1 + count // 20
consumer.close()
assert strikes > 50, strikes
print("done")
"""


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_is_found_on_first_use(package: str) -> None:
    names = importlib.import_module(package).__all__
    code = f"import {package} as it\nfor name in {names!r}: assert hasattr(it, name), name"
    assert run(code) == ""


@pytest.mark.parametrize("package", PACKAGES)
def test_an_unknown_name_is_an_attribute_error(package: str) -> None:
    module = importlib.import_module(package)
    assert not hasattr(module, "Unknown")
    with pytest.raises(AttributeError, match=f"'{package}' has no attribute 'Unknown'"):
        module.Unknown  # noqa: B018


def test_a_star_import_brings_every_public_name() -> None:
    found = run("from kohort import *\nprint(*[name for name in dir() if name != '__builtins__'])")
    assert set(kohort.__all__) <= set(found.split())


@pytest.mark.parametrize("package", ["kohort", "kohort.consumer", "kohort.records"])
def test_dir_has_every_public_name_before_first_use(package: str) -> None:
    found = run(f"import {package} as it\nprint(*dir(it))").split()
    assert set(importlib.import_module(package).__all__) <= set(found)
    assert found == sorted(found)


@pytest.mark.parametrize("name", ["AsyncKafkaConsumer", "KafkaConsumer", "RecordColumns"])
def test_help_describes_a_class_before_first_use(name: str) -> None:
    text = run(f"import kohort, pydoc\nprint(pydoc.plain(pydoc.render_doc(kohort.{name})))")
    assert f"class {name}" in text
    text = run(f"import pydoc\nprint(pydoc.plain(pydoc.render_doc('kohort.{name}')))")
    assert f"class {name}" in text


def test_values_are_unpickled_in_a_process_without_kohort() -> None:
    tp = kohort.TopicPartition("t", 0)
    config = ConsumerConfig.from_kwargs(bootstrap_servers="localhost:9092", group_id="g")
    values = [
        tp,
        kohort.OffsetAndMetadata(1, "text", 2),
        kohort.OffsetAndTimestamp(1, 2, 3),
        ConsumerGroupMetadata("g"),
        config.client,
        config.fetch,
        RecordDeserializationError("value", topic_partition=tp, offset=1, raw=b"x"),
        kohort.AsyncKafkaConsumer,
        kohort.KafkaConsumer,
        kohort.RecordColumns,
    ]
    data = pickle.dumps(values)
    code = f"import pickle\nfor each in pickle.loads({data!r}): print(repr(each))"
    assert run(code).splitlines() == [repr(each) for each in values]
    assert repr(copy.deepcopy(config.client)) == repr(config.client)


def test_first_use_in_several_threads_finds_one_object() -> None:
    assert run(FIRST_USE_IN_THREADS) == "done"


def test_first_use_at_exit_works() -> None:
    assert run(FIRST_USE_AT_EXIT) == "done"


def test_a_consumer_reads_without_codecs_threads_and_sockets() -> None:
    """A web worker has none of them: browser."""
    assert run(LIKE_A_BROWSER) == "b'a' b'b'"


def test_an_interrupted_import_of_tables_is_repeated() -> None:
    assert run(INTERRUPTED_IMPORT) == "done"
