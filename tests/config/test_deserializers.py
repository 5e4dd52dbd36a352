"""The forms of a deserializer."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kohort.config import ConsumerConfig
from kohort.errors import InvalidOptionError


class WithHeaders:
    def deserialize(self, topic: str, headers: Any, data: bytes) -> Any:
        return topic, headers, data


class WithoutHeaders:
    def deserialize(self, topic: str, data: bytes) -> Any:
        return topic, data


class Misfit:
    def deserialize(self) -> None:
        """Accept neither of the two signatures."""


def of(deserializer: Any) -> Any:
    return ConsumerConfig.from_kwargs(value_deserializer=deserializer).deserialize_value


def test_no_deserializer_leaves_bytes_as_they_are() -> None:
    assert of(None) is None


def test_a_callable_gets_the_bytes() -> None:
    assert of(json.loads)("t", [], b'{"a": 1}') == {"a": 1}
    assert of(bytes.decode)("t", [], b"x") == "x"
    assert of(int)("t", [], b"12") == 12


def test_an_object_gets_the_topic_and_the_headers_too() -> None:
    assert of(WithHeaders())("t", [("h", b"1")], b"x") == ("t", [("h", b"1")], b"x")
    assert of(WithoutHeaders())("t", [("h", b"1")], b"x") == ("t", b"x")


@pytest.mark.parametrize("deserializer", [json.loads, WithHeaders(), WithoutHeaders()])
def test_none_stays_none_without_a_call(deserializer: Any) -> None:
    assert of(deserializer)("t", [], None) is None


@pytest.mark.parametrize("deserializer", [Misfit(), WithHeaders, 5, lambda a, b: a])
def test_what_cannot_be_called_with_bytes_is_refused_at_once(deserializer: Any) -> None:
    with pytest.raises(InvalidOptionError, match="value_deserializer="):
        of(deserializer)


def test_what_a_deserializer_raises_comes_out_as_it_is() -> None:
    with pytest.raises(json.JSONDecodeError):
        of(json.loads)("t", [], b"{")
