"""``kohort errors``: the cause of an error and what to do, by class name or Kafka's error code."""

from __future__ import annotations

import argparse
import contextlib
import difflib
import importlib
import inspect
import re
import shutil
import textwrap
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from kohort import errors
from kohort.cli._remedies import REMEDIES, Remedy
from kohort.cli.common._tables import wrapped
from kohort.errors import BrokerResponseError, ErrorCode, KafkaError, error_class
from kohort.errors.addresses import page_address
from kohort.types import NamedTuple

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]

DESCRIPTION = """\
Print the cause of an error and what to do. NAME is a class such as NoBrokersAvailable, Kafka's name
of an error code, or its number. Without a name, list all errors."""
MAX_WIDTH: Final = 100
GROUPS: Final[tuple[tuple[str, type[KafkaError]], ...]] = (
    ("Error codes of brokers", BrokerResponseError),
    ("Security", errors.SecurityError),
    ("Network", errors.TransportError),
    ("Options", errors.ConfigurationError),
    ("Data of a partition", errors.DataError),
    ("Groups", errors.GroupError),
    ("Calls and time limits", KafkaError),
)
"""Title of a group, and the base class of its errors. The first match counts."""
ORDER: Final = (
    "Calls and time limits",
    "Options",
    "Network",
    "Security",
    "Data of a partition",
    "Groups",
    "Schemas",
    "Spark",
    "Error codes of brokers",
)
"""Titles of all groups in the order of the page."""
_SPARK: Final = "kohort.spark_connector._errors"
_MODULE_GROUPS: Final = {_SPARK: "Spark", "kohort.schemas._errors": "Schemas"}
"""Modules whose errors are a group."""


class ErrorSection(NamedTuple):
    """Text about one error."""

    name: str
    group: str
    code: str
    """Number and name of the error code, such as ``25, UNKNOWN_MEMBER_ID``. Empty: none."""
    bases: tuple[str, ...]
    """Base classes between the class and ``KafkaError``, and those of Python."""
    is_retriable: bool
    cause: str
    """Docstring of the class, with the marks of reStructuredText."""
    remedy: Remedy


def add_to(commands: Commands) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "errors",
        help="explain an error or an error code of Kafka",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", nargs="?", metavar="NAME", help="class, error code or its number")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print a section, or the list of all. Return 1 if the name is unknown."""
    if options.name is None:
        print(_listed())
        return 0
    text = explained(options.name)
    if text is None:
        near = _near(options.name)
        hint = f"Did you mean {' or '.join(near)}?" if near else "kohort errors lists all."
        said = f"{options.name!r} is neither an error of kohort nor an error code of Kafka. {hint}"
        print(wrapped(said))
        return 1
    print(text)
    return 0


def sections() -> Iterator[ErrorSection]:
    """Yield the sections of all public errors and of those of the Spark source."""
    from kohort import schemas  # with its HTTP client, which no other command needs

    classes = {
        name: found
        for module in (errors, schemas)
        for name in module.__all__
        if isinstance(found := getattr(module, name), type) and issubclass(found, KafkaError)
    }
    with contextlib.suppress(ImportError):  # without pyspark its errors have no docstrings here
        spark = importlib.import_module(_SPARK)
        classes |= {name: getattr(spark, name) for name in REMEDIES if name not in classes}
    known = [_section(name, classes.get(name)) for name in REMEDIES]
    yield from sorted(known, key=lambda section: ORDER.index(section.group))


def _section(name: str, found: type[KafkaError] | None) -> ErrorSection:
    if found is None:
        cause = "Error of the Spark source. Install pyspark here to read more."
        return ErrorSection(name, "Spark", "", (), False, cause, REMEDIES[name])
    group = next(title for title, base in GROUPS if issubclass(found, base))
    code = None
    if issubclass(found, BrokerResponseError) and found is not BrokerResponseError:
        code = ErrorCode(found.code)
    left_out = (found, KafkaError, Exception, BaseException, object)
    return ErrorSection(
        name,
        _MODULE_GROUPS.get(found.__module__, group),
        "" if code is None else f"{code.value}, {code.name}",
        tuple(each.__name__ for each in found.__mro__ if each not in left_out),
        found.retriable,
        inspect.getdoc(found) or "",
        REMEDIES[name],
    )


def explained(name: str) -> str | None:
    """Return the text about a class or an error code. None if the name is unknown."""
    given = name.strip().rpartition(".")[2].casefold()
    by_name = {section.name.casefold(): section for section in sections()}
    section = by_name.get(given) or by_name.get(given.replace("exception", "error"))
    if section is not None:
        return _shown(section)
    code = _code(given)
    if code is None:
        return None
    found = error_class(code)
    if found is not BrokerResponseError:
        return _shown(by_name[found.__name__.casefold()])
    if code == ErrorCode.NONE:
        return "NONE: error code 0. The request succeeded."
    text = f"{code.name}: error code {code.value}\n\nkohort has no class for this code and raises"
    return f"{text}\nBrokerResponseError with it. See: {page_address('reference/error-codes.md')}"


def _code(given: str) -> ErrorCode | None:
    with contextlib.suppress(ValueError):
        return ErrorCode(int(given))
    return ErrorCode.__members__.get(given.upper())


def _near(name: str) -> list[str]:
    names = {each.casefold(): each for each in (*REMEDIES, *ErrorCode.__members__)}
    return [names[each] for each in difflib.get_close_matches(name.casefold(), names, 3)]


def _shown(section: ErrorSection) -> str:
    remedy = section.remedy
    head = f"{section.name} ({'' if section.is_retriable else 'not '}retriable)"
    parts = [*_paragraphs(f"{head}: error code {section.code}" if section.code else head)]
    parts += _paragraphs(f"Cause. {section.cause}")
    parts += _paragraphs(f"Do. {remedy.text}")
    if remedy.page:
        parts.append(f"See: {page_address(remedy.page)}")
    if section.bases:
        parts += _paragraphs(f"Subclass of {', '.join(section.bases)}")
    return "\n\n".join(parts)


def _paragraphs(text: str) -> Iterator[str]:
    width = min(MAX_WIDTH, shutil.get_terminal_size().columns)
    for paragraph in plain(text).split("\n\n"):
        yield textwrap.fill(paragraph, width, break_long_words=False, break_on_hyphens=False)


def plain(text: str) -> str:
    """Return a docstring without the marks of code and references."""
    return re.sub(r":\w+:`~?([\w.]+)`", r"\1", text).replace("``", "")


def _listed() -> str:
    lines: list[str] = []
    found = [*sections()]
    for group in ORDER:
        lines += ["", group] if lines else [group]
        for section in found:
            if section.group == group:
                lines.append(f"  {section.name}")
    lines += ["", "kohort errors NAME explains one of them, or an error code of Kafka."]
    return "\n".join(lines)


__all__ = ["ErrorSection", "add_to", "explained", "plain", "sections"]
