"""No file of kohort imports itself by way of others."""

from __future__ import annotations

from collections.abc import Collection
from graphlib import TopologicalSorter

from tests.house._source import Module, modules


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


def test_files_import_each_other_in_one_direction() -> None:
    TopologicalSorter(imports()).prepare()  # raises CycleError with the files of a circle
