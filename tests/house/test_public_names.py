"""Public names of kohort are listed, documented and mentioned in docs/features.md."""

from __future__ import annotations

import ast
import importlib
import inspect
import pickle
import re
import typing
from collections.abc import Iterator

import pytest

import kohort
import kohort.assignors
import kohort.compat.aiokafka
import kohort.compat.confluent
import kohort.compat.confluent.aio
import kohort.compat.kafka_python
import kohort.errors
import kohort.testing
from tests.house._source import ROOT
from tools.public_names import public_modules

PARTLY_PUBLIC = "kohort.config"
COMPAT = "kohort.compat"
"""Its packages have the names of other clients."""
PRIVATE = re.compile(r"^# (Private:|Public are )", re.MULTILINE)
INTERNAL_PAGES = {"architecture.md", "conformance.md", "simulation.md"}

COMPAT_MODULES = (
    kohort.compat.aiokafka,
    kohort.compat.aiokafka.abc,
    kohort.compat.aiokafka.structs,
    kohort.compat.confluent,
    kohort.compat.confluent.aio,
    kohort.compat.kafka_python,
    kohort.compat.kafka_python.structs,
)


def public() -> Iterator[tuple[str, object]]:
    """Yield every public name and what it is, except for Spark, which needs pyspark."""
    for listed in public_modules():
        if listed.name != "kohort.spark_connector":
            for name in listed.names:
                yield f"{listed.name}.{name}", getattr(importlib.import_module(listed.name), name)
    for module in COMPAT_MODULES:
        for name in module.__all__:
            yield f"{module.__name__}.{name}", getattr(module, name)


def methods(name: str, thing: type) -> Iterator[tuple[str, object]]:
    """Yield the public methods and properties that a class of kohort adds."""
    for attribute, value in inspect.getmembers_static(thing):
        plain = value.fget if isinstance(value, property) else inspect.unwrap(value)
        plain = getattr(plain, "__func__", plain)
        own = (getattr(plain, "__module__", None) or "").partition(".")[0] == "kohort"
        if own and inspect.isfunction(plain) and not attribute.startswith("_"):
            yield f"{name}.{attribute}", plain


def test_public_names_are_those_of_the_list() -> None:
    listed = {each.name: set(each.names) for each in public_modules()}
    found = {name: set(importlib.import_module(name).__all__) for name in listed}
    # Other packages import the sections of options from here, so __all__ has them.
    found[PARTLY_PUBLIC] &= listed[PARTLY_PUBLIC]
    assert found == listed


def test_every_other_module_is_private() -> None:
    listed = {each.name for each in public_modules()} - {PARTLY_PUBLIC}
    tops = {path for path in (ROOT / "kohort").iterdir() if path.name != "__pycache__"}
    names = {f"kohort.{path.stem}": path for path in tops if not path.name.startswith("_")}
    said = {
        name
        for name, path in names.items()
        if path.is_dir() and PRIVATE.search((path / "__init__.py").read_text())
    }
    assert names.keys() - said - {"kohort.py", COMPAT} == listed - {"kohort"}


def test_pages_import_public_names_alone() -> None:
    public = {f"{each.name}.{name}" for each in public_modules() for name in each.names}
    used = {
        f"{node.module}.{alias.name}"
        for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
        if path.name not in INTERNAL_PAGES
        for snippet in re.findall(
            r"^```python\n(.*?)^```", path.read_text(), re.DOTALL | re.MULTILINE
        )
        for node in ast.walk(ast.parse(snippet))
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "kohort"
        for alias in node.names
    }
    modules = {each.name for each in public_modules()}
    others = {name for name in used if name.startswith(f"{COMPAT}.")}
    assert used - public - modules - others == set()


def test_every_error_descends_from_the_root() -> None:
    classes = [thing for name, thing in public() if name.startswith("kohort.errors.")]
    errors = [
        thing for thing in classes if isinstance(thing, type) and issubclass(thing, Exception)
    ]
    assert errors
    assert all(issubclass(error, kohort.errors.KafkaError) for error in errors)


def test_every_public_name_and_method_has_a_docstring() -> None:
    named: list[tuple[str, object]] = []
    for name, thing in public():
        if isinstance(thing, type) and thing.__module__.startswith("kohort"):
            named += [(name, thing), *methods(name, thing)]
        elif inspect.isfunction(thing):
            named.append((name, thing))
    assert [label for label, thing in named if not inspect.getdoc(thing)] == []


def test_type_hints_of_public_names_can_be_resolved() -> None:
    """Annotations name modules that kohort imports late."""
    pytest.importorskip("pyarrow")
    for name, thing in public():
        if isinstance(thing, type):
            init = inspect.getattr_static(thing, "__init__")
            for part in (thing, init, *(method for _, method in methods(name, thing))):
                typing.get_type_hints(part)
        elif inspect.isfunction(thing):
            typing.get_type_hints(thing)


def test_pickles_and_tracebacks_have_public_module_names() -> None:
    # The hints of a Secret and of types alone are resolved in their own modules.
    typed = {"AsyncConsumerOptions", "AsyncRebalanceListener", "ConsumerOptions"}
    own = typed | {"RebalanceListener", "Secret"}
    classes = [
        getattr(module, name)
        for module in (kohort, kohort.errors)
        for name in module.__all__
        if name not in own and isinstance(getattr(module, name), type)
    ]
    assert {each.__module__ for each in classes} == {"kohort", "kohort.errors"}
    assert b"kohort.types" not in pickle.dumps(kohort.TopicPartition("orders", 0))


def test_page_of_features_names_every_public_class() -> None:
    features = (ROOT / "docs" / "features.md").read_text()
    names = set(kohort.__all__) - set(kohort.errors.__all__) - {"__version__"}
    assert [name for name in names if f"`{name}`" not in features] == []
