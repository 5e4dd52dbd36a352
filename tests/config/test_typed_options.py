"""The typed dictionaries of options agree with the table of options."""

from __future__ import annotations

import collections.abc
import inspect
import math
import ssl
import types
import typing
from pathlib import Path
from typing import Any, Literal, Union

import pytest

from kohort import _options
from kohort.assignors import RangeAssignor
from kohort.config import OPTIONS, ConsumerConfig, Secret
from tests.support.option_values import MALFORMED_SERVERS, SERVERS, SPECIAL_VALUES, WRONG_VALUES
from tools.typed_options import ASYNC_ONLY, DESERIALIZERS, SYNC_ONLY, files

SYNC = typing.get_type_hints(_options.ConsumerOptions)
ASYNC = typing.get_type_hints(_options.AsyncConsumerOptions)
HINTS: dict[str, Any] = SYNC | ASYNC
WIDER_AT_RUN_TIME = [("session_timeout_ms", 6_000.0)]
"""Accepted values that no annotation allows: whole numbers as float."""
SECURITY_VALUES: list[tuple[str, Any]] = [
    ("security_protocol", "SASL_SSL"),
    ("ssl_cafile", "ca.pem"),
    ("ssl_cafile", Path("ca.pem")),
    ("ssl_cadata", b"0"),
    ("ssl_ciphers", ["ECDHE+AESGCM"]),
    ("ssl_ciphers", "ECDHE+AESGCM"),
    ("ssl_min_version", "TLSv1.3"),
    ("ssl_min_version", ssl.TLSVersion.TLSv1_3),
    ("ssl_password", lambda: b"x"),
    ("ssl_password", "x"),
    ("sasl_mechanism", "SCRAM-SHA-256"),
    ("sasl_plain_password", Secret("x")),
    ("sasl_plain_password", b"x"),
    ("sasl_credentials", lambda: ("user", "password")),
    ("sasl_oauth_token_provider", lambda: "token"),
    ("sasl_oauthbearer_token_endpoint_url", "https://idp.example.org/token"),
    ("sasl_oauthbearer_allowed_urls", ["https://idp.example.org/token"]),
    ("sasl_oauthbearer_grant_type", "jwt-bearer"),
    ("sasl_oauthbearer_extensions", {"logicalCluster": "lkc-1"}),
    ("sasl_oauthbearer_unsecured_claims", {"sub": "user", "level": 3, "groups": ["a"]}),
]


def fits(value: Any, hint: Any) -> bool:
    """Return True if a type checker accepts the value for this hint."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any or hint is object:
        return True
    if hint is float:
        return isinstance(value, (int, float))
    if origin in (Union, types.UnionType):
        return any(fits(value, each) for each in arguments)
    if origin is Literal:
        return any(type(value) is type(each) and value == each for each in arguments)
    if origin is type:
        return isinstance(value, type) and fits_protocol(value, arguments[0])
    if origin is tuple:
        pairs = zip(value, arguments, strict=False) if isinstance(value, tuple) else ()
        right = isinstance(value, tuple) and len(value) == len(arguments)
        return right and all(fits(part, each) for part, each in pairs)
    if origin is collections.abc.Sequence:
        given = isinstance(value, collections.abc.Sequence) and not isinstance(value, (str, bytes))
        return given and all(fits(each, arguments[0]) for each in value)
    if origin is collections.abc.Mapping:
        key, item = arguments
        return isinstance(value, collections.abc.Mapping) and all(
            fits(name, key) and fits(each, item) for name, each in value.items()
        )
    if origin is collections.abc.Callable:
        return callable(value)
    if getattr(hint, "_is_protocol", False) or hint.__name__ == "PartitionAssignor":
        return not isinstance(value, type) and fits_protocol(value, hint)
    return isinstance(value, origin or hint)


def fits_protocol(value: Any, hint: type) -> bool:
    """Return True if the value has all public methods of the class."""
    names = [name for name, _ in inspect.getmembers(hint, callable) if not name.startswith("_")]
    return all(callable(getattr(value, name, None)) for name in names)


def is_refused_by_type(name: str, value: Any) -> bool:
    try:
        OPTIONS[name].option_type.check(value)
    except TypeError:
        return True
    except ValueError:
        return False
    raise AssertionError(f"{name} accepts {value!r}")


def test_keys_are_the_options_without_deserializers() -> None:
    assert set(SYNC) == set(OPTIONS) - {*DESERIALIZERS, *ASYNC_ONLY}
    assert set(ASYNC) == set(OPTIONS) - {*DESERIALIZERS, *SYNC_ONLY}
    assert not _options.ConsumerOptions.__required_keys__
    assert not _options.AsyncConsumerOptions.__required_keys__


def test_each_key_has_its_meaning_as_docstring() -> None:
    text = " ".join(" ".join(files().values()).split())
    missing = [
        each.name
        for name, each in OPTIONS.items()
        if name not in DESERIALIZERS and f'"""{" ".join(each.meaning.split())}' not in text
    ]
    assert missing == []


@pytest.mark.parametrize("name", sorted(HINTS))
def test_default_fits_its_annotation(name: str) -> None:
    assert fits(OPTIONS[name].default, HINTS[name])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("bootstrap_servers", given) for given, _ in SERVERS),
        *SPECIAL_VALUES.items(),
        *SECURITY_VALUES,
        ("partition_assignment_strategy", [RangeAssignor, RangeAssignor(), "roundrobin"]),
        ("partition_assignment_strategy", RangeAssignor),
        ("on_error", lambda error: "skip"),
        ("auto_offset_reset", "by_duration:PT1H30M"),
        ("auto_offset_reset_new_partitions", "auto_offset_reset"),
    ],
)
def test_accepted_value_fits_its_annotation(name: str, value: Any) -> None:
    OPTIONS[name].option_type.check(value)
    assert fits(value, HINTS[name]) is ((name, value) not in WIDER_AT_RUN_TIME)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("bootstrap_servers", given) for given in MALFORMED_SERVERS),
        *((name, value) for name, value, _ in WRONG_VALUES if name in HINTS),
    ],
)
def test_value_of_wrong_type_does_not_fit(name: str, value: Any) -> None:
    if not is_refused_by_type(name, value):
        return  # rejected for its value, which a type checker cannot know
    if isinstance(value, bool) or value == [("host", True)]:
        return  # a type checker accepts a bool for an int
    if isinstance(value, float) and math.isnan(value) and HINTS[name] == float | None:
        return
    assert not fits(value, HINTS[name])


def test_options_are_passed_on_as_one_dictionary() -> None:
    options: _options.ConsumerOptions = {"group_id": "billing", "consumer_timeout_ms": 5}
    config = ConsumerConfig.from_kwargs(**options)
    assert config.group.group_id == "billing"
