"""What kohort offers is listed, documented and told about in the README."""

from __future__ import annotations

import inspect
import pickle
import re
import tomllib
import typing
from collections.abc import Iterator

import pytest

import kohort
import kohort.assignors
import kohort.compat.confluent
import kohort.compat.kafka_python
import kohort.errors
import kohort.testing
from tests.house._source import ROOT

PUBLIC_MODULES = (
    kohort,
    kohort.assignors,
    kohort.compat.confluent,
    kohort.compat.kafka_python,
    kohort.compat.kafka_python.structs,
    kohort.errors,
    kohort.testing,
)
PROMISED = {
    "AsyncConsumerOptions",
    "AsyncRebalanceListener",
    "ConsumerGroupMetadata",
    "ConsumerOptions",
    "Explanation",
    "RebalanceListener",
    "create_ssl_context",
    "AsyncKafkaConsumer",
    "ConsumerRebalanceListener",
    "ConsumerRecord",
    "KafkaConsumer",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "RecordColumns",
    "Secret",
    "TopicPartition",
}


def public() -> Iterator[tuple[str, object]]:
    """Yield every public name and what it is."""
    for module in PUBLIC_MODULES:
        for name in module.__all__:
            yield f"{module.__name__}.{name}", getattr(module, name)


def methods(name: str, thing: type) -> Iterator[tuple[str, object]]:
    """The public methods and properties that a class of kohort adds."""
    for attribute, value in inspect.getmembers_static(thing):
        plain = value.fget if isinstance(value, property) else inspect.unwrap(value)
        plain = getattr(plain, "__func__", plain)
        own = (getattr(plain, "__module__", None) or "").partition(".")[0] == "kohort"
        if own and inspect.isfunction(plain) and not attribute.startswith("_"):
            yield f"{name}.{attribute}", plain


def test_the_promised_names_are_there() -> None:
    errors = {name for name in kohort.__all__ if name in kohort.errors.__all__}
    assert set(kohort.__all__) - errors - {"__version__"} == PROMISED
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert kohort.__version__ == project["project"]["version"]


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
    """Modules that kohort imports late are named in annotations."""
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


def test_nothing_private_is_public() -> None:
    assert [name for name, _ in public() if re.search(r"\._(?!_version__)", name)] == []


def test_the_readme_names_every_public_class() -> None:
    readme = (ROOT / "README.md").read_text()
    assert [name for name in PROMISED if f"`{name}`" not in readme] == []
