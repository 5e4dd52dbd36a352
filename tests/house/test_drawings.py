"""Drawings of the pages: the committed files are what the program draws."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import pytest

from tools import rebalance_drawing
from tools.rebalance_run import KINDS, PARTITIONS, Event, events

SHOWN = [*KINDS]


@pytest.mark.parametrize("kind", SHOWN)
def test_a_drawing_is_what_the_program_draws(kind: str) -> None:
    drawn = rebalance_drawing.drawing(kind)
    ElementTree.fromstring(drawn)
    assert rebalance_drawing.path(kind).read_text() == drawn, (
        "run python -m tools.rebalance_drawing"
    )


def without_owner(found: list[Event]) -> set[int]:
    """Return the partitions that have no owner at some time."""
    return {number for each in found for number in range(PARTITIONS) if not each.owners[number]}


@pytest.mark.parametrize(
    ("kind", "stopped"), [("eager", {0, 1, 2, 3}), ("cooperative", {2, 3}), ("consumer", {2, 3})]
)
def test_only_an_eager_rebalance_stops_all_partitions(kind: str, stopped: set[int]) -> None:
    found = events(kind)
    assert without_owner(found) == stopped
    assert found[-1].owners == ("A", "A", "B", "B")


@pytest.mark.parametrize(("kind", "seconds"), [("leave", (0, 4)), ("kill", (40, 52))])
def test_partitions_of_a_killed_member_wait_for_its_session(
    kind: str, seconds: tuple[int, int]
) -> None:
    found = events(kind)
    assert without_owner(found) == {2, 3}
    assert found[-1].owners == ("A", "A", "A", "A")
    assert seconds[0] <= found[-1].at <= seconds[1]
