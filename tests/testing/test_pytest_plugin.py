"""The pytest plugin in separate runs: alone, and together with other plugins."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

PYTEST_ASYNCIO = (
    "-p",
    "pytest_asyncio.plugin",
    "-o",
    "asyncio_default_fixture_loop_scope=function",
)
PATH = os.pathsep.join([str(Path(__file__).parents[2]), *filter(None, sys.path)])


def run(folder: Path, code: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Run pytest on one file, with only the named plugins and without settings."""
    (folder / "test_it.py").write_text(textwrap.dedent(code))
    (folder / "pytest.ini").write_text("[pytest]\naddopts = --strict-markers\n")
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "pytest_kohort", "-q", *options, str(folder)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": PATH, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=55,
        check=False,
    )


def passed(done: subprocess.CompletedProcess[str], count: int) -> None:
    """Check that this many tests passed without any other report."""
    shown = done.stdout + done.stderr
    assert done.returncode == 0, shown
    assert re.search(rf"^{count} passed in", done.stdout, re.MULTILINE), shown


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

        class TestOfAClass:
            def test_module(self, kafka_cluster):
                assert kafka_cluster.records("t") == [], "it is a fresh one"
        """,
    )
    passed(done, 3)


ASYNC_TESTS = """
    import anyio
    import pytest

    from kohort import AsyncKafkaConsumer

    pytestmark = [pytest.mark.{marker}, pytest.mark.kafka_cluster(topics={{"t": 1}})]

    @pytest.fixture
    def anyio_backend():
        return "{loop}"

    async def test_a_consumer(kafka_cluster):
        kafka_cluster.produce("t", ["x"])
        async with AsyncKafkaConsumer(
            "t", bootstrap_servers=kafka_cluster.bootstrap_servers, auto_offset_reset="earliest"
        ) as consumer:
            assert (await anext(consumer)).value == b"x"

    async def test_an_async_view(kafka_cluster):
        assert kafka_cluster.records("t") == [], "it is a fresh one"
        assert await kafka_cluster.wait_until_async(lambda: kafka_cluster.topics) == {{"t": 1}}
"""


@pytest.mark.parametrize("loop", ["asyncio", "trio"])
def test_beside_anyios_plugin(tmp_path: Path, loop: str) -> None:
    code = ASYNC_TESTS.format(marker="anyio", loop=loop)
    passed(run(tmp_path, code, "-p", "anyio.pytest_plugin"), 2)


@pytest.mark.parametrize("mode", ["strict", "auto"])
def test_beside_pytest_asyncio(tmp_path: Path, mode: str) -> None:
    pytest.importorskip("pytest_asyncio")
    code = ASYNC_TESTS.format(marker="asyncio", loop="asyncio")
    passed(run(tmp_path, code, *PYTEST_ASYNCIO, "--asyncio-mode", mode, "-W", "error"), 2)


def test_beside_all_of_them_in_two_processes_of_xdist(tmp_path: Path) -> None:
    for plugin in ("pytest_asyncio", "xdist"):
        pytest.importorskip(plugin)
    code = """
        import os

        import pytest

        pytestmark = pytest.mark.kafka_cluster(topics={"t": 1})

        def cluster_is_mine(cluster):
            assert cluster.records("t") == []
            cluster.produce("t", [os.environ["PYTEST_XDIST_WORKER"]])
            assert len(cluster.records("t")) == 1

        @pytest.mark.parametrize("number", range(4))
        def test_plain(kafka_cluster, number):
            cluster_is_mine(kafka_cluster)

        @pytest.mark.asyncio
        async def test_in_asyncio(kafka_cluster):
            cluster_is_mine(kafka_cluster)

        @pytest.mark.anyio
        @pytest.mark.parametrize("anyio_backend", ["trio"])
        async def test_in_trio(kafka_cluster, anyio_backend):
            cluster_is_mine(kafka_cluster)
        """
    xdist = ("-p", "xdist.plugin", "-n", "2")
    passed(run(tmp_path, code, *xdist, "-p", "anyio.pytest_plugin", *PYTEST_ASYNCIO), 6)


@pytest.mark.cases(2)  # each is a run of pytest
@pytest.mark.parametrize(
    ("marker", "text"),
    [
        ("{'t': 1}", "takes only keyword arguments"),
        ("topix={}", "has no argument 'topix': did you mean topics?"),
        ("brokers='two'", "brokers='two' is not a whole number of at least 1"),
        ("brokers=0", "brokers=0 is not a whole number of at least 1"),
        ("topics=['t']", "topics=['t'] is not a dict of partition counts such as {'orders': 3}"),
        ("topics={'t': None}", "topics={'t': None} is not a dict of partition counts"),
        ("topics={'my orders': 1}", "topics: 'my orders' is not a legal name"),
        ("topics={'t': 0}", "topic 't': 0 partitions, must be 1 to"),
    ],
)
def test_a_marker_that_is_wrong_is_told(tmp_path: Path, marker: str, text: str) -> None:
    code = f"""
        import pytest

        @pytest.mark.kafka_cluster({marker})
        def test_it(kafka_cluster):
            pass
        """
    done = run(tmp_path, code)
    assert done.returncode != 0
    assert f"@pytest.mark.kafka_cluster: {text}" in done.stdout, done.stdout
    assert "pytest_kohort" not in done.stdout, "where it was noticed is of no interest"


def test_failed_test_explains_consumers_and_shows_timelines(tmp_path: Path) -> None:
    done = run(
        tmp_path,
        """
        import pytest

        from kohort import AsyncKafkaConsumer, KafkaConsumer, ShareConsumer

        pytestmark = pytest.mark.kafka_cluster(topics={"t": 2})
        OPTIONS = {"group_id": "shop", "auto_offset_reset": "earliest"}

        def open_consumer(cluster, name):
            return KafkaConsumer(
                "t", bootstrap_servers=cluster.bootstrap_servers, client_id=name, **OPTIONS
            )

        def test_block(kafka_cluster):
            kafka_cluster.produce("t", ["a"])
            with open_consumer(kafka_cluster, "one") as consumer:
                assert next(consumer).value == b"b"

        @pytest.fixture
        def consumer(kafka_cluster):
            with open_consumer(kafka_cluster, "two") as consumer:
                yield consumer

        def test_fixture(kafka_cluster, consumer):
            consumer.start()
            kafka_cluster.stop()
            raise ValueError("it went wrong")

        @pytest.mark.anyio
        async def test_async(kafka_cluster):
            async with AsyncKafkaConsumer(
                "t", bootstrap_servers=kafka_cluster.bootstrap_servers, **OPTIONS
            ) as consumer:
                assert consumer.assignment() == set()

        def test_queue(kafka_cluster):
            with ShareConsumer(
                "t", bootstrap_servers=kafka_cluster.bootstrap_servers, group_id="queue"
            ) as consumer:
                assert consumer.subscription() == set()

        def test_good(kafka_cluster):
            pass
        """,
        "-p",
        "anyio.pytest_plugin",
        "-k",
        "not trio",
    )
    assert done.returncode == 1, done.stdout + done.stderr
    block, fixture, coroutine, queue = re.split(
        r"^_+ test_\w+.* _+$", done.stdout, flags=re.MULTILINE
    )[1:]
    assert re.search(
        r"^-+ explain\(\) of <KafkaConsumer group='shop' .* running> -+$", block, re.MULTILINE
    )
    assert "timeline of group 'shop'" in block
    assert re.search(r"one.* has t 0-1", block)
    assert "t:0  1 commit, " in block or "t:1  1 commit, " in block
    assert "explain() of <KafkaConsumer group='shop'" in fixture
    assert "timeline of the groups" in fixture and "the cluster is not running" in fixture
    assert "explain() of <AsyncKafkaConsumer group='shop'" in coroutine
    assert "explain() of <ShareConsumer group='queue' topics=['t'] not started>" in queue
    for shown in (block, fixture, coroutine):
        assert "cannot be explained" not in shown


def test_a_run_without_the_fixture_imports_nothing_of_kohort(tmp_path: Path) -> None:
    done = run(
        tmp_path,
        """
        import sys

        HEAVY = {"kohort", "anyio", "asyncio", "trio", "cramjam", "crc32c", "lz4", "ssl"}

        def test_it():
            assert "pytest_kohort" in sys.modules
            assert not HEAVY & {name.split(".")[0] for name in sys.modules}

        def test_and_then_it_is(kafka_cluster):
            assert "kohort.testing" in sys.modules
        """,
        "-p",
        "no:faulthandler",
    )
    passed(done, 2)


def test_the_marker_is_listed_with_what_it_takes(tmp_path: Path) -> None:
    listed = run(tmp_path, "", "--markers").stdout
    assert "kafka_cluster(brokers=1, topics={}, ...)" in listed
