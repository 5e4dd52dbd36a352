"""Workflow files, the action that starts a broker, and the lists of the release check."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kohort import KafkaConsumer
from tests.house._source import ROOT
from tools.release import checks, installs, placeholders
from tools.release.__main__ import report
from tools.release.commands import Row, tool

FOLDER = ROOT / ".github"
WORKFLOWS = sorted((FOLDER / "workflows").glob("*.yml"))
ACTION = FOLDER / "actions" / "kohort-broker"


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflow_pins_its_actions_and_keeps_no_credentials(path: Path) -> None:
    text = path.read_text()
    used = re.findall(r"uses: (\S+)(.*)", text)
    assert used
    for action, comment in used:
        if not action.startswith("./"):
            assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", action), action
            assert re.fullmatch(r" # v\d+\.\d+\.\d+", comment), action
    assert text.count("actions/checkout@") == text.count("persist-credentials: false")
    assert "\npermissions: {}\n" in text
    assert "secrets." not in text


@pytest.mark.parametrize("name", ["actionlint", "zizmor"])
def test_workflows_pass_the_linter(name: str) -> None:
    if tool(name) is None:
        pytest.skip(f"{name} is not installed")
    assert [row for row in checks.check_workflows() if row.check == name and not row.ok] == []


def test_workflow_tests_every_python_of_the_classifiers() -> None:
    listed = re.findall(r'Programming Language :: Python :: (3\.\d+)"', _text("pyproject.toml"))
    matrix = re.search(r"python: \[(.*)\]", _text(".github/workflows/tests.yml"))
    built = re.search(r'^build = "(.*)"', _text("pyproject.toml"), re.MULTILINE)
    assert matrix is not None
    assert built is not None
    assert re.findall(r"[\d.]+", matrix[1]) == listed
    assert {f"cp{each.replace('.', '')}-*" for each in listed} <= set(built[1].split())


def test_action_starts_a_broker_with_its_topics(tmp_path: Path) -> None:
    output = tmp_path / "output"
    inputs = {"PORT": "0", "BROKERS": "1", "TOPICS": "orders:6\npayments", "PYTHON": sys.executable}
    inputs["ARGUMENTS"] = "--default-partitions=3\n--no-auto-create"
    environment = {f"KOHORT_{name}": value for name, value in inputs.items()}
    environment |= {"RUNNER_TEMP": str(tmp_path), "GITHUB_OUTPUT": str(output)}
    started = subprocess.run(
        ["bash", ACTION / "start.sh"],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=50,
    )
    assert started.returncode == 0, started.stderr
    said = dict(line.split("=", 1) for line in output.read_text().splitlines())
    try:
        with KafkaConsumer(bootstrap_servers=said["bootstrap-servers"]) as consumer:
            assert len(consumer.partitions_for_topic("orders") or ()) == 6
            assert len(consumer.partitions_for_topic("payments") or ()) == 3
    finally:
        os.kill(int(said["pid"]), signal.SIGTERM)


def test_action_fails_with_the_log_when_the_broker_does_not_start(tmp_path: Path) -> None:
    inputs = {"PORT": "none", "BROKERS": "1", "TOPICS": "", "ARGUMENTS": ""}
    environment = {f"KOHORT_{name}": value for name, value in inputs.items()}
    environment |= {"KOHORT_PYTHON": sys.executable, "RUNNER_TEMP": str(tmp_path)}
    started = subprocess.run(
        ["bash", ACTION / "start.sh"],
        env=os.environ | environment | {"GITHUB_OUTPUT": str(tmp_path / "output")},
        capture_output=True,
        text=True,
        check=False,
        timeout=50,
    )
    assert started.returncode == 1
    assert "'none' is not a port" in started.stderr


def test_inputs_of_the_action_reach_the_script() -> None:
    text = (ACTION / "action.yml").read_text()
    read = set(re.findall(r"\$\{?(KOHORT_[A-Z]+)", (ACTION / "start.sh").read_text()))
    assert read == set(re.findall(r"^ +(KOHORT_[A-Z]+):", text, re.MULTILINE))
    inputs = re.search(r"\ninputs:\n(.*?)\noutputs:", text, re.DOTALL)
    assert inputs is not None
    for name in re.findall(r"^  ([\w-]+):", inputs[1], re.MULTILINE):
        assert f"${{{{ inputs.{name} }}}}" in text


def test_placeholders_are_listed_with_their_place() -> None:
    found = {(name, text) for name, _, text in placeholders.placeholders()}
    assert ("pyproject.toml", "https://repository.invalid/kohort") in found
    assert (".github/CODEOWNERS", "@PLACEHOLDER-owners") in found
    assert ("CODE_OF_CONDUCT.md", "PLACEHOLDER-conduct-contact") in found


def test_lowest_versions_are_those_of_the_requirements() -> None:
    assert [each.replace("==", ">=") for each in installs.lowest()] == installs.newest()
    assert all("==" in each for each in installs.lowest())


def test_report_marks_what_failed_and_what_was_not_tried() -> None:
    rows = [Row("wheel", "build", False, "first\nsecond"), Row("all", "x", None, "not installed")]
    assert report(rows).splitlines() == [
        "FAILED  wheel  build  first",
        "          second",
        "-       all    x      not installed",
    ]


def _text(name: str) -> str:
    return (ROOT / name).read_text()
