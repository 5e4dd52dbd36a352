"""Fields of kohort's log records: group, member, generation, topic, partition and offset.

A log call names them once, in its message. A filter of each logger of kohort finds them there, and
sets them as attributes of the record, as ``extra=`` does. Formatters for JSON write attributes. A
text that was built before, such as that of an error, brings its fields as a :class:`PlacedText`.

The filter runs only for records of an enabled level.
"""

from __future__ import annotations

import logging
import re
from functools import lru_cache

from kohort.errors import KafkaError

__all__ = ["PlacedText", "error_text", "get_logger"]

_PLACEHOLDER = re.compile(r"%(?!%)[-#0 +]*\d*(?:\.\d+)?[a-zA-Z]")
_NAMED = re.compile(r"\b(topic|member|generation|offset) $")
_NUMBERS = {"generation", "partition", "offset"}


class PlacedText(str):
    """A text, and the fields of what it names."""

    __slots__ = ("fields",)

    fields: dict[str, str | int]

    def __new__(cls, text: str, **fields: str | int | None) -> PlacedText:
        """Return a text with those fields that are not None."""
        placed = super().__new__(cls, text)
        placed.fields = {name: value for name, value in fields.items() if value is not None}
        return placed

    def __add__(self, text: str) -> PlacedText:
        return PlacedText(super().__add__(text), **self.fields)


def error_text(error: BaseException) -> PlacedText:
    """Return the text of an error for a log call, with the fields of the error's attributes.

    A log call takes no exception, because a kept record would keep the frames of its traceback.
    """
    if not isinstance(error, KafkaError):
        return PlacedText(str(error))
    topic, partition = getattr(error, "topic_partition", None) or (None, None)
    group, offset = getattr(error, "group_id", None), getattr(error, "offset", None)
    return PlacedText(str(error), group=group, topic=topic, partition=partition, offset=offset)


def get_logger(name: str) -> logging.Logger:
    """Return a logger of kohort, whose records have the fields."""
    logger = logging.getLogger(name)
    logger.addFilter(_add_fields)
    return logger


def _add_fields(record: logging.LogRecord) -> bool:
    """Set the fields that a record names, and return True. Those of ``extra=`` stay."""
    arguments = record.args
    if isinstance(arguments, tuple) and isinstance(record.msg, str):
        known = vars(record)
        for name, index in _places(record.msg):
            value = arguments[index] if index < len(arguments) else None
            if isinstance(value, int if name in _NUMBERS else str):
                known.setdefault(name, value)
        for argument in arguments:
            if isinstance(argument, PlacedText):
                for name, found in argument.fields.items():
                    known.setdefault(name, found)
    return True


@lru_cache(512)
def _places(message: str) -> tuple[tuple[str, int], ...]:
    """Return the fields that a message names, each with the index of its argument."""
    found: dict[str, int] = {}
    is_of_group = message.startswith("[%s] ")
    for index, match in enumerate(_PLACEHOLDER.finditer(message.replace("%%", "__"))):
        begin = match.start()
        if is_of_group and index == 0:
            found["group"] = index
        elif message.startswith("%s-%d", begin):
            found.setdefault("topic", index)
            found.setdefault("partition", index + 1)
        elif is_of_group and message.endswith("epoch ", 0, begin):
            found.setdefault("generation", index)
        elif named := _NAMED.search(message, max(0, begin - 12), begin):
            found.setdefault(named[1], index)
    return tuple(found.items())
