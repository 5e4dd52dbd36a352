"""Integration tests of kafka-python, fetched with its source and run on a running broker."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import tarfile
import tempfile
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

CACHE = Path(__file__).parents[2] / ".cache" / "kafka-python"
CODECS = ("python-snappy", "zstandard")
"""Libraries without which kafka-python skips tests of a codec."""
MODULES = ("admin", "consumer", "producer")
ASIDE = ("test_admin_integration.py::test_create_describe_delete_acls",)
"""Test that needs an authorizer. The modules of TLS and of SASL need listeners of those."""
KAFKA_VERSION = "4.3"
FETCH_TIMEOUT_S, RUN_TIMEOUT_S, TEST_TIMEOUT_S = 300, 540, 120

STUB = '''"""Processes of brokers: none is started, as the tests use one that runs already."""


class ExternalService:
    def __init__(self, host, port):
        self.host, self.port = host, port

    def open(self):
        pass

    def close(self):
        pass


class SpawnedService:
    def __init__(self, *arguments, **options):
        raise RuntimeError("this test starts a broker of its own")
'''
"""Replacement of ``test/service.py``, which the source package leaves out."""


class FetchError(Exception):
    """pip could not fetch the source. The message ends with its output."""


@dataclass(frozen=True)
class Outcomes:
    """Names of the tests by their outcome, and the end of pytest's output."""

    passed: frozenset[str]
    failed: frozenset[str]
    skipped: frozenset[str]
    output: str


def fetch_suite() -> Path:
    """Return the folder of the source with the stub in it. Fetch it once. Raise FetchError."""
    target = CACHE / version("kafka-python")
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two test runs at the same time fetch once
        if not target.exists():
            _fetch(target)
    return target


def _fetch(target: Path) -> None:
    with tempfile.TemporaryDirectory(dir=CACHE) as scratch:
        wanted = f"kafka-python=={version('kafka-python')}"
        _pip("download", "--no-binary", ":all:", "--no-deps", "--dest", scratch, wanted)
        (archive,) = Path(scratch).glob("*.tar.gz")
        with tarfile.open(archive) as packed:
            packed.extractall(scratch, filter="data")
        (source,) = (path for path in Path(scratch).iterdir() if path.is_dir())
        # Without this file Python would find its own package "test".
        (source / "test" / "__init__.py").touch()
        (source / "test" / "service.py").write_text(STUB)
        _pip("install", "--target", str(source / "codecs"), *CODECS)
        source.rename(target)


def _pip(*arguments: str) -> None:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=FETCH_TIMEOUT_S, check=False
    )
    if done.returncode != 0:
        raise FetchError(f"pip {arguments[0]} ended with {done.returncode}:\n{done.stderr[-2000:]}")


def run_suite(source: Path, bootstrap_server: str, report: Path) -> Outcomes:
    """Run the tests on a broker. pytest writes its results to the file ``report``."""
    folder = Path("test", "integration")
    environment = {
        **os.environ,
        "KAFKA_URI": f"kafka://{bootstrap_server}",
        "KAFKA_VERSION": KAFKA_VERSION,
        "KAFKA_ROOT": str(source),  # must exist, and is not used
        "PYTHONPATH": str(source / "codecs"),
    }
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"),
            *("-p", "no:pytest_kohort", "-p", "no:asyncio", "--tb=short", "--show-capture=no"),
            *(f"--timeout={TEST_TIMEOUT_S}", "--timeout-method=signal", f"--junitxml={report}"),
            *(f"--deselect={folder / name}" for name in ASIDE),
            *(str(folder / f"test_{name}_integration.py") for name in MODULES),
        ],
        cwd=source,
        env=environment,
        capture_output=True,
        text=True,
        timeout=RUN_TIMEOUT_S,
        check=False,
    )
    return _outcomes(report, done.stdout[-8000:] + done.stderr[-2000:])


def _outcomes(report: Path, output: str) -> Outcomes:
    found: dict[str, set[str]] = {"passed": set(), "failed": set(), "skipped": set()}
    for case in ElementTree.parse(report).iter("testcase"):
        name = f"{case.get('classname', '').rpartition('.')[2]}::{case.get('name')}"
        bad = case.find("failure") is not None or case.find("error") is not None
        skipped = case.find("skipped") is not None
        found["failed" if bad else "skipped" if skipped else "passed"].add(name)
    return Outcomes(
        frozenset(found["passed"]), frozenset(found["failed"]), frozenset(found["skipped"]), output
    )
