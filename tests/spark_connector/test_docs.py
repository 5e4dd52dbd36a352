"""The code blocks of docs/spark.md, run one by one on a topic with records."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kohort.spark_connector.options._option_values import NAMES, REJECTED
from kohort.testing import Cluster
from tests.support.snippets import FENCED

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = Path(__file__).parents[2] / "docs" / "spark.md"
BLOCKS = FENCED.findall(PAGE.read_text())


def checkpoint_of_format_kafka(place: Path) -> Path:
    """Write a checkpoint whose batch 3 was finished and whose batch 4 was interrupted.

    The log of its output has the finished batches, without files.
    """
    checkpoint, written = place / "old" / "checkpoint", place / "orders" / "_spark_metadata"
    for folder, last in (("offsets", 4), ("commits", 3)):
        (checkpoint / folder).mkdir(parents=True)
        for batch in range(last + 1):
            ends = f'{{"orders":{{"0":{batch + 2},"1":0}}}}'
            lines = ["v1", "{}"] + ([ends] if folder == "offsets" else [])
            (checkpoint / folder / str(batch)).write_text("\n".join(lines))
    (checkpoint / "metadata").write_text(f'{{"id":"{uuid.uuid4()}"}}')
    written.mkdir(parents=True)
    for batch in range(4):
        (written / str(batch)).write_text("v1")
    return checkpoint


@pytest.mark.spark
@pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning")
@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_a_block_of_the_page_runs(
    spark: SparkSession,
    cluster: Cluster,
    number: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    cluster.produce("orders", [(f"k{each}", f"order-{each % 3}") for each in range(60)])
    # The JVM resolves relative paths, and its folder cannot be changed.
    code = BLOCKS[number].replace('"billing/', f'"{tmp_path}/')
    if is_moved := '"old/' in code:
        code = code.replace('"old/', f'"{checkpoint_of_format_kafka(tmp_path).parent}/')
    names = {"spark": spark, "bootstrap_servers": cluster.bootstrap_servers}
    exec(compile(code, str(PAGE), "exec"), names)
    if "readStream" in code:
        count = 55 if is_moved else 60
        assert spark.read.parquet(f"{tmp_path}/orders").count() == count
        assert sum(at.offset for at in cluster.committed("billing").values()) == 60
        assert not cluster.group("billing").members
        assert "lag(" not in code or "the consumer has [" in capsys.readouterr().out
    else:
        assert "order-2" in capsys.readouterr().out


def test_the_page_names_every_option() -> None:
    text = PAGE.read_text()
    assert len(BLOCKS) == 5
    for name in (*NAMES, *(f"kafka.{each}" for each in REJECTED)):
        assert f"`{name}`" in text, name
