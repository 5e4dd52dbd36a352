"""Jars of Apache Kafka and of Spark's Kafka source, fetched once by Maven into the cache."""

from __future__ import annotations

import fcntl
import functools
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

from tests.support.needs import missing_java, missing_spark

KAFKA_VERSION = "4.4.0"
LOGGING = ("org.slf4j", "slf4j-simple", "1.7.36")
ARTIFACTS = (
    ("org.apache.kafka", "kafka_2.13", KAFKA_VERSION),
    ("org.apache.kafka", "kafka-tools", KAFKA_VERSION),
    LOGGING,
)
OLD_VERSIONS = ("2.8.2", "3.9.2", "4.3.1")
"""Brokers that are still in use: the last with message formats by topic, the last 3.x, and the
release before KAFKA_VERSION.
"""
PARALLEL_CONSUMER = (
    ("io.confluent.parallelconsumer", "parallel-consumer-core", "0.5.3.3"),
    LOGGING,
)
SPARK_ARTIFACTS = (
    ("org.apache.spark", "spark-sql-kafka-0-10_2.13", "4.2.0"),
    ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.1.0-preview1"),
    ("org.apache.kafka", "kafka-clients", "3.9.1"),
    ("org.apache.commons", "commons-pool2", "2.12.0"),
)
PLUGIN = ("org.apache.maven.plugins", "maven-dependency-plugin", "3.8.1")
CACHE = Path(__file__).parents[2] / ".cache" / "kafka"
KAFKA, SPARK_SOURCE = CACHE / KAFKA_VERSION, CACHE / "spark-source"
FETCH_TIMEOUT_S = 900


class MavenError(Exception):
    """Maven failed. The message ends with its output."""


def jars() -> Path:
    """Return the folder of Kafka's jars. Fetch them first if they are not cached."""
    return _found(KAFKA, _pom(ARTIFACTS))


def old_jars(version: str) -> Path:
    """Return the folder of the jars of one of OLD_VERSIONS."""
    return _found(CACHE / version, _pom((("org.apache.kafka", "kafka_2.13", version), LOGGING)))


def parallel_consumer_jars() -> Path:
    """Return the folder of the jars of Confluent's Parallel Consumer, which benchmarks compare."""
    return _found(CACHE / "parallel-consumer", _pom(PARALLEL_CONSUMER))


def spark_jars() -> Path:
    """Return the folder of the jars that Spark's own Kafka source needs. Fetch them
    if necessary.
    """
    alone = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion>"
    return _found(SPARK_SOURCE, _pom(SPARK_ARTIFACTS, f"{alone}</exclusions>"))


def _found(folder: Path, pom: str) -> Path:
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two test runs at the same time fetch once
        if not folder.exists():
            _fetch(folder, pom)
    return folder


@functools.cache
def missing_kafka() -> str | None:
    """Return why Apache Kafka cannot run, or None. Fetch the jars; a failed fetch raises."""
    return missing_java() or _missing_jars("Apache Kafka", KAFKA, jars)


@functools.cache
def missing_old_kafka() -> str | None:
    """Return why one of OLD_VERSIONS cannot run, or None. See :func:`missing_kafka`."""
    reason = missing_java()
    for version in OLD_VERSIONS:
        reason = reason or _missing_jars(
            f"Apache Kafka {version}", CACHE / version, functools.partial(old_jars, version)
        )
    return reason


@functools.cache
def missing_spark_source() -> str | None:
    """Return why Spark's own Kafka source cannot run, or None. See :func:`missing_kafka`."""
    return missing_spark() or _missing_jars("Spark's Kafka source", SPARK_SOURCE, spark_jars)


def _missing_jars(name: str, folder: Path, fetch: Callable[[], object]) -> str | None:
    if not folder.exists() and shutil.which("mvn") is None:
        return f"Maven (mvn) is not installed and the cache holds no jars of {name}"
    fetch()
    return None


def _fetch(folder: Path, project: str) -> None:
    """Copy the jars into a folder next to ``folder`` with Maven, then rename that folder."""
    with tempfile.TemporaryDirectory(dir=CACHE) as scratch:
        pom = Path(scratch, "pom.xml")
        pom.write_text(project)
        target = Path(scratch, "lib")
        command = ["mvn", "-B", "-q", "-f", str(pom), f"-DoutputDirectory={target}"]
        answer = subprocess.run(
            [*command, ":".join(PLUGIN) + ":copy-dependencies"],
            capture_output=True,
            text=True,
            timeout=FETCH_TIMEOUT_S,
            check=False,
        )
        if answer.returncode != 0:
            raise MavenError(f"mvn ended with {answer.returncode}:\n{answer.stdout[-4000:]}")
        target.rename(folder)


def _pom(artifacts: Iterable[tuple[str, str, str]], each: str = "") -> str:
    """Return a project that has the artifacts as its only dependencies."""
    dependencies = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
        f"<version>{version}</version>{each}</dependency>"
        for group, artifact, version in artifacts
    )
    return (
        "<project><modelVersion>4.0.0</modelVersion>"
        "<groupId>kohort</groupId><artifactId>kafka-for-tests</artifactId><version>1</version>"
        f"<dependencies>{dependencies}</dependencies></project>"
    )
