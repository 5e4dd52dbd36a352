"""The choice between the two decoder modules."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import kohort
from tests.support.decoders import decoder_named

PRINT = "import kohort.records as r; print(r.COMPILED)"


def _compiled(*options: str, env: dict[str, str], cwd: Path | None = None) -> str:
    command = [sys.executable, *options, "-c", PRINT]
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


def test_the_compiled_module_is_used_unless_the_environment_says_otherwise() -> None:
    decoder_named("compiled")
    assert _compiled(env={"KOHORT_PURE": "0"}) == "True"
    assert _compiled(env={"KOHORT_PURE": "1"}) == "False"


def test_a_module_built_from_another_state_of_its_source_is_noticed(tmp_path: Path) -> None:
    decoder_named("compiled")
    package = tmp_path / "kohort"
    shutil.copytree(Path(kohort.__file__).parent, package, ignore=shutil.ignore_patterns("__pyc*"))
    env = {"PYTHONPATH": str(tmp_path), "KOHORT_PURE": "0"}
    assert _compiled(env=env, cwd=tmp_path) == "True"
    source = package / "records" / "_record_decoder.py"
    source.write_text(source.read_text() + "\n# changed\n")
    assert _compiled(env=env, cwd=tmp_path) == "False"
    assert "install kohort again" in _compiled("-W", "error", env=env, cwd=tmp_path)
