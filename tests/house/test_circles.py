"""No file of kohort imports itself by way of others, and packages import in one direction."""

from __future__ import annotations

import collections
from collections.abc import Collection, Mapping

from tests.house._source import Module, modules

Graph = Mapping[str, Collection[str]]


def imports() -> dict[str, set[str]]:
    """Return each module with the modules that it imports anywhere, also for type checkers."""
    names = {module.name for module in modules()}
    return {module.name: _imported(module, names) for module in modules()}


def _imported(module: Module, names: Collection[str]) -> set[str]:
    found = set()
    for imported, _ in module.imports():
        name = imported
        while name and name not in names:
            name = name.rpartition(".")[0]
        if name and name != module.name:
            found.add(name)
    return found


def circles(graph: Graph) -> list[set[str]]:
    """Return the sets of modules that all reach each other."""
    reached = {name: _reachable(graph, name) for name in graph}
    found: list[set[str]] = []
    for name in sorted(graph):
        circle = {other for other in reached[name] if name in reached[other]}
        if circle and circle not in found:
            found.append(circle)
    return found


def _reachable(graph: Graph, start: str) -> set[str]:
    found: set[str] = set()
    waiting = [start]
    while waiting:
        for name in graph[waiting.pop()]:
            if name not in found:
                found.add(name)
                waiting.append(name)
    return found


def test_circles_are_found() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set(), "e": {"f"}, "f": {"e"}}
    assert circles(graph) == [{"b", "c"}, {"e", "f"}]


def test_files_import_each_other_in_one_direction() -> None:
    assert [sorted(circle) for circle in circles(imports())] == []


def test_packages_import_each_other_in_one_direction() -> None:
    packages: dict[str, set[str]] = collections.defaultdict(set)
    for name, imported in imports().items():
        package = _package(name)
        packages[package] |= {_package(other) for other in imported} - {package, "kohort"}
    packages.pop("kohort")
    assert circles(packages) == []


def _package(module: str) -> str:
    return ".".join(module.split(".")[1:2]) or "kohort"
