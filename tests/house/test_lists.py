"""Lists of tests name tests that exist."""

from __future__ import annotations

from pathlib import Path

from tests.house._source import ROOT
from tools.quick import chosen_tests


def test_quick_chooses_chosen_tests_what_changed() -> None:
    test = str(ROOT / "tests" / "fetcher" / "buffer" / "test_buffer.py")
    assert test in chosen_tests(["kohort/fetcher/buffer/_buffer.py"])
    assert chosen_tests([test.removeprefix(f"{ROOT}/")]) == [test]
    assert chosen_tests(["docs/install.md"]) == []
    tests = ROOT / "tests"
    own = chosen_tests(["kohort/config/_group.py"])  # other packages have a test_group.py, too
    assert own and all(Path(name).is_relative_to(tests / "config") for name in own)
    room = set(chosen_tests(["kohort/coordinator_client/classic/_heartbeats.py"]))
    assert str(tests / "coordinator_client/classic/test_membership_liveness.py") in room
    assert str(tests / "coordinator_client/consumer/test_consumer_heartbeats.py") not in room


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
