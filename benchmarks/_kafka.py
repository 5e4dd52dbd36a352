"""Apache Kafka for a measurement, one node as long as it runs, and clients in Java."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from tests.support.jars import jars, missing_kafka
from tests.support.kafka_server import KafkaServer
from tests.support.needs import java
from tests.support.secure_kafka import SecureKafka


class FastKafka(KafkaServer):
    """Node with all of the JVM's compilers. Nodes of tests have fewer, for a quick start."""

    def _java(self, main_class: str, *args: object, level: str = "warn") -> list[str]:
        command = super()._java(main_class, *args, level=level)
        return [word for word in command if not word.startswith("-XX:TieredStopAtLevel")]


class FastSecureKafka(FastKafka, SecureKafka):
    """Node with TLS and SASL listeners."""


Node = TypeVar("Node", bound=FastKafka)


@contextmanager
def node(kind: type[Node], properties: Mapping[str, str] | None = None) -> Iterator[Node]:
    """Yield a node that is not started yet. Delete it and all of its data afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        server = kind(jars(), Path(folder), properties)
        try:
            yield server
        finally:
            server.kill()


@contextmanager
def kafka(properties: Mapping[str, str] | None = None) -> Iterator[FastKafka]:
    """Yield a running node. Delete it and all of its data afterwards."""
    with node(FastKafka, properties) as server:
        server.start()
        yield server


def missing_java_program() -> str | None:
    """Return why a program cannot be compiled and run, or None."""
    if _compiler() is None:
        return "there is no compiler for Java (javac)"
    return missing_kafka()


def java_program(name: str, folder: Path, libraries: Path | None = None) -> list[str]:
    """Compile a program into ``folder``, and return the command that runs it.

    ``libraries`` is the folder of the jars that it needs, by default those of Kafka.
    """
    path = f"{libraries or jars()}/*:{folder}"
    source = Path(__file__).with_name(f"{name}.java")
    subprocess.run([str(_compiler()), "-cp", path, "-d", str(folder), str(source)], check=True)
    return [str(java()), "-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp", path, name]


def _compiler() -> Path | None:
    """Return the compiler of the Java that is run."""
    program = java()
    compiler = None if program is None else Path(program).resolve().with_name("javac")
    return compiler if compiler is not None and compiler.exists() else None
