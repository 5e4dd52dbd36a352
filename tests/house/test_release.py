"""Workflow files, the action that starts a broker, and the lists of the release check."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from kohort import KafkaConsumer
from tests.house._source import ROOT
from tools.release import builds, checks, installs, modules, placeholders, pythons, suites
from tools.release.__main__ import closing, report
from tools.release.commands import (
    NotTriedError,
    ProgramFailedError,
    Row,
    attempt,
    environment,
    project,
    run,
    tool,
)
from tools.release.index import write_index

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
    matrices = re.findall(r"python: \[(.*)\]", _text(".github/workflows/tests.yml"))
    tested = [each for matrix in matrices for each in re.findall(r"[\d.]+t?", matrix)]
    assert sorted(tested) == sorted(pythons.SUPPORTED)
    assert [each for each in pythons.SUPPORTED if not each.endswith("t")] == listed


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


def test_report_ends_with_what_was_not_checked_and_placeholders() -> None:
    done = Row("wheel", "build", True, "made")
    left = Row("macOS", "all", None, "not here")
    marked = Row("README.md:1", placeholders.CHECK, None, "repository.invalid")
    assert closing([left, marked, done]).splitlines() == [
        "Checked",
        "ok      wheel  build  made",
        "",
        "Not checked",
        "-       macOS  all  not here",
        "",
        "Placeholders, which a person replaces before a release",
        "-       README.md:1  placeholder  repository.invalid",
    ]


def test_wheel_without_a_compiled_module_is_an_error(tmp_path: Path) -> None:
    names = [f"{name}.cpython-311-x86_64-linux-gnu.so" for name in modules.COMPILED[:-1]]
    wheel = _wheel(tmp_path / "kohort-1-cp311-cp311-manylinux1_x86_64.whl", dict.fromkeys(names))
    with pytest.raises(ProgramFailedError, match=r"no compiled module kohort/transport/_poller_c"):
        modules.check_compiled(wheel, musl=False)


def test_wheel_for_musl_is_an_error_with_modules_for_glibc(tmp_path: Path) -> None:
    names = [f"{name}.cpython-311-x86_64-linux-gnu.so" for name in modules.COMPILED]
    wheel = _wheel(tmp_path / "kohort-1-cp311-cp311-musllinux_1_2_x86_64.whl", dict.fromkeys(names))
    with pytest.raises(ProgramFailedError, match=r"does not end with -musl\.so"):
        modules.check_compiled(wheel, musl=True)


def test_plain_wheel_is_an_error_with_a_compiled_module(tmp_path: Path) -> None:
    path = tmp_path / "kohort-1-py3-none-any.whl"
    with pytest.raises(ProgramFailedError, match=r"has compiled modules: kohort/records/_x\.so"):
        modules.check_plain(_wheel(path, {"kohort/records/_x.so": ""}))
    with pytest.raises(ProgramFailedError, match="not named as a plain wheel"):
        modules.check_plain(_wheel(tmp_path / "kohort-1-cp311-cp311-linux_x86_64.whl", {}))


@pytest.mark.parametrize(
    ("readme", "problem"),
    [
        ("see [errors](docs/errors.md)", "relative links: ](docs/errors.md)"),
        ("![drawing](drawing.svg)", "relative links: ](drawing.svg)"),
        ('<img src="docs/drawing.svg">', 'relative links: src="docs/drawing.svg"'),
        ("[errors]: docs/errors.md", "relative links: [errors]: docs/errors.md"),
        ("[a](https://a.invalid/b) [c](#d) <a href='https://a.invalid'>", None),
    ],
)
def test_metadata_with_relative_links_is_an_error(
    tmp_path: Path, readme: str, problem: str | None
) -> None:
    addresses = "".join(f"Project-URL: {name}, x\n" for name in project()["urls"])
    metadata = f"Version: {project()['version']}\n{addresses}\n{readme}"
    licenses = dict.fromkeys(["kohort-1.dist-info/LICENSE", "kohort-1.dist-info/NOTICE"])
    path = tmp_path / "kohort-1-py3-none-any.whl"
    wheel = _wheel(path, {"kohort-1.dist-info/METADATA": metadata} | licenses)
    assert checks.problems(wheel) == ([f"{wheel.name} has {problem}"] if problem else [])


def test_metadata_names_each_fault_of_a_wheel(tmp_path: Path) -> None:
    path = tmp_path / "kohort-1-py3-none-any.whl"
    found = checks.problems(
        _wheel(path, {"kohort-1.dist-info/METADATA": "Version: 0\n\n", "tests/test_a.py": ""})
    )
    assert [problem.removeprefix(f"{path.name} ").split()[0:2] for problem in found] == [
        ["contains", "tests"],
        ["has", "version"],
        ["has", "the"],
        ["lacks", "LICENSE"],
    ]


def test_index_has_a_page_for_each_normalized_project(tmp_path: Path) -> None:
    names = ("A_b.c-1.0-py3-none-any.whl", "a-b-c-1.1.tar.gz", "kohort-1-py3-none-any.whl")
    address = write_index(tmp_path / "index", [tmp_path / name for name in names])
    assert address == (tmp_path / "index").as_uri()
    page = (tmp_path / "index" / "a-b-c" / "index.html").read_text()
    assert [name in page for name in names] == [True, True, False]
    assert "kohort-1" in (tmp_path / "index" / "kohort" / "index.html").read_text()


def test_programs_get_no_variable_that_changes_a_build() -> None:
    given = {"KOHORT_PURE": "1", "PYTHONPATH": "x", "PIP_FIND_LINKS": "x", "PATH": "y"}
    wanted = {"PATH": "y", "PIP_DISABLE_PIP_VERSION_CHECK": "1", "CC": "false"}
    assert environment(given, {"CC": "false"}) == wanted


def test_missing_interpreters_are_those_not_found() -> None:
    here = [pythons.Interpreter(version, False, Path()) for version in ("3.11", "3.14t")]
    assert pythons.missing(here) == [
        "3.12 glibc",
        "3.13 glibc",
        "3.14 glibc",
        "3.15 glibc",
        "3.15t glibc",
        "any version, musl",
    ]
    assert pythons.missing([pythons.Interpreter("3.11", True, Path())])[0] == "3.11 glibc"


def test_interpreter_without_usable_headers_is_not_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    include = tmp_path / "include"
    include.mkdir()
    (include / "Python.h").write_text("#include <absent/pyconfig.h>\n")
    python = _python(tmp_path, monkeypatch, include)
    row = attempt("wheel", "build", lambda: str(builds._compiled(python, tmp_path / "built")))
    reason = "CPython 3.14 glibc has no usable headers: absent/pyconfig.h: No such file"
    assert (row.ok, row.result.startswith(reason)) == (None, True), row
    (include / "Python.h").write_text("")
    pythons.require_headers(python)


def test_absent_wheel_is_an_error_unless_headers_are_absent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    include = tmp_path / "include"
    include.mkdir()
    python = _python(tmp_path, monkeypatch, include)
    monkeypatch.setattr(installs, "DIST", tmp_path)
    _wheel(tmp_path / "kohort-1-cp314-cp314-musllinux_1_2_x86_64.whl", {})
    with pytest.raises(NotTriedError, match="no usable headers"):
        installs.require_wheel(python)
    (include / "Python.h").write_text("")
    with pytest.raises(ProgramFailedError, match=r"no compiled wheel for CPython 3\.14 glibc"):
        installs.require_wheel(python)
    _wheel(tmp_path / "kohort-1-cp314-cp314-manylinux_2_34_x86_64.whl", {})
    installs.require_wheel(python)


def test_wheel_for_musl_is_not_tried_without_its_builder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = pythons.Interpreter("3.14", True, Path())
    monkeypatch.setattr(installs, "DIST", tmp_path)
    monkeypatch.setattr(pythons, "interpreters", lambda: [python])
    with pytest.raises(NotTriedError, match=r"CPython 3\.14 for glibc, which builds it"):
        installs.require_wheel(python)


def test_program_that_runs_too_long_is_an_error_with_its_output() -> None:
    with pytest.raises(ProgramFailedError, match="did not end within 1 s:\nbegun"):
        run(["sh", "-c", "echo begun; exec sleep 60"], limit=1)


def test_supported_interpreters_are_those_of_cibuildwheel() -> None:
    built = suites.cibuildwheel()["build"].split()
    assert [f"cp{each.replace('.', '')}-*" for each in pythons.SUPPORTED] == built


def _python(folder: Path, monkeypatch: pytest.MonkeyPatch, include: Path) -> pythons.Interpreter:
    """Return CPython 3.14 for glibc, with its headers in another folder."""
    if tool("cc") is None:
        pytest.skip("no C compiler is installed")
    monkeypatch.setattr(pythons, "WORK", folder / "work")
    monkeypatch.setattr(pythons, "_FOLDERS", f"print({json.dumps(json.dumps([str(include)]))})")
    return pythons.Interpreter("3.14", False, Path(sys.executable))


def _wheel(path: Path, files: Mapping[str, str | None]) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content or "")
    return path


def _text(name: str) -> str:
    return (ROOT / name).read_text()
