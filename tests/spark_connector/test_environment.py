"""The connector with an old or missing pyspark or pyarrow: its errors, and other sources."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest
from pyspark.sql.datasource import DataSource

import pyspark_kohort
from kohort.errors import ConfigurationError
from kohort.spark_connector import KohortDataSource
from kohort.spark_connector._errors import ReadOnlyError
from tests.spark_connector.reading import schema, source

ROOT = Path(__file__).parents[2]
GIVEN = {"kafka.bootstrap.servers": "h:1", "subscribe": "orders"}
COLUMNS = "value binary"


def run(code: str, folder: Path | None = None) -> str:
    """Run code with ``folder`` before all installed packages."""
    path = os.pathsep.join([*([str(folder)] if folder else []), str(ROOT)])
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_spark_finds_the_source_by_itself() -> None:
    # pyspark.sql.worker.lookup_data_sources searches for it in the same way.
    assert issubclass(pyspark_kohort.DefaultSource, DataSource)
    assert pyspark_kohort.DefaultSource.name() == "kohort"
    assert pyspark_kohort.DefaultSource is KohortDataSource


@pytest.mark.parametrize("version", ["3.5.9"])
def test_an_older_pyspark_is_refused_when_the_source_is_used(
    version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pyspark, "__version__", version)
    made = source(GIVEN)
    for use in (
        made.schema,
        lambda: made.reader(schema=schema(COLUMNS)),
        lambda: made.streamReader(schema=schema(COLUMNS)),
    ):
        with pytest.raises(ImportError, match=f"needs pyspark 4.0 or newer, and this is {version}"):
            use()


@pytest.mark.parametrize("version", ["4.0.0", "4.1.4", "4.2.0", "4.3.0.dev1", "5.0.0rc1"])
def test_newer_ones_are_accepted(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyspark, "__version__", version)
    assert source(GIVEN).schema().startswith("key binary")


def test_importing_source_breaks_no_session_of_older_pyspark(tmp_path: Path) -> None:
    """Spark imports every source that it finds. One failing import breaks all sessions."""
    package = tmp_path / "pyspark" / "sql"
    package.mkdir(parents=True)
    (tmp_path / "pyspark" / "__init__.py").write_text('__version__ = "3.5.9"')
    (package / "__init__.py").write_text("")
    (package / "datasource.py").write_text(
        "class DataSource:\n    def __init__(self, options): self.options = options\n"
    )
    code = (
        "from pyspark_kohort import DefaultSource\n"
        "print(DefaultSource.name())\n"
        "try: DefaultSource({}).schema()\n"
        "except ImportError as error: print(error)\n"
    )
    assert "kohort\nthe Spark connector needs pyspark 4.0 or newer" in run(code, tmp_path)


@pytest.mark.parametrize("name", ["pyspark", "pyarrow"])
def test_a_missing_library_is_named_with_the_way_to_get_it(name: str) -> None:
    code = (
        f"import sys; sys.modules[{name!r}] = None\n"
        "try:\n"
        "    from pyspark_kohort import DefaultSource\n"
        "    DefaultSource({}).schema()\n"
        "except ImportError as error: print(error)\n"
    )
    said = run(code)
    assert f"needs {name}" in said
    assert "pip install 'kohort[spark]'" in said


def test_importing_source_starts_no_thread_and_loads_no_arrow() -> None:
    code = (
        "import sys, threading, pyspark_kohort\n"
        "print(threading.active_count(), 'pyarrow' in sys.modules)"
    )
    assert run(code) == "1 False\n"


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("kafka.enable.partition.eof", "true", "enable.partition.eof"),
        ("kafka.security.protocol", "SASL_SSL", "requires sasl.mechanism"),
        ("kafka.sasl.mechanism", "SCRAM-SHA-256", "security.protocol is PLAINTEXT"),
        ("kafka.ssl.truststore.location", "/etc/trust", "security.protocol is PLAINTEXT"),
        ("kafka.session.timeout.ms", "soon", "session.timeout.ms"),
        ("kafka.sesion.timeout.ms", "1", "did you mean session.timeout.ms"),
    ],
)
def test_what_the_consumer_cannot_do_is_said_by_load(name: str, value: str, said: str) -> None:
    given = GIVEN | {"kafka.group.id": "g", name: value}
    for use in (
        source(given).schema,
        lambda: source(given).reader(schema=schema(COLUMNS)),
        lambda: source(given).streamReader(schema=schema(COLUMNS)),
    ):
        with pytest.raises(ConfigurationError, match=said) as caught:
            use()
        assert "kafka." in str(caught.value)


def test_writing_is_refused_with_a_hint() -> None:
    made = source(GIVEN)
    for use in (made.writer, made.streamWriter):
        with pytest.raises(ReadOnlyError, match=r'kohort reads and does not write\. .*"kafka"'):
            use(schema(COLUMNS), False)
