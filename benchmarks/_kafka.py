"""Apache Kafka for a measurement: one node that runs as long as the measurement."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.support.jars import jars
from tests.support.kafka_server import KafkaServer
from tests.support.secure_kafka import SecureKafka


class _Fast(KafkaServer):
    """Node with all of the JVM's compilers. Nodes of tests have fewer, for a quick start."""

    def _java(self, main_class: str, *args: object, level: str = "warn") -> list[str]:
        command = super()._java(main_class, *args, level=level)
        return [word for word in command if not word.startswith("-XX:TieredStopAtLevel")]


class FastSecureKafka(_Fast, SecureKafka):
    """Node with TLS and SASL listeners."""


class FastKafka(_Fast):
    """Node with one plaintext listener."""

    @property
    def pid(self) -> int:
        """Id of the process that supervises the node, its only child."""
        assert self._process is not None
        return self._process.pid


@contextmanager
def kafka(properties: Mapping[str, str] | None = None) -> Iterator[FastKafka]:
    """Yield a node that is not started yet. Delete it and all of its data afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        server = FastKafka(jars(), Path(folder), properties)
        try:
            yield server
        finally:
            server.kill()


@contextmanager
def secure_kafka() -> Iterator[FastSecureKafka]:
    """Yield a running node with TLS and SASL listeners. Delete it and all of its
    data afterwards.
    """
    with tempfile.TemporaryDirectory() as folder:
        server = FastSecureKafka(jars(), Path(folder))
        try:
            server.start()
            yield server
        finally:
            server.kill()
