"""kohort without what only Linux has: names of macOS and Windows, and no calls that they lack."""

from __future__ import annotations

import pytest

from tests.house._source import run

PEERS = """
import importlib, warnings

# What other packages do with the name of the system is not ours.
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    for name in ("aiokafka", "confluent_kafka.schema_registry", "deltalake", "fastavro", "gssapi",
        "google.protobuf.message_factory", "jsonschema", "kafka", "opentelemetry.metrics",
        "opentelemetry.trace", "polars", "prometheus_client", "psycopg", "pyarrow", "pyiceberg",
        "pyspark.sql.datasource", "pytest", "trio", "trustme"):
        try:
            importlib.import_module(name)
        except ImportError:
            pass
"""
STRIPPED = """
import asyncio, importlib, os, pathlib, pkgutil, selectors, select, signal, socket, sys, types
import ctypes.util, multiprocessing, subprocess, tempfile, threading, zipfile
import anyio._backends._asyncio, cramjam, crc32c

pathlib.os = types.SimpleNamespace(**{**vars(os), "name": "posix"})  # else no path can be made

WINDOWS = PLATFORM == "win32"
tempfile.tempdir = tempfile.gettempdir()
sys.platform, os.name = PLATFORM, "nt" if WINDOWS else "posix"
selectors.DefaultSelector = selectors.SelectSelector
for module, names in {
    selectors: "EpollSelector PollSelector",
    select: "epoll poll EPOLLIN EPOLLOUT EPOLLERR EPOLLHUP POLLIN POLLOUT",
    os: "memfd_create MFD_CLOEXEC eventfd sched_getaffinity pidfd_open",
    socket: "SO_RCVLOWAT TCP_KEEPIDLE TCP_QUICKACK TCP_USER_TIMEOUT MSG_NOSIGNAL",
}.items():
    for each in names.split():
        if hasattr(module, each):
            delattr(module, each)
if WINDOWS:
    for each in "fork getuid geteuid fchmod chown mkfifo killpg getpgid".split():
        if hasattr(os, each):
            delattr(os, each)
    for each in "SIGHUP SIGKILL SIGUSR1 SIGUSR2 SIGQUIT SIGALRM pthread_sigmask setitimer".split():
        if hasattr(signal, each):
            delattr(signal, each)
    for each in ("fcntl", "grp", "pwd", "resource", "termios"):
        sys.modules[each] = None
"""
IMPORTS = """
import kohort, pyspark_kohort, pytest_kohort

count = 0
for package in (kohort, pyspark_kohort, pytest_kohort):
    for each in pkgutil.walk_packages(getattr(package, "__path__", []), package.__name__ + "."):
        if each.name.rpartition(".")[2] != "__main__":
            importlib.import_module(each.name)
            count += 1
assert count > 300, count
print("imported")
"""
READS = """
from kohort import AsyncKafkaConsumer, KafkaConsumer
from kohort.testing import Cluster

def options(cluster, group):
    return {
        "bootstrap_servers": cluster.bootstrap_servers,
        "group_id": group,
        "auto_offset_reset": "earliest",
    }

async def read(cluster):
    async with AsyncKafkaConsumer("orders", **options(cluster, "b")) as consumer:
        return [(await anext(consumer)).value for _ in range(40)]

with Cluster(brokers=2, topics={"orders": 4}) as cluster:
    values = [b"%d" % number for number in range(40)]
    cluster.produce("orders", values)
    with KafkaConsumer("orders", **options(cluster, "a")) as consumer:
        assert sorted(next(consumer).value for _ in range(40)) == sorted(values)
        consumer.commit()
    assert sorted(asyncio.run(read(cluster))) == sorted(values)
    assert sum(at.offset for at in cluster.committed("a").values()) == 40
print("read")
"""
PATHS_AND_SIGNALS = """
from kohort.cli import main
from kohort.processing._processor import STOP_SIGNALS
from kohort.security.tls._pem import as_file

with as_file(b"certificate") as path:
    assert pathlib.Path(path).read_bytes() == b"certificate"
assert not os.path.exists(path)
assert all(signal.getsignal(each) is not None for each in STOP_SIGNALS)
try:
    main(["--version"])
except SystemExit as end:
    assert end.code in (0, None)
print("done")
"""


@pytest.fixture(params=["win32", "darwin"])
def stripped(request: pytest.FixtureRequest) -> str:
    """Return code that removes from Python what this system does not have."""
    return STRIPPED.replace("PLATFORM", repr(request.param))


@pytest.mark.long  # it imports every module and every package beside it
def test_every_module_is_imported_without_linux(stripped: str) -> None:
    assert run(PEERS + stripped + IMPORTS) == "imported"


def test_group_is_read_without_linux(stripped: str) -> None:
    assert run(stripped + READS + PATHS_AND_SIGNALS).endswith("done")
