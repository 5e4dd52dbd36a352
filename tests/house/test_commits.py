"""Subjects of commits, the hooks that check a change, and the settings of editors."""

from __future__ import annotations

import configparser
import re
from pathlib import Path

import pytest

from tests.house._language import new_findings
from tests.house._source import ROOT
from tools.commit_message import faults, main


@pytest.mark.parametrize(
    ("subject", "word"),
    [
        ("consumer: keep the timeout of a close", ""),
        ("fetcher and records: read empty batches", ""),
        ("Consumer: keep the timeout", "no subject"),
        ("keep the timeout", "no subject"),
        ("consumer: The timeout is kept", "no subject"),
        ("consumer: fixed the timeout", "no imperative"),
        ("consumer: adding a timeout", "no imperative"),
        ("consumer: need no lock", ""),
        ("consumer: keep the timeout; read on", "semicolon"),
        ("consumer: keep the timeout.", "period"),
        ("consumer: keep " + "x" * 58, "73 characters"),
    ],
)
def test_faults_are_found(subject: str, word: str) -> None:
    found = list(faults(subject))
    assert len(found) == (1 if word else 0), found
    assert word in "".join(found)


def test_commit_hook_fails_when_subject_breaks_a_rule(tmp_path: Path) -> None:
    message = tmp_path / "COMMIT_EDITMSG"
    message.write_text("consumer: keep the timeout\n\nA body; it may say more.\n")
    assert main([str(message)]) == 0
    message.write_text("Consumer keeps the timeout\n")
    assert main([str(message)]) == 1
    message.write_text("fixup! Consumer keeps the timeout\n")
    assert main([str(message)]) == 0


def test_prose_hook_ignores_findings_that_are_committed() -> None:
    path = ROOT / "tests" / "data" / "prose_sample.md"
    before = "Nobody reads it.\n"
    assert [found.text for found in new_findings(path, before)] == ["anew"]
    assert [found.text for found in new_findings(path, None)] == ["Nobody", "anew"]


def test_hooks_download_nothing() -> None:
    text = (ROOT / ".pre-commit-config.yaml").read_text()
    assert set(re.findall(r"repo: (\S+)", text)) == {"local"}
    assert set(re.findall(r"language: (\S+)", text)) == {"system"}
    entries = re.findall(r"entry: (\S+)(?: -m (\S+))?", text)
    assert {program for program, _ in entries} == {".venv/bin/ruff", ".venv/bin/python"}
    modules = [module for _, module in entries if module]
    assert [each for each in modules if not (ROOT / f"{each.replace('.', '/')}.py").exists()] == []


def test_editors_get_the_width_of_the_formatter() -> None:
    settings = configparser.ConfigParser()
    settings.read_string("[editor]\n" + (ROOT / ".editorconfig").read_text())
    assert settings["*"]["max_line_length"] == "100"
    assert settings["{Makefile,*.mk}"]["indent_style"] == "tab"
