"""Checks for tables of Spark SQL, whose options do not reach the source."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kohort.errors import InvalidOptionError, UnsupportedOptionError

PROPERTIES = frozenset(
    {
        "provider",
        "owner",
        "location",
        "is_managed_location",
        "external",
        "comment",
        "collation",
        "serialization.format",
    }
)
"""Properties that Spark and its catalogs set on every table, in lower case."""
COPY_PREFIX = "option."
"""Prefix of the second copy of each option of a table, which Spark adds."""

_INSTEAD = (
    "use CREATE TEMPORARY VIEW name USING kohort OPTIONS (...). Or name the columns of the table, "
    "CREATE TABLE name (value binary) USING kohort. Then give the options with each read: "
    "SELECT * FROM name WITH (...), or spark.read.options(...).table(name)"
)


def check_not_table(names: Iterable[str]) -> None:
    """Raise UnsupportedOptionError if the names in lower case are those of a table's options."""
    if any(name in PROPERTIES or name.startswith(COPY_PREFIX) for name in names):
        raise UnsupportedOptionError(
            "a table created by CREATE TABLE ... USING kohort OPTIONS (...) cannot be read. "
            f"Spark keeps no options of a table of a Python source. Instead {_INSTEAD}"
        )


def check_any(options: Mapping[str, str]) -> None:
    """Raise InvalidOptionError if there are no options, as for the read of a table."""
    if not options:
        raise InvalidOptionError(
            "options kafka.bootstrap.servers and one of subscribe, subscribePattern and assign are "
            f"required. Spark keeps no options of a table. For a table, {_INSTEAD}"
        )
