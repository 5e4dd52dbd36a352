"""The choice between the two decoder modules."""

from __future__ import annotations

import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import kohort
from kohort import ConsumerRecord
from tests.support.decoders import decoder_named

HERE = Path(__file__).parent
PRINT = "import kohort.records as r; print(r.COMPILED)"
PRINT_CHOICE = "import kohort.records as r; print(r.decoder_choice())"
TWO_CONSUMERS = """
import logging
logging.basicConfig(level=logging.INFO, format="%(name)s %(levelname)s %(message)s")
from kohort import AsyncKafkaConsumer, KafkaConsumer
with KafkaConsumer(bootstrap_servers="localhost:1") as first:
    second = KafkaConsumer(bootstrap_servers="localhost:1")
    print(*[line for line in str(second.explain()).splitlines() if "decoders" in line])
    print(second.explain().as_dict()["decoders"])
    second.close()
"""
MISSING = """
import importlib.abc, sys

class Blocked(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name == "kohort.records._record_decoder_c":
            {error}

sys.meta_path.insert(0, Blocked())
"""


def _compiled(
    *options: str, env: dict[str, str], cwd: Path | None = None, code: str = PRINT
) -> str:
    command = [sys.executable, *options, "-c", code]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        env=os.environ | env,
        cwd=cwd,
        timeout=60,
        check=False,
    )
    return done.stdout.strip() or done.stderr


def test_compiled_module_is_used_unless_environment_forbids_it() -> None:
    decoder_named("compiled")
    assert _compiled(env={"KOHORT_PURE": "0"}) == "True"
    assert _compiled(env={"KOHORT_PURE": "1"}) == "False"


def test_module_built_from_another_state_of_source_is_noticed(tmp_path: Path) -> None:
    decoder_named("compiled")
    package = tmp_path / "kohort"
    shutil.copytree(Path(kohort.__file__).parent, package, ignore=shutil.ignore_patterns("__pyc*"))
    env = {"PYTHONPATH": str(tmp_path), "KOHORT_PURE": "0"}
    assert _compiled(env=env, cwd=tmp_path) == "True"
    source = package / "records" / "_record_decoder.py"
    source.write_text(source.read_text() + "\n# changed\n")
    assert _compiled(env=env, cwd=tmp_path) == "False"
    assert "install kohort again" in _compiled("-W", "error", env=env, cwd=tmp_path)
    changed = _compiled(env=env, cwd=tmp_path, code=PRINT_CHOICE)
    assert changed == (
        "plain, because kohort.records._record_decoder_c was built from another state of its source"
    )


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (
            "raise ModuleNotFoundError(name, name=name)",
            "this installation has no compiled modules",
        ),
        (
            "raise ImportError('undefined symbol: x')",
            "kohort.records._record_decoder_c cannot be imported: undefined symbol: x",
        ),
        (
            "raise ModuleNotFoundError('No module named y', name='y')",
            "kohort.records._record_decoder_c cannot be imported: No module named y",
        ),
    ],
)
def test_the_reason_of_the_plain_modules_is_known(error: str, reason: str) -> None:
    code = MISSING.replace("{error}", error) + PRINT_CHOICE
    assert _compiled(env={"KOHORT_PURE": "0"}, code=code) == f"plain, because {reason}"


@pytest.mark.parametrize("pure", ["0", "1"])
def test_records_are_the_same_by_the_plain_class_and_the_compiled_one(pure: str) -> None:
    record: ConsumerRecord[str, list[int]] = ConsumerRecord("t", 1, offset=2, key="k", value=[3])
    code = (
        "import pickle, kohort; C = kohort.ConsumerRecord; "
        f"record = pickle.loads({pickle.dumps(record)!r}); "
        "print(type(record) is C, C[str, int], C.__slots__, C.__module__, C.__qualname__, "
        "len(C.__doc__), hash(C('t', 1, offset=2)) == hash(record), record)"
    )
    shown = _compiled(env={"KOHORT_PURE": pure}, code=code)
    assert shown == (
        "True kohort.ConsumerRecord[str, int] () kohort ConsumerRecord "
        f"{len(str(ConsumerRecord.__doc__))} True {record!r}"
    )


@pytest.mark.timeout(600)
def test_tests_of_the_record_pass_on_the_plain_class_as_well() -> None:
    names = "test_consumer_record.py", "test_record_lifetimes.py", "test_messages.py"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", "0", *(HERE / name for name in names)],
        cwd=HERE.parents[1],
        env=os.environ | {"KOHORT_PURE": "1"},
        stdout=subprocess.PIPE,
        text=True,
        timeout=540,
        check=False,
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("pure", ["0", "1"])
def test_consumers_report_the_decoders_once_per_process(pure: str) -> None:
    if pure == "0":
        decoder_named("compiled")
    plain = "KOHORT_PURE=1 is set" if pure == "1" else None
    choice = "compiled" if plain is None else f"plain, because {plain}"
    done = subprocess.run(
        [sys.executable, "-c", TWO_CONSUMERS],
        capture_output=True,
        text=True,
        env=os.environ | {"KOHORT_PURE": pure},
        timeout=60,
        check=True,
    )
    logged = [line for line in done.stderr.splitlines() if "decoders" in line]
    assert logged == [f"kohort INFO record decoders: {choice}"]
    assert done.stdout.splitlines() == [
        f"record decoders: {choice}",
        str({"compiled": plain is None, "plain_reason": plain}),
    ]
