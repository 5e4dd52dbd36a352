"""Parts of the coordinator against Kafka's own classes, on cases drawn from a seed."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from kohort.broker.groups.consumer._re2j import RegexError, compile_regex
from tests.broker.groups.consumer.assignor_cases import assigned, check_rules, expected
from tests.support.java_tools import run_tool

pytestmark = [pytest.mark.real_kafka, pytest.mark.timeout(180)]
SOURCES = Path(__file__).parent / "java"
NAMES = [
    *("a", "b", "ab", "aa", "aab", "abc", "A", "B", "K", "s", "S", "k", "1", "12", "a.b", "a-b"),
    *("a_b", "_", "-", ".", "foo.bar", "topic-1", "{}", "{2", "x*"),
]
TOKENS = [
    *"aabbABKks12.-_*+?|()[]^$\\{},:<>=!PQ",
    *("(?", "(?i)", "(?i:", "(?-i)", "(?s)", "(?m)", "(?U)", "(?P<n>", "(?<m>", "(?:"),
    *("[[:alpha:]]", "[:lower:]", "[[:^word:]]", "[^", "[a-c]", "a-z", "&&", "--"),
    *("\\d", "\\w", "\\W", "\\S", "\\s", "\\D", "\\b", "\\B", "\\A", "\\z", "\\Q", "\\E"),
    *("\\pL", "\\p{Lu}", "\\p{Ll}", "\\P{Latin}", "\\p{^Nd}", "\\x41", "\\x{212A}", "\\x{17f}"),
    *("\\101", "\\1", "\\0", "{2}", "{1,3}", "{0,}", "{,2}", "*?", "??", "\\.", "\\-"),
    *("\u017f", "\u212a", "\u00e9", "Z"),
]


@pytest.mark.parametrize("seed", [1, 2])
def test_assignments_are_those_of_kafkas_assignors(seed: int) -> None:
    output = run_tool(str(SOURCES / "AssignorCases.java"), seed, 100)
    cases = [json.loads(line) for line in output.splitlines()]
    assert len(cases) == 100
    assert {case["assignor"] for case in cases} == {"uniform", "range"}
    for case in cases:
        assert assigned(case) == expected(case), f"seed {seed}: {json.dumps(case)}"
        check_rules(case, assigned(case, random.Random(seed)))


def test_regexes_have_the_verdicts_of_kafkas_library() -> None:
    rng = random.Random(848)
    patterns = ["".join(rng.choices(TOKENS, k=rng.randint(1, 9))) for _ in range(5_000)]
    lines = "\n".join([" ".join(NAMES), *patterns, ""])
    output = run_tool(str(SOURCES / "RegexVerdicts.java"), stdin=lines)
    verdicts = output.removesuffix("\n").split("\n")
    assert len(verdicts) == len(patterns)
    wrong = [
        (pattern, verdict, ours)
        for pattern, verdict in zip(patterns, verdicts, strict=True)
        if (ours := our_verdict(pattern)) != verdict
    ]
    assert wrong == []
    assert sum("1" in verdict for verdict in verdicts) > 200


def our_verdict(pattern: str) -> str:
    try:
        regex = compile_regex(pattern)
    except RegexError as error:
        return f"!{error}"
    return "=" + "".join(str(int(regex.matches(name))) for name in NAMES)
