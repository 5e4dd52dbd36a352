"""Apache Kafka as it is measured: one node, for as long as a measurement lasts."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.jars import jars
from tests.support.kafka_server import KafkaServer
from tests.support.secure_kafka import SecureKafka


class _Fast(KafkaServer):
    """With all of the JVM's compilers; the tests do without, for the sake of a quick start."""

    def _java(self, main_class: str, *args: object, level: str = "warn") -> list[str]:
        command = super()._java(main_class, *args, level=level)
        return [word for word in command if not word.startswith("-XX:TieredStopAtLevel")]


class FastSecureKafka(_Fast, SecureKafka):
    """A node with TLS and SASL listeners."""


class FastKafka(_Fast):
    """A node with one plaintext listener."""

    @property
    def pid(self) -> int:
        """Of the process that watches over it, whose only child it is."""
        assert self._process is not None
        return self._process.pid


@contextmanager
def kafka() -> Iterator[FastKafka]:
    """A node that is not started yet; afterwards it and all of its data are gone."""
    with tempfile.TemporaryDirectory() as folder:
        server = FastKafka(jars(), Path(folder))
        try:
            yield server
        finally:
            server.kill()


@contextmanager
def secure_kafka() -> Iterator[FastSecureKafka]:
    """A running node with TLS and SASL listeners; afterwards it and all of its data are gone."""
    with tempfile.TemporaryDirectory() as folder:
        server = FastSecureKafka(jars(), Path(folder))
        try:
            server.start()
            yield server
        finally:
            server.kill()
