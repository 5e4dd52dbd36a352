"""Lists of tests name tests that exist."""

from __future__ import annotations

from tests.house._source import ROOT
from tools.quick import chosen_tests


def test_quick_chooses_chosen_tests_what_changed() -> None:
    test = str(ROOT / "tests" / "fetcher" / "buffer" / "test_buffer.py")
    assert test in chosen_tests(["kohort/fetcher/buffer/_buffer.py"])
    assert chosen_tests([test.removeprefix(f"{ROOT}/")]) == [test]
    assert len(chosen_tests(["kohort/coordinator_client/classic/_rebalance.py"])) > 10
    assert chosen_tests(["docs/install.md"]) == []


def test_slow_tests_are_listed_once_and_exist() -> None:
    listed = (ROOT / "tests" / "slow.txt").read_text().split()
    assert listed == sorted(set(listed))
    for entry in listed:
        file, *_, name = entry.split("::")
        text = (ROOT / file).read_text()
        assert name == "runTest" or f"def {name}(" in text, entry


def test_longest_files_are_listed_once_and_exist() -> None:
    listed = (ROOT / "tests" / "longest.txt").read_text().split()
    assert len(listed) == len(set(listed))
    assert [name for name in listed if not (ROOT / name).is_file()] == []
