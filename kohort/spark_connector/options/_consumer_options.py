"""Options of the consumer whose advice is for programs, and not for a query of Spark.

A query calls no consumer, and its options are texts. So the reasons of the consumer, such as "give
timeout_ms to the call", are replaced here. Options of Java that change no record have no effect.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Mapping
from typing import Any

from kohort.errors import ConfigurationError, InvalidOptionError
from kohort.logs import get_logger
from kohort.spark_connector.options._option_values import PREFIX, listener

logger = get_logger("kohort.spark_connector")

TOKEN_PROVIDER = "sasl.oauth.token.provider"
"""Option of the source, ``package.module:Name``."""

_NO_TLS = "OpenSSL has no such setting"
_NO_FIGURES = "the progress of the query and its log have the figures"
WITHOUT_EFFECT = {
    "default.api.timeout.ms": "the source limits its look-ups itself",
    "metric.reporters": _NO_FIGURES,
    "stats_cb": _NO_FIGURES,
    "client.dns.lookup": "all addresses of a host's name are tried in turn",
    "ssl.provider": _NO_TLS,
    "ssl.secure.random.implementation": _NO_TLS,
    "ssl.keymanager.algorithm": _NO_TLS,
    "ssl.trustmanager.algorithm": _NO_TLS,
}
"""Options that are accepted and change nothing, with the reason."""

_PROVIDER = f"set {PREFIX}{TOKEN_PROVIDER}=package.module:Name, a class or function in Python"
_CLASSES = f"it names a class of Java, and this source has no JVM. For tokens, {_PROVIDER}"
_ADVICE = {
    "sasl.login.callback.handler.class": f"it names a class of Java. For tokens, {_PROVIDER}",
    "sasl.client.callback.handler.class": _CLASSES,
    "sasl.login.class": _CLASSES,
    "sasl.oauthbearer.metadata.authentication.type": _PROVIDER,
    "oauthbearer_token_refresh_cb": _PROVIDER,
    "ssl.engine.factory.class": "it names a class of Java, and this source has no JVM",
    "security.providers": "it names a class of Java, and this source has no JVM",
    "enable.ssl.certificate.verification": "the certificates of brokers are always verified. Set "
    f"{PREFIX}ssl.ca.location to their CA",
    "enable.partition.eof": "Spark plans where a batch ends",
    "enable.auto.offset.store": "offsets are committed after Spark has finished a batch",
}
_REFUSAL = re.compile(r"(\S+) is not supported(?: with this class)?: ")
_OF_PROGRAMS = re.compile(r"\w+\(|\b[a-z]+_[a-z]\w*|kohort\.testing|\bpoll\b|\blistener\b")
"""Advice that a program can follow and a query cannot."""


def without_effectless(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the properties that have an effect. Log the others, one line each."""
    for name in properties.keys() & WITHOUT_EFFECT.keys():
        logger.info("option %s%s has no effect: %s", PREFIX, name, WITHOUT_EFFECT[name])
    return {name: value for name, value in properties.items() if name not in WITHOUT_EFFECT}


def for_queries(error: ConfigurationError) -> str:
    """Return the text of an error of the consumer with advice that a query can follow."""
    text = str(error.args[0] if error.args else error)
    found = _REFUSAL.match(text)
    if found is not None and _OF_PROGRAMS.search(text, found.end()):
        advice = _ADVICE.get(found[1], "leave it out, because it is for programs with a consumer")
        return f"{PREFIX}{found[1]} is not supported: {advice}"
    return f"{text} (as an option of the source it has the prefix {PREFIX})"


class _FunctionProvider:
    """Token provider that calls a function."""

    def __init__(self, function: Callable[[], object]) -> None:
        self.token = function


def token_provider(path: str) -> object:
    """Return the OAuth token provider that ``package.module:Name`` names.

    The name is that of a class without arguments or an object with ``token()``, or of a function.
    Raise InvalidOptionError for anything else.
    """
    option = f"option {PREFIX}{TOKEN_PROVIDER}"
    try:
        module, _, name = listener(path.strip()).partition(":")
    except ValueError as error:
        raise InvalidOptionError(f"{option}: {error}") from None
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
        if isinstance(found, type):
            found = found()
    except Exception as error:
        raise InvalidOptionError(
            f"{option}: {path} cannot be created because of {type(error).__name__}, {error}. "
            "Install its module on the driver and on every executor"
        ) from error
    if callable(getattr(found, "token", None)):
        provider: object = found
        return provider
    if not callable(found):
        raise InvalidOptionError(f"{option}: {path} has no method token() and is no function")
    return _FunctionProvider(found)
