"""Regular expressions of the coordinator: RE2J's verdicts, words and running time."""

from __future__ import annotations

import json
import random
import re
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from kohort.broker.groups.consumer._re2j import (
    Regex,
    RegexError,
    Work,
    _matcher,
    compile_regex,
)

VECTORS: dict[str, Any] = json.loads(
    (Path(__file__).parents[3] / "data" / "regex_re2j.json").read_text()
)
CASES = {case["pattern"]: case for case in VECTORS["cases"]}
LONG_NAME = "a" * 249


def test_all_patterns_are_there() -> None:
    assert len(CASES) == len(VECTORS["cases"]) == 142
    assert len(VECTORS["names"]) == 20


@pytest.mark.parametrize("pattern", CASES)
def test_verdict_and_words_are_those_of_re2j(pattern: str) -> None:
    case = CASES[pattern]
    try:
        regex = compile_regex(pattern)
    except RegexError as error:
        text = f"SubscribedTopicRegex `{pattern}` is not a valid regular expression: {error}."
        assert text == case.get("error")
    else:
        assert [name for name in VECTORS["names"] if regex.matches(name)] == case.get("matches")
        assert regex.pattern == pattern


@pytest.mark.parametrize(
    ("pattern", "matched"),
    [
        ("(a*)*b", False),
        ("(a|aa)+", True),
        ("(a+a+)+b", False),
        ("((a?){1000}){1000}", True),
        ("((a{1000}){1000}){1000}", False),
        ("((a?b?){0,1000}c?){1000}a", True),
        ("(a?){249}a{249}", True),
        ("(a?){250}a{250}", False),
        (".*" * 100 + "b", False),
    ],
)
def test_long_name_is_matched_without_backtracking(pattern: str, matched: bool) -> None:
    assert compile_regex(pattern).matches(LONG_NAME) is matched


@pytest.mark.parametrize("bounds", ["{9}", "{9,}", "{1,9}"])
def test_repeat_count_is_refused_when_int_rejects_it(bounds: str) -> None:
    with pytest.raises(RegexError, match="invalid repeat count"):
        compile_regex("a" + bounds.replace("9", "9" * 5_000))


@pytest.mark.parametrize("times", [10, 50, 200])
@pytest.mark.parametrize("part", ["(a|b?)*", "(a*b*)*", "((a|b)+)+", "(a|b){1,3}", "((a?b)*)?"])
def test_steps_are_linear_in_pattern_and_name(part: str, times: int) -> None:
    pattern, name = part * times, "ab" * 60
    regex = compile_regex(pattern)
    limit = 20 * len(pattern) * (len(name) + 1)
    assert executed_lines(regex, name, limit) < limit


HARD = "|".join(f"[ab]*a[ab]{{{count}}}" for count in range(100, 130))
"""Pattern whose steps are different ones for each name."""


def random_names(count: int) -> list[str]:
    rng = random.Random(1)
    return ["".join(rng.choice("ab") for _ in range(120)) for _ in range(count)]


def test_prepare_stops_early_and_continues() -> None:
    names, regex = random_names(10), compile_regex(HARD)
    rounds = 1
    while not regex.prepare(names, Work()):
        rounds += 1
    assert 5 < rounds < 200
    expected = re.compile(HARD)
    assert [regex.matches(name) for name in names] == [
        expected.fullmatch(name) is not None for name in names
    ]


def test_results_stay_right_when_steps_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_matcher, "_MAX_KEPT", 50)
    names, regex = random_names(20), compile_regex("(a|b?a)*a[ab]{3}|b{2,5}.*")
    while not regex.prepare(names, Work()):
        pass
    expected = re.compile(regex.pattern)
    assert [regex.matches(name) for name in names] == [
        expected.fullmatch(name) is not None for name in names
    ]


def test_second_match_of_a_long_pattern_costs_nothing() -> None:
    regex, name = compile_regex("(a|b?)*" * 4_681), "ab" * 60
    while not regex.prepare([name], Work()):
        pass
    assert executed_lines(regex, name, limit=20) < 20


def test_work_counts_the_transitions_of_states() -> None:
    regex, work = compile_regex("(" + "|" * 3_000 + "a)*b"), Work(1_000_000)
    assert regex.prepare(["aab"], work)
    assert 6_000 < 1_000_000 - work.left < 30_000


def test_patterns_share_the_work() -> None:
    names, work = random_names(10), Work()
    first, second = compile_regex(HARD), compile_regex(HARD)
    assert not first.prepare(names, work)
    left = work.left
    assert left <= 0
    assert not second.prepare(names, work)
    assert work.left == left


def test_nested_counts_are_refused_when_copies_need_much_memory() -> None:
    assert compile_regex("(a{0,100}b){0,100}").matches("aab" * 80)
    with pytest.raises(RegexError, match="invalid repeat count"):
        compile_regex("((a{0,100}b){0,100}c){0,100}")


@pytest.mark.parametrize("part", ["a", "a|", "a?", "(a)*", "|", "$", "a{2}"])
def test_pattern_of_most_characters_is_compiled_without_counts(part: str) -> None:
    compile_regex(part * (32_767 // len(part)))


def executed_lines(regex: Regex, name: str, limit: int) -> int:
    """Return the number of lines that a match executes, or raise AssertionError at the limit."""
    lines = 0

    def count(_frame: FrameType, event: str, _argument: object) -> Any:
        nonlocal lines
        lines += event == "line"
        assert lines < limit, f"{lines} lines for {len(regex.pattern)} x {len(name)} characters"
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        regex.matches(name)
    finally:
        sys.settrace(before)
    return lines


def test_deep_nesting_is_refused() -> None:
    assert compile_regex("(" * 5_000 + "a" + ")" * 5_000).matches("a")
    assert compile_regex("(b" * 70 + "a" + ")*" * 70).matches("")
    with pytest.raises(RegexError, match="nests too deeply"):
        compile_regex("(b" * 5_000 + "a" + ")*" * 5_000)
    with pytest.raises(RegexError, match="nests too deeply"):
        compile_regex("a" + "*(?i)" * 5_000)


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("{*", "invalid nested repetition operator"),
        ("(a**", "invalid nested repetition operator"),
        ("a{2}{3}", "invalid nested repetition operator"),
        ("(*)", "missing argument to repetition operator"),
        ("(?P<n", "invalid named capture"),
        ("[[:]", "invalid character class range"),
        (r"\p{L", "invalid character class range"),
        ("[a-", "missing closing ]"),
        (r"\x{110000}", "invalid escape sequence"),
        ("(?i-)a", "invalid or unsupported Perl syntax"),
    ],
)
def test_words_are_those_of_re2j_for_rare_patterns(pattern: str, words: str) -> None:
    with pytest.raises(RegexError) as caught:
        compile_regex(pattern)
    assert str(caught.value) == words


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("(?i)\u017f", ["s", "S"]),
        ("(?i)[\u2100-\u2200]", ["k", "K"]),
        ("\u017f", []),
        (r"a*(?i)*", ["", "a", "aa"]),
        (r"(?-i:A)(?i:b)", ["Ab", "AB"]),
        (r"(?i)\Qa.\E", ["a.", "A."]),
        (r"[\Wa]", ["a", "."]),
        ("a{01}", ["a{01}"]),
    ],
)
def test_rare_patterns_match_what_re2j_matches(pattern: str, names: list[str]) -> None:
    candidates = ["", "a", "aa", "s", "S", "k", "K", "Ab", "AB", "ab", "a.", "A.", ".", "a{01}"]
    regex = compile_regex(pattern)
    assert [name for name in candidates if regex.matches(name)] == names


def test_names_that_are_not_ascii_never_match() -> None:
    assert not compile_regex(".*").matches("caf\u00e9")
