"""Files of ``kohort copy`` and ``kohort tail --json`` loaded into a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kohort import ConsumerRecord
from kohort.cli import main
from kohort.testing import Cluster, ProducerRecord

RECORDS = [
    ProducerRecord(b"tea", b"alice", [("trace", b"\xff"), ("none", None)], 1_700_000_000_123, 1),
    ProducerRecord(None, b"\x00\xff", (), 1_700_000_000_124, 1),
    ProducerRecord("größe", None, (), 1_700_000_000_125, 0),
]


@pytest.fixture(scope="module")
def source() -> Iterator[Cluster]:
    with Cluster(topics={"orders": 3}) as cluster:
        cluster.produce("orders", RECORDS)
        yield cluster


def content(cluster: Cluster, topic: str = "orders") -> list[object]:
    return [_values(record) for record in cluster.records(topic)]


def _values(record: ConsumerRecord[bytes, bytes]) -> object:
    return record.partition, record.key, record.value, record.headers, record.timestamp


def test_loaded_file_has_the_records_with_headers_and_times(
    source: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    servers = ["--bootstrap-servers", source.bootstrap_servers]
    files = [tmp_path / f"orders{suffix}" for suffix in (".parquet", ".arrow", ".jsonl")]
    for file in files[:2]:
        assert main(["copy", "orders", "--to", str(file), *servers]) == 0
    capsys.readouterr()
    assert main(["tail", "orders", "--json", "--from", "earliest", *servers]) == 0
    files[2].write_text(capsys.readouterr().out, encoding="utf-8")
    for file in files:
        with Cluster() as cluster:
            assert cluster.load(file) == 3
            assert content(cluster) == content(source)
            assert cluster.load(file, topic="again") == 3
            assert content(cluster, "again") == content(source)
            assert cluster.topics["again"] == 2


def test_load_adds_missing_partitions(source: Cluster, tmp_path: Path) -> None:
    file = tmp_path / "orders.arrow"
    servers = ["--bootstrap-servers", source.bootstrap_servers]
    assert main(["copy", "orders", "--to", str(file), *servers]) == 0
    with Cluster(topics={"orders": 1}) as cluster:
        cluster.load(file)
        assert cluster.topics == {"orders": 2}


@pytest.mark.parametrize(
    ("name", "text", "error"),
    [("a.csv", "", "no name in"), ("a.jsonl", '{"topic": "a"}\n', "is not of kohort copy")],
)
@pytest.mark.cases(2)
def test_other_file_is_refused(tmp_path: Path, name: str, text: str, error: str) -> None:
    (tmp_path / name).write_text(text)
    with Cluster() as cluster, pytest.raises(ValueError, match=error):
        cluster.load(tmp_path / name)
