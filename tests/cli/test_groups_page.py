"""docs/operating.md: its commands print what the page shows."""

from __future__ import annotations

import re
import shlex
import time
from pathlib import Path

import pytest

from kohort import KafkaConsumer, TopicPartition
from kohort.cli import main, parser
from kohort.testing import Cluster, ProducerRecord
from tests.support.snippets import ROOT, is_shown

PAGE = ROOT / "docs" / "operating.md"
COMMAND = re.compile(r"```sh\n(kohort .*)\n```\n\n```text\n((?:.*\n)*?)```")
HOURS = (3.5, 2.0, 2.0, 1.0)
"""Ages of the records in each partition."""


def test_commands_print_what_the_page_shows(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shown = COMMAND.findall(PAGE.read_text())
    assert len(shown) == 10
    Path("new.txt").write_text("carol:bread\n")
    first, second = TopicPartition("orders", 0), TopicPartition("orders", 1)
    with Cluster(topics={"orders": 2}) as cluster:
        now_ms = time.time() * 1000
        for number in range(2):
            key, value = (("alice", "tea"), ("bob", "milk"))[number]
            records = [
                ProducerRecord(value, key, (), int(now_ms - at * 3_600_000), number) for at in HOURS
            ]
            cluster.produce("orders", records)
        servers = cluster.bootstrap_servers
        with KafkaConsumer(
            bootstrap_servers=servers, group_id="shipping", enable_auto_commit=False
        ) as empty:
            empty.assign([first, second])
            empty.commit({first: 2, second: 2})
        with KafkaConsumer(
            "orders",
            bootstrap_servers=servers,
            group_id="billing",
            client_id="worker-1",
            enable_auto_commit=False,
        ) as consumer:
            consumer.start()
            consumer.commit({first: 1, second: 4})
            for command, text in shown:
                assert main([*shlex.split(command)[1:], "--bootstrap-servers", servers]) == 0
                assert is_shown(capsys.readouterr().out, text), command


def test_each_question_of_an_operator_has_one_command() -> None:
    questions = re.findall(r"^\| .*\? \| `(.*)` \|$", PAGE.read_text(), re.MULTILINE)
    assert len(questions) == 9
    for command in questions:
        words = shlex.split(command.rpartition("|")[2])
        assert words[0] == "kohort"
        parser().parse_args(words[1:])
