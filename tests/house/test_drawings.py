"""Drawings of the pages: the committed files are what the program draws."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import pytest

from tools import rebalance_drawing
from tools.rebalance_run import KINDS


@pytest.mark.parametrize("kind", KINDS)
def test_a_drawing_is_what_the_program_draws(kind: str) -> None:
    drawn = rebalance_drawing.drawing(kind)
    ElementTree.fromstring(drawn)
    assert rebalance_drawing.path(kind).read_text() == drawn, (
        "run python -m tools.rebalance_drawing"
    )
