"""Files of Java properties: the same result as in Java."""

from __future__ import annotations

import pytest

from kohort.config.properties import read_properties


@pytest.mark.parametrize(
    ("text", "entries"),
    [
        ("", {}),
        ("a=1\nb = 2\n  c:3\nd 4\n", {"a": "1", "b": "2", "c": "3", "d": "4"}),
        ("# a=1\n! b=2\n\n  #c=3\nd=4 # no comment\n", {"d": "4 # no comment"}),
        ("a=1,\\\n   2,\\\n   3\nb=4", {"a": "1,2,3", "b": "4"}),
        ("listeners=PLAINTEXT://:9092,SSL://:9093", {"listeners": "PLAINTEXT://:9092,SSL://:9093"}),
        ("a\\=b\\ c=d\\:e\\\\", {"a=b c": "d:e\\"}),
        ("a=\\u0041\\t", {"a": "A\t"}),
        ("empty=\nalone\n", {"empty": "", "alone": ""}),
        ("a=1\r\na=2\r\n", {"a": "2"}),
    ],
)
def test_properties_are_read_as_java_reads_them(text: str, entries: dict[str, str]) -> None:
    assert read_properties(text) == entries
