"""Apache Kafka's jars, fetched once by Maven into the project's cache."""

from __future__ import annotations

import fcntl
import functools
import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.support.needs import missing_java

KAFKA_VERSION = "4.3.1"
ARTIFACTS = (
    ("org.apache.kafka", "kafka_2.13", KAFKA_VERSION),
    ("org.apache.kafka", "kafka-tools", KAFKA_VERSION),
    ("org.slf4j", "slf4j-simple", "1.7.36"),
)
PLUGIN = ("org.apache.maven.plugins", "maven-dependency-plugin", "3.8.1")
CACHE = Path(__file__).parents[2] / ".cache" / "kafka"
FETCH_TIMEOUT_S = 900


class MavenError(Exception):
    """Maven ran and failed; the message ends with what it printed."""


def jars() -> Path:
    """The folder of Kafka's jars: found in the cache, or fetched into it first."""
    folder = CACHE / KAFKA_VERSION
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two test runs at once fetch once
        if not folder.exists():
            _fetch(folder)
    return folder


@functools.cache
def missing_kafka() -> str | None:
    """Why Apache Kafka cannot be run; None when it can. Fetches the jars; a failed fetch raises."""
    reason = missing_java()
    if reason is None and not (CACHE / KAFKA_VERSION).exists() and shutil.which("mvn") is None:
        return "Maven (mvn) is not installed and the cache holds no jars of Apache Kafka"
    if reason is None:
        jars()
    return reason


def _fetch(folder: Path) -> None:
    """Have Maven copy the jars beside ``folder``, then move them there whole."""
    with tempfile.TemporaryDirectory(dir=CACHE) as scratch:
        pom = Path(scratch, "pom.xml")
        pom.write_text(_pom())
        target = Path(scratch, "lib")
        command = ["mvn", "-B", "-q", "-f", str(pom), f"-DoutputDirectory={target}"]
        answer = subprocess.run(
            [*command, ":".join(PLUGIN) + ":copy-dependencies"],
            capture_output=True,
            text=True,
            timeout=FETCH_TIMEOUT_S,
        )
        if answer.returncode != 0:
            raise MavenError(f"mvn ended with {answer.returncode}:\n{answer.stdout[-4000:]}")
        target.rename(folder)


def _pom() -> str:
    """A project that has Kafka's artifacts as its dependencies and is nothing else."""
    dependencies = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
        f"<version>{version}</version></dependency>"
        for group, artifact, version in ARTIFACTS
    )
    return (
        "<project><modelVersion>4.0.0</modelVersion>"
        "<groupId>kohort</groupId><artifactId>kafka-for-tests</artifactId><version>1</version>"
        f"<dependencies>{dependencies}</dependencies></project>"
    )
