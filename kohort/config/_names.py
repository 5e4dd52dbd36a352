"""Names of options: the reader of dotted names, and errors for unknown ones."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from kohort.config._unsupported import KEYWORDS, PROPERTIES
from kohort.config.options._option import Option
from kohort.config.options._secret import Concealed, Secret, conceal
from kohort.errors import (
    ConfigurationError,
    InvalidOptionError,
    UnknownOptionError,
    UnsupportedOptionError,
)
from kohort.logs import error_text, get_logger

JAAS = "sasl.jaas.config"
QUEUE = "queued.max.messages.kbytes"
TRANSLATED = frozenset(
    {
        "oauth_cb",
        JAAS,
        QUEUE,
        "sasl.login.callback.handler.class",
        "sasl.oauthbearer.config",
        "sasl.oauthbearer.jwt.retriever.class",
        "sasl.oauthbearer.method",
    }
)
"""Dotted names that stand for several options; see kohort/config/_translated.py."""

REFRESH = "topic.metadata.refresh.interval.ms"
"""librdkafka's age at which metadata is read again. Its metadata.max.age.ms is that of a cache."""

logger = get_logger("kohort.config")

_PEM_STORES = {"ssl_truststore_location": "ssl_cafile", "ssl_keystore_location": "ssl_certfile"}
"""Option that takes the place of a store in PEM."""
_REFERENCE = re.compile(r"\$\{[A-Za-z][\w.-]*:[^}]*\}")


def read_properties(
    properties: Mapping[str, Any] | Concealed,
    options: Iterable[Option],
    *,
    only_warn: bool = False,
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the values by keyword, and the dotted name of each keyword.

    A value of None counts as not given. With ``only_warn`` names that are unknown or not supported
    are logged. Raises TypeError if ``properties`` is not a mapping.
    """
    if isinstance(properties, Concealed):
        raise TypeError(f"properties must be a mapping of dotted names, not {properties.type_name}")
    known = {dotted: each for each in options for dotted in each.properties}
    values: dict[str, Any] = {}
    given_as: dict[str, str] = {}
    translated: dict[str, Any] = {}
    if JAAS in properties:
        from kohort.config._msk import without_names_of_java  # few programs have such properties

        properties = without_names_of_java(properties, JAAS)
    if properties.get(REFRESH) is not None and "metadata.max.age.ms" in properties:
        properties = _without_cache_age(properties)
    for name, value in properties.items():
        if not isinstance(name, str):
            raise TypeError(f"the name of a property must be a str, not {name!r}")
        if value is None:
            continue
        _refuse_reference(name, value)
        if name in TRANSLATED:
            translated[name] = value
            continue
        if name not in known:
            _refuse(name, value, known, only_warn)
            continue
        each = known[name]
        checked = each.read(value, name)
        if each.name in values and values[each.name] != checked:
            raise each.invalid(
                name, value, f"the same as {given_as[each.name]}, which means the same"
            )
        values[each.name] = checked
        given_as[each.name] = name
    if translated:
        _translate(translated, known, values, given_as)
    return values, given_as


def _translate(
    properties: Mapping[str, Any],
    known: Mapping[str, Option],
    values: dict[str, Any],
    given_as: dict[str, str],
) -> None:
    """Add the options that properties such as sasl.jaas.config stand for."""
    from kohort.config import _translated  # few programs have such properties

    options = {each.name: each for each in known.values()}
    properties = {
        **properties,
        "bootstrap.servers": values.get("bootstrap_servers", ()),
        "fetch.max.bytes": values.get("fetch_max_bytes", 0),
    }
    found = _translated.translate(properties, given_as)
    if isinstance(found, ConfigurationError):
        raise found
    for keyword, value in found.values.items():
        name = found.names[keyword]
        checked = options[keyword].check(value) if keyword in options else value
        if keyword in values and values[keyword] != checked:
            raise options[keyword].invalid(
                name, value, f"the same {keyword} as {given_as[keyword]} gives"
            )
        values[keyword] = checked
        given_as[keyword] = name


def _without_cache_age(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return the properties of a program of librdkafka, which reads metadata by ``REFRESH``.

    It is off at -1, and metadata is then read when the cache is too old.
    """
    off = str(properties[REFRESH]).strip() == "-1"
    ignored = REFRESH if off else "metadata.max.age.ms"
    logger.debug("%s has no effect: the other age of metadata is used", ignored)
    return {name: value for name, value in properties.items() if name != ignored}


def _refuse_reference(name: str, value: Any) -> None:
    """Raise for ``${provider:key}``, which Java's configuration providers would look up."""
    text = value.reveal() if isinstance(value, Secret) else value
    found = isinstance(text, str) and "${" in text and _REFERENCE.search(text) is not None
    del text
    if found:
        raise UnsupportedOptionError(
            f"{name} is not supported with ${{provider:key}} in it: nothing is resolved. Look the "
            "value up before"
        )


def with_dotted_names(
    error: InvalidOptionError, given_as: Mapping[str, str], options: Iterable[Option]
) -> InvalidOptionError:
    """Return the error with dotted names in place of keywords."""
    dotted = {each.name: each.properties[0] for each in options if each.properties}
    for store, file in _PEM_STORES.items():
        if store in given_as:
            dotted[file] = given_as[store]
    dotted.update(given_as)
    text = re.sub(
        r"\b[a-z]+(?:_[a-z]+)+\b", lambda found: dotted.get(found[0], found[0]), str(error)
    )
    return InvalidOptionError(text)


def conceal_properties(properties: Mapping[str, Any], options: Iterable[Option]) -> dict[str, Any]:
    """Return the properties with what may be a secret in a form that no traceback shows.

    These are the values of options that hold secrets, and of unknown and unsupported names. If
    ``properties`` is not a mapping, only the name of its type is kept.
    """
    if isinstance(properties, Concealed):
        return properties
    if not isinstance(properties, Mapping):
        return Concealed(properties)
    known = {dotted: each for each in options for dotted in each.properties}
    return {name: _concealed(name, value, known) for name, value in properties.items()}


def _concealed(name: str, value: Any, known: Mapping[str, Option]) -> Any:
    if name in known:
        return known[name].option_type.conceal(value)
    if name == QUEUE or (name == "oauth_cb" and callable(getattr(value, "token", None))):
        return value
    unsupported = _UNSUPPORTED.get(name)
    harmless = unsupported is not None and unsupported.is_harmless(value)
    return value if harmless else conceal(value)


def unknown_keyword(name: str, known: Iterable[str]) -> UnknownOptionError:
    """Return the error for a keyword that no client has."""
    names = list(known)
    undotted = name.replace(".", "_")
    if undotted != name and undotted in names:
        return UnknownOptionError(
            f"no option is called {name!r}: write {undotted}, or use from_properties()"
        )
    return _unknown(name, names)


def _refuse(name: str, value: Any, known: Mapping[str, Option], only_warn: bool) -> None:
    """Raise for a name that is not supported, or log it, unless its value is harmless."""
    # Each of Java's providers adds properties, such as config.providers.file.class.
    providers = "config.providers"
    unsupported = _UNSUPPORTED.get(providers if name.startswith(f"{providers}.") else name)
    if unsupported is None:
        error = _unknown(name, [*known, *TRANSLATED, *_UNSUPPORTED])
        if not only_warn:
            raise error
        logger.warning("%s. The option is ignored", error_text(error))
    else:
        unsupported.check(value, name, only_warn=only_warn)


def _unknown(name: str, known: list[str]) -> UnknownOptionError:
    import difflib  # only this error needs it

    near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    hint = f"did you mean {near[0]}?" if near else "see docs/configuration.md for all options"
    return UnknownOptionError(f"no option is called {name!r}: {hint}")


_UNSUPPORTED = {dotted: each for each in (*KEYWORDS, *PROPERTIES) for dotted in each.properties}
