"""Code of the pages runs offline, each program in a separate process."""

from __future__ import annotations

from pathlib import Path

import pytest

from kohort import KafkaConsumer, OffsetAndMetadata, TopicPartition
from kohort.testing import Cluster
from tests.house._source import ROOT
from tests.support.snippets import (
    FENCED,
    FRAGMENTS,
    NOT_RUN,
    PAGES,
    is_shown,
    python_blocks,
    replaced,
    run_elsewhere,
    run_python,
    shown_output,
)

BLOCKS = [
    pytest.param(code, shown_output(page, code), id=f"{page.name}:{line}")
    for page in PAGES
    for line, code in python_blocks(page)
    if page.name not in FRAGMENTS
]
RUN_BY = {
    "first-consumer.md": ("tests/house/test_snippets.py", 1),
    "migration.md": ("tests/house/test_snippets.py tests/compat/test_frameworks.py", 7),
    "producer.md": ("tests/health/test_pages.py", 1),
    "schemas.md": ("tests/schemas/test_page.py tests/spark_connector/test_schemas.py", 2),
    "security.md": ("tests/security/test_page.py", 12),
    "web-service.md": ("tests/health/test_pages.py", 1),
    "spark.md": ("tests/spark_connector/test_docs.py", 5),
}
"""Pages with blocks that need more than a process: the tests that run them, and their number."""


@pytest.mark.parametrize(("code", "shown"), BLOCKS)
@pytest.mark.cases
def test_a_block_of_a_page_runs(code: str, shown: str | None, tmp_path: Path) -> None:
    """The block runs, and prints what the page shows after "It prints"."""
    output = run_python(code, tmp_path)
    if shown is not None and not is_shown(output, shown):
        assert output == shown


def test_every_block_of_a_page_is_run_by_a_test() -> None:
    marked = {
        page.name: sum(code.startswith(NOT_RUN) for code in FENCED.findall(page.read_text()))
        for page in PAGES
    }
    assert {page: count for page, count in marked.items() if count} == {
        page: count for page, (_, count) in RUN_BY.items()
    }
    for page in PAGES:
        tests = RUN_BY.get(page.name, ("", 0))[0].split()
        assert all(page.name in (ROOT / test).read_text() for test in tests), page.name
        assert len(run_elsewhere(page)) == marked[page.name], page.name


@pytest.mark.parametrize(
    ("output", "shown", "is_equal"),
    [
        ("1\n2\n", "1\n2\n", True),
        ("1\n2\n", "1\n", False),
        ("1\n2\n3\n", "1\n...\n3\n", True),
        ("1\n2\n3\n", "1\n...\n2\n", False),
        ("b'.'\n", "b'x'\n", False),
    ],
)
def test_shown_output_may_leave_out_lines(output: str, shown: str, is_equal: bool) -> None:
    assert is_shown(output, shown) == is_equal


LAST_WORDS = """import atexit, os, threading
from kohort.testing import Cluster
atexit.register(print, "exit")
threading.Timer(0.1, print, ["thread"]).start()
print(__name__, os.path.samefile(os.getcwd(), os.path.dirname(__file__)))
"""


def test_a_forked_program_ends_as_every_program_does(tmp_path: Path) -> None:
    assert run_python(LAST_WORDS, tmp_path) == "__main__ True\nthread\nexit\n"


@pytest.mark.parametrize(
    "line",
    [
        "import warnings; warnings.warn('old')",
        "from kohort.testing import Missing",
        "kohort",
        "open('test_snippet.py')",
        "raise SystemExit(2)",
    ],
)
def test_a_forked_program_fails_as_every_program_does(line: str, tmp_path: Path) -> None:
    with pytest.raises(AssertionError):
        run_python(f"from kohort.testing import Cluster\n{line}\n", tmp_path)


def test_first_block_of_readme_is_short_and_prints_shown_output(
    tmp_path: Path,
) -> None:
    readme = (ROOT / "README.md").read_text()
    _, code = next(python_blocks(ROOT / "README.md"))
    assert len(code.splitlines()) <= 20
    shown = readme.partition(code)[2].partition("```text\n")[2].partition("```")[0]
    assert run_python(code, tmp_path) == shown


ENDS_WITH_A_RECORD = """
def print(*values):
    import builtins
    builtins.print(*values)
    if "tea" in str(values):
        raise SystemExit
"""
TWO = "broker-1.example.org:9092,broker-2.example.org:9092"
ENDLESS = [
    ("first-consumer.md", "from kohort import KafkaConsumer", "kohort"),
    ("migration.md", "from kafka import", "kohort.compat.kafka_python"),
    ("migration.md", "from aiokafka import", "aiokafka"),
    ("migration.md", "from aiokafka import", "kohort.compat.aiokafka"),
    ("migration.md", "from confluent_kafka import", "confluent_kafka"),
]
"""Page, text of the block, and the client that it gets as the page says."""


@pytest.mark.parametrize(("page", "text", "client"), ENDLESS)
def test_an_endless_block_prints_a_record(
    page: str, text: str, client: str, tmp_path: Path
) -> None:
    pytest.importorskip(client)
    [code] = [each for each in run_elsewhere(ROOT / "docs" / page) if text in each]
    address = "localhost:9092" if page == "migration.md" else TWO
    with Cluster(brokers=2, topics={"orders": 1}) as cluster:
        servers = cluster.bootstrap_servers
        cluster.produce("orders", ["tea"])
        with KafkaConsumer(bootstrap_servers=servers, group_id="billing") as consumer:
            consumer.commit({TopicPartition("orders", 0): OffsetAndMetadata(0)})
        changed = {text: text.replace(text.split()[1], client), address: servers}
        assert "tea" in run_python(ENDS_WITH_A_RECORD + replaced(code, changed), tmp_path)
