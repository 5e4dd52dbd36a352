"""Imports follow the directions in the drawing of docs/architecture.md."""

from __future__ import annotations

import re
import sys

import kohort
from tests.house._source import ROOT, Module, modules

ON_PUBLIC_NAMES = (
    "spark_connector",
    "compat",
    "processing",
    "schemas",
    "health",
)  # what a user of kohort could have written
VALUES = ("types", "errors", "logs", "config")  # the lowest layer, in its internal order
CLUSTER = {"errors", "logs", "types", "records", "protocol"}  # all that the brokers may import
THIRD_PARTY = {
    # pyarrow is needed for tables. Type checkers read typing_extensions.
    "records": {"crc32c", "cramjam", "pyarrow", "typing_extensions"},
    "security": {"anyio", "botocore", "cryptography", "gssapi", "truststore"},
    "transport": {"anyio"},
    "coordinator_client": {"anyio"},
    "fetcher": {"anyio"},
    "producer": {"anyio"},
    # trio is notified of Ctrl-C where it runs.
    "consumer": {"anyio", "pyarrow", "trio"},
    "admin": {"anyio"},
    "reading": {"anyio"},
    "share": {"anyio", "pyarrow"},
    "broker": {"anyio", "cryptography", "trustme"},  # the latter two create certificates
    "polars": {"polars"},
    "prometheus": {"prometheus_client"},
    "otel": {"opentelemetry"},
    "testing": {"anyio", "cryptography", "pyarrow"},
    "spark_connector": {"pyarrow", "pyspark"},
    "processing": {"anyio", "deltalake", "pyarrow", "pyiceberg"},
    "schemas": {"anyio", "fastavro", "google", "jsonschema", "polars", "pyarrow", "referencing"},
    "compat": {"confluent_kafka"},  # other clients' names come by import_module(), if installed
    "cli": {"anyio", "pyarrow"},
}
# The core gets its clock, its event loop and its network from outside and imports none of these.
OUTSIDE = {"asyncio", "time", "socket", "trio"}
INJECTED = {
    "protocol": OUTSIDE | {"logging", "random", "threading"},
    "records": OUTSIDE | {"logging", "random", "threading"},
    "security": OUTSIDE - {"time", "socket"},  # certificates and tokens use the wall clock
    "subscription": OUTSIDE,
    "transport": OUTSIDE - {"socket"},
    "coordinator_client": OUTSIDE,
    "fetcher": OUTSIDE,
    "producer": OUTSIDE,
}


def drawn_layers() -> list[set[str]]:
    """Return the layers of the drawing in docs/architecture.md, lowest first."""
    text = (ROOT / "docs" / "architecture.md").read_text()
    drawing = re.search(r"```\n(errors types logs config ->.*?)\nbroker ->", text, re.DOTALL)
    assert drawing is not None, "docs/architecture.md has lost its drawing of the layers"
    return [set(re.findall(r"\w+", layer)) for layer in drawing[1].split("->")]


def allowed(part: str) -> set[str]:
    """Return the parts that a part may import, including the part."""
    layers = drawn_layers()
    if part == "broker":
        return {part} | CLUSTER
    if part == "testing":
        return {part, "broker", "_greenlets", "config"} | CLUSTER
    if part in VALUES:
        return {*VALUES[: VALUES.index(part)], part}
    below: set[str] = set()
    for layer in layers:
        if part in layer:
            return below | {part} | ({"testing"} if part == "cli" else set())
        below |= layer
    raise AssertionError(f"kohort.{part} is missing in the drawing of docs/architecture.md")


def inner_imports(module: Module) -> list[tuple[str, int]]:
    """Return the imports of kohort's own names, without their ``kohort.``."""
    found = module.imports()
    return [(name[len("kohort.") :], line) for name, line in found if name.startswith("kohort.")]


def test_every_part_imports_only_what_is_below_it() -> None:
    wrong = [
        f"{module.name}:{line} imports kohort.{name}"
        for module in modules()
        if module.part not in ("", "__main__", *ON_PUBLIC_NAMES, "cli")
        for name, line in inner_imports(module)
        if name.partition(".")[0] not in allowed(module.part)
    ]
    assert not wrong, "\n".join(wrong)


def test_every_part_has_a_place_in_the_drawing() -> None:
    drawn = set().union(*drawn_layers()) | {"testing", "broker"}
    assert {module.part for module in modules()} - {"", "__main__"} <= drawn


def test_spark_and_the_command_use_public_names_alone() -> None:
    public = set(kohort.__all__) | {"__version__"}
    wrong = [
        f"{module.name}:{line} imports kohort.{name}"
        for module in modules()
        if module.part in (*ON_PUBLIC_NAMES, "cli")
        for name, line in inner_imports(module)
        if name.partition(".")[0] not in public | allowed(module.part)
        or (name.partition(".")[0] != module.part and re.search(r"\b_[a-z]", name))
        or (module.part in ON_PUBLIC_NAMES and not is_public_to(module.part, name, public))
    ]
    assert not wrong, "\n".join(wrong)


def is_public_to(part: str, name: str, public: set[str]) -> bool:
    """True if the part may import the name: a public one, an error, a listener, a log, or its own.

    Messages are records, whose slots their compiled class reads.
    """
    if name in public or name == "config.ConsumerConfig":
        return True
    if part == "compat" and name.partition(".")[0] == "records":
        return True
    return name.partition(".")[0] in ("errors", "listeners", "logs", part)


def test_each_part_needs_only_the_libraries_it_declares() -> None:
    wrong = [
        f"{module.name}:{line} imports {name}"
        for module in modules()
        for name, line in module.imports()
        if (top := name.partition(".")[0]) not in sys.stdlib_module_names
        and top != "kohort"
        and top not in THIRD_PARTY.get(module.part, set())
    ]
    assert not wrong, "\n".join(wrong)


def test_the_core_takes_time_loop_and_network_from_outside() -> None:
    wrong = [
        f"{module.name}:{line} imports {name}"
        for module in modules()
        for name, line in module.imports()
        if name.partition(".")[0] in INJECTED.get(module.part, set())
    ]
    assert not wrong, "\n".join(wrong)
