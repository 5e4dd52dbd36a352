"""Tables of Spark SQL, whose options reach no source."""

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
"""Properties that Spark and its catalogs give every table, in lower case."""
COPY_PREFIX = "option."
"""Prefix of the second copy that Spark makes of each option of a table."""

_INSTEAD = (
    "use CREATE TEMPORARY VIEW name USING kohort OPTIONS (...), or name the columns of the table, "
    "CREATE TABLE name (value binary) USING kohort, and give the options with each read: "
    "SELECT * FROM name WITH (...), or spark.read.options(...).table(name)"
)


def check_not_table(names: Iterable[str]) -> None:
    """UnsupportedOptionError if names of options, in lower case, are those of a table."""
    if any(name in PROPERTIES or name.startswith(COPY_PREFIX) for name in names):
        raise UnsupportedOptionError(
            "CREATE TABLE ... USING kohort OPTIONS (...) makes a table that cannot be read: Spark "
            f"keeps no options of a table of a Python source. Instead {_INSTEAD}"
        )


def check_any(options: Mapping[str, str]) -> None:
    """InvalidOptionError if there are no options at all, as when a table is read."""
    if not options:
        raise InvalidOptionError(
            "no options are given, and kafka.bootstrap.servers and one of subscribe, "
            "subscribePattern and assign are required. Spark keeps no options of a table: if this "
            f"is one, {_INSTEAD}"
        )
