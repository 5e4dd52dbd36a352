"""Writer of docs/reference/options.md.

The table of options in ``kohort/config`` is the source.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from kohort.config import ADMIN_OPTIONS, SHARE_OPTIONS
from kohort.config._client import ClientConfig, RequestOptions
from kohort.config._config import ConsumerConfig
from kohort.config._fetch import FetchConfig
from kohort.config._group import GroupConfig
from kohort.config._translated import TRANSLATED
from kohort.config._unsupported import IGNORED, KEYWORDS, REFUSED, Unsupported
from kohort.config.options._option import Option, Section, options_of
from kohort.config.security._oauth import AssertionConfig, OAuthConfig, UnsecuredConfig
from kohort.config.security._proxy import ProxyConfig
from kohort.config.security._sasl import SaslConfig
from kohort.config.security._security import SecurityConfig
from kohort.config.security._tls import StoreConfig, TlsConfig
from tools.markdown import table, wrapped
from tools.prose import sentences, words

PAGE: Final = Path(__file__).parents[1] / "docs" / "reference" / "options.md"
MAX_CELL: Final = 15
"""Maximum words of a cell. The rest is below the table."""

_HEAD: Final = """\
# All options

With this page you look up an option of `KafkaConsumer` and `AsyncKafkaConsumer`. The keyword is its
name in Python. The dotted names are for `from_properties()`, which has those of Java and of
librdkafka. [Configuration](../configuration.md) says how kohort checks options.

Each option has an address on this page, such as [`group_id`](#group_id).

`python -m tools.generate` writes this page from `kohort/config`.
"""
_COMMON: Final = (
    "bootstrap_servers",
    "group_id",
    "auto_offset_reset",
    "enable_auto_commit",
    "value_deserializer",
    "max_poll_records",
    "max_poll_interval_ms",
    "security_protocol",
    "sasl_mechanism",
    "client_id",
)
"""The options that most programs set."""
_NEXT: Final = "Next: [errors](errors.md)."

_SECTIONS: tuple[tuple[str, type[Section]], ...] = (
    ("Consumer", ConsumerConfig),
    ("Requests", RequestOptions),
    ("Connections and metadata", ClientConfig),
    ("The group", GroupConfig),
    ("Fetching", FetchConfig),
    ("Security", SecurityConfig),
    ("TLS", TlsConfig),
    ("Stores of Java", StoreConfig),
    ("Logins", SaslConfig),
    ("Tokens (OAUTHBEARER)", OAuthConfig),
    ("Assertions for tokens", AssertionConfig),
    ("Tokens without a signature", UnsecuredConfig),
    ("Proxies", ProxyConfig),
)


def describe_options() -> str:
    """Return all options as Markdown tables: supported, translated and unsupported ones."""
    return "\n".join([*_supported(), *_translated(), *_unsupported()])


def page() -> str:
    """Return the text of the page."""
    overview = "\n".join(_overview())
    return f"{_HEAD}\n{overview}\n{describe_options()}\n{_NEXT}\n"


def _overview() -> Iterator[str]:
    """Yield the options that most programs set, and all by name."""
    found = {each.name: each for _, section in _SECTIONS for each in options_of(section)}
    yield "## The ten to begin with\n"
    yield from table(
        ("keyword", "meaning", "default"),
        ((_link(name), _split(found[name].meaning)[0], _default(found[name])) for name in _COMMON),
    )
    yield ""
    yield "## All by name\n"
    yield from table(
        ("keyword", "default"), ((_link(name), _default(found[name])) for name in sorted(found))
    )
    yield ""
    yield "## Share consumers\n"
    yield wrapped(
        "[Share consumers](../queues.md#limits) have the options of the client, of security and "
        "these. Other options raise UnsupportedOptionError."
    )
    yield ""
    own = sorted(SHARE_OPTIONS - ADMIN_OPTIONS)
    yield from table(("keyword", "default"), ((_link(name), _default(found[name])) for name in own))
    yield ""


def _link(name: str) -> str:
    return f"[`{name}`](#{name})"


def _default(each: Option) -> str:
    return f"`{each.shown_default}` {each.unit * (each.shown_default[0].isdigit())}".strip()


def _supported() -> Iterator[str]:
    seen: set[str] = set()
    for title, section in _SECTIONS:
        options = [each for each in options_of(section) if each.name not in seen]
        seen.update(each.name for each in options)
        yield f"## {title}\n"
        yield from table(
            ("keyword", "meaning", "default", "unit", "value", "dotted names"),
            (_supported_row(each) for each in options),
        )
        yield ""
        notes = [(each.name, note) for each in options if (note := _note(each))]
        for name, note in notes:
            yield wrapped(f"- **`{name}`.** {note}", indent="  ")
        if notes:
            yield ""


def _note(each: Option) -> str:
    """Return what does not fit into the row of an option: sentences of its meaning, its values."""
    value = each.option_type.expected
    others = _split(each.meaning)[1]
    return f"{others} The value is {value}.".strip() if _is_long(value) else others


def _is_long(value: str) -> bool:
    return len(words(value)) > MAX_CELL


def _split(meaning: str) -> tuple[str, str]:
    """Return the sentences of a meaning that fit into a cell, at least one, and the others."""
    cell, *others = sentences(meaning)
    while others and len(words(f"{cell} {others[0]}")) <= MAX_CELL:
        cell = f"{cell} {others.pop(0)}"
    return cell, " ".join(others)


def _supported_row(each: Option) -> tuple[str, ...]:
    return (
        f'<a id="{each.name}"></a>`{each.name}`',
        _split(each.meaning)[0],
        f"`{each.shown_default}`",
        each.unit,
        "see below" if _is_long(each.option_type.expected) else each.option_type.expected,
        _names(each.properties),
    )


def _translated() -> Iterator[str]:
    yield "## Dotted names that stand for several options\n"
    yield from table(
        ("dotted name", "value"), ((f"`{name}`", meaning) for name, meaning in TRANSLATED.items())
    )
    yield ""


def _unsupported() -> Iterator[str]:
    yield "## Keywords that are not supported\n"
    yield from table(
        ("keyword", "dotted names", "values accepted", "why"),
        (
            (f"`{each.name}`", _names(each.properties), _harmless(each), _sentence(each.why))
            for each in KEYWORDS
            if not each.is_ignored
        ),
    )
    yield ""
    yield "## Dotted names that are not supported\n"
    yield from table(
        ("dotted name", "values accepted", "why"),
        ((f"`{each.name}`", _harmless(each), _sentence(each.why)) for each in REFUSED),
    )
    yield from _ignored()


def _ignored() -> Iterator[str]:
    yield ""
    yield "## Options that have no effect\n"
    yield "kohort accepts any value of these, and logs one line at DEBUG.\n"
    yield from table(
        ("name", "why"),
        (
            (f"`{name}`", _sentence(each.why))
            for each in (*KEYWORDS, *IGNORED)
            if each.is_ignored
            for name in dict.fromkeys((each.name, *each.properties))
        ),
    )
    yield ""


def _harmless(each: Unsupported) -> str:
    # The only class here is the default selector, whose name depends on the platform.
    shown = (
        "selectors.DefaultSelector" if isinstance(value, type) else str(value) or '""'
        for value in each.harmless
    )
    return _names(shown)


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:] if not text.startswith("kohort") else text


def _names(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
