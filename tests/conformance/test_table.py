"""The table of probes is complete and correct."""

from __future__ import annotations

import re

from tests.conformance.clusters import load_probes
from tests.conformance.document import PATH, document
from tests.conformance.known import KNOWN
from tests.conformance.probe import PROBES, Difference, differences
from tests.conformance.rows import ROWS

load_probes()


def test_the_page_is_what_the_probes_say() -> None:
    assert PATH.read_text() == document(), "run: python -m tests.conformance.document"


def test_every_row_has_probes_or_a_reason() -> None:
    probed = {row for probe in PROBES.values() for row in probe.rows}
    assert probed <= {row.number for row in ROWS}
    for row in ROWS:
        assert (row.number in probed) != bool(row.reason), row.number


def test_every_number_is_there() -> None:
    matches = [re.match(r"\d\.\d+|3", row.number) for row in ROWS]
    numbers = {match[0] for match in matches if match is not None}
    assert None not in matches
    wanted = {f"2.{n}" for n in range(1, 16)} | {f"6.{n}" for n in range(1, 13)} | {"3"}
    wanted |= {f"7.{n}" for n in range(1, 5)} | {f"8.{n}" for n in range(1, 15)}
    wanted |= {f"9.{n}" for n in range(1, 7)}
    assert numbers == wanted
    assert len({row.number for row in ROWS}) == len(ROWS)


def test_there_are_probes_enough() -> None:
    assert len(PROBES) >= 150
    assert all(probe.rows for probe in PROBES.values())


def test_known_differences_are_of_probes_that_exist() -> None:
    assert {name for known in KNOWN for name in known.places} <= set(PROBES)


def test_differences_are_found_at_their_deepest_place() -> None:
    kafka = {"a": {"list": [1, {"x": 1}], "only": 0}}
    cluster = {"a": {"list": [1, {"x": 2}, 3]}}
    assert list(differences(kafka, cluster)) == [
        Difference("a.list[1].x", 1, 2),
        Difference("a.list[2]", "nothing", 3),
        Difference("a.only", 0, "nothing"),
    ]
