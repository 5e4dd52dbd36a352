"""The pytest plugin, in runs of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def run(folder: Path, code: str, *options: str) -> subprocess.CompletedProcess[str]:
    """pytest on one file, with the plugin and no settings."""
    (folder / "test_it.py").write_text(textwrap.dedent(code))
    (folder / "pytest.ini").write_text("[pytest]\naddopts = --strict-markers\n")
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "pytest_kohort", "-q", *options, str(folder)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=50,
    )


def test_a_test_gets_a_cluster_as_its_markers_say(tmp_path: Path) -> None:
    done = run(
        tmp_path,
        """
        import anyio
        import pytest

        pytestmark = pytest.mark.kafka_cluster(brokers=2, topics={"t": 3})

        def test_module(kafka_cluster):
            assert kafka_cluster.live_brokers == [1, 2]
            assert kafka_cluster.topics == {"t": 3}
            kafka_cluster.produce("t", ["x"])

        @pytest.mark.kafka_cluster(topics={"own": 1})
        def test_nearest(kafka_cluster):
            assert kafka_cluster.live_brokers == [1, 2]
            assert kafka_cluster.topics == {"own": 1}

        @pytest.mark.anyio
        async def test_in_a_loop(kafka_cluster):
            host, port = kafka_cluster.bootstrap_servers.split(",")[0].split(":")
            async with await anyio.connect_tcp(host, int(port)):
                assert kafka_cluster.records("t") == [], "it is a fresh one"

        @pytest.fixture
        def anyio_backend():
            return "asyncio"
        """,
    )
    assert re.search(r"^3 passed", done.stdout, re.MULTILINE), done.stdout + done.stderr


@pytest.mark.parametrize(
    ("marker", "told"), [("{'t': 1}", "takes names only"), ("topix={}", "topix")]
)
def test_a_marker_that_is_wrong_is_told(tmp_path: Path, marker: str, told: str) -> None:
    code = f"""
        import pytest

        @pytest.mark.kafka_cluster({marker})
        def test_it(kafka_cluster):
            pass
        """
    done = run(tmp_path, code)
    assert done.returncode != 0
    assert told in done.stdout


def test_a_run_without_the_fixture_does_not_import_kohort(tmp_path: Path) -> None:
    done = run(
        tmp_path,
        """
        import sys

        def test_it():
            assert "pytest_kohort" in sys.modules
            assert not [name for name in sys.modules if name.split(".")[0] == "kohort"]
        """,
    )
    assert done.returncode == 0, done.stdout
    listed = run(tmp_path, "", "--markers").stdout
    assert "kafka_cluster(brokers=1, topics={}, ...)" in listed
