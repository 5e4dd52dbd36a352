"""Folders have rooms, and imports between the rooms run as docs/architecture.md draws them."""

from __future__ import annotations

import re
from collections import defaultdict
from graphlib import TopologicalSorter

import pytest

from tests.house._source import ROOT, modules

MAX_FLAT = 20
EQUALS = {"kohort.broker.apis", "kohort.protocol.messages"}
"""Lists of equals: one module for each API or message."""


def drawn_rooms() -> dict[str, list[list[str]]]:
    """Return the floors of each folder with rooms, lowest first."""
    text = (ROOT / "docs" / "architecture.md").read_text()
    drawing = re.search(r"```\n(kohort/\S+ {2,}.*?)```", text, re.DOTALL)
    assert drawing is not None, "docs/architecture.md has lost its drawing of the rooms"
    rooms: dict[str, list[list[str]]] = {}
    for line in drawing[1].splitlines():
        folder, floors = line.split(maxsplit=1)
        rooms[folder.replace("/", ".")] = [floor.split() for floor in floors.split("->")]
    return rooms


def arrows(folder: str) -> dict[str, set[str]]:
    """Return what each room and each flat module of a folder imports there."""
    found: dict[str, set[str]] = defaultdict(set)
    for module in modules():
        if not module.name.startswith(folder + "."):
            continue
        here = module.name.removeprefix(folder + ".").partition(".")[0]
        found[here]
        for name, _ in module.imports():
            if name.startswith(folder + "."):
                there = name.removeprefix(folder + ".").partition(".")[0]
                if there != here:
                    found[here].add(there)
    return found


@pytest.mark.parametrize("folder", drawn_rooms())
def test_rooms_import_what_is_drawn_below_them(folder: str) -> None:
    floors = drawn_rooms()[folder]
    rooms = {path.parent.name for path in (ROOT / folder.replace(".", "/")).glob("*/__init__.py")}
    assert rooms == {room for floor in floors for room in floor}
    height = {room: number for number, floor in enumerate(floors) for room in floor}
    assert [
        f"{room} imports {other}"
        for room, imported in arrows(folder).items()
        for other in imported & rooms
        if room in rooms and height[other] >= height[room]
    ] == []


@pytest.mark.parametrize("folder", drawn_rooms())
def test_rooms_and_modules_of_a_folder_import_in_one_direction(folder: str) -> None:
    TopologicalSorter(arrows(folder)).prepare()  # raises CycleError with the rooms of a circle


def test_a_large_folder_has_rooms() -> None:
    sizes: dict[str, int] = defaultdict(int)
    for module in modules():
        if module.path.name != "__init__.py":
            sizes[module.name.rpartition(".")[0]] += 1
    large = {folder for folder, size in sizes.items() if size > MAX_FLAT}
    assert large - EQUALS == set()
    assert drawn_rooms().keys() >= {
        f"kohort.{path.parent.parent.name}"
        for path in (ROOT / "kohort").glob("*/*/__init__.py")
        if path.parent.parent.name not in ("protocol", "compat")
    }
