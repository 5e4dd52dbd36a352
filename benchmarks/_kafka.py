"""Apache Kafka for a measurement: one node that runs as long as the measurement."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from tests.support.jars import jars
from tests.support.kafka_server import KafkaServer
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
