"""The action that starts a broker in workflows of other projects."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

from kohort import KafkaConsumer

ACTION = Path(__file__).parents[2] / ".github" / "actions" / "kohort-broker"


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
        timeout=90,
    )
    assert started.returncode == 0, started.stderr
    said = dict(line.split("=", 1) for line in output.read_text().splitlines())
    try:
        with KafkaConsumer(bootstrap_servers=said["bootstrap-servers"]) as consumer:
            assert len(consumer.partitions_for_topic("orders") or ()) == 6
            assert len(consumer.partitions_for_topic("payments") or ()) == 3
    finally:
        os.kill(int(said["pid"]), signal.SIGTERM)


def test_action_fails_with_the_log_if_the_broker_does_not_start(tmp_path: Path) -> None:
    inputs = {"PORT": "none", "BROKERS": "1", "TOPICS": "", "ARGUMENTS": ""}
    environment = {f"KOHORT_{name}": value for name, value in inputs.items()}
    environment |= {"KOHORT_PYTHON": sys.executable, "RUNNER_TEMP": str(tmp_path)}
    started = subprocess.run(
        ["bash", ACTION / "start.sh"],
        env=os.environ | environment | {"GITHUB_OUTPUT": str(tmp_path / "output")},
        capture_output=True,
        text=True,
        check=False,
        timeout=90,
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
