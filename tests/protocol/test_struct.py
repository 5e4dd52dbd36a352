"""Messages as Python objects."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kohort.protocol import Request, Response, VersionRange, messages
from kohort.protocol._struct import field, version_range
from kohort.protocol._types import Int32
from kohort.protocol.messages import (
    FetchResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    MetadataRequest,
    ResponseHeader,
)

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", messages.__all__)
def test_a_constructor_takes_its_fields_and_no_other_keyword(name: str) -> None:
    cls: Any = getattr(messages, name)
    made = cls()
    for spec in cls._fields:
        assert getattr(made, spec.name) == spec.make_default()
    with pytest.raises(TypeError, match="unexpected keyword argument 'no_such_field'"):
        cls(no_such_field=1)
    with pytest.raises(TypeError, match="positional argument"):
        cls(1)
    with pytest.raises(AttributeError):
        made.no_such_field = 1


def test_unknown_keyword_of_the_first_message_is_refused() -> None:
    class FreshResponse(Response, api_key=1, versions="0"):
        number: Int32 = field(default=5)

    make: Any = FreshResponse
    with pytest.raises(TypeError, match="unexpected keyword argument 'nmber'"):
        make(nmber=1)
    assert make().number == 5


def test_a_constructor_is_compiled_for_the_second_message() -> None:
    class NewResponse(Response, api_key=1, versions="0"):
        number: Int32 = field(default=5)
        numbers: list[Int32] = field(default_factory=list)

    first = NewResponse(number=7)
    assert "__init__" not in vars(NewResponse)
    second = NewResponse(number=7)
    assert "__init__" in vars(NewResponse)
    assert first == second
    assert first.numbers is not second.numbers


def test_each_message_has_lists_of_its_own() -> None:
    first, second = MetadataRequest(), MetadataRequest()
    assert first.topics is not None
    first.topics.append(MetadataRequest.MetadataRequestTopic(name="t"))
    assert second.topics == []


def test_messages_compare_by_value() -> None:
    assert HeartbeatRequest(group_id="g") == HeartbeatRequest(group_id="g")
    assert HeartbeatRequest(group_id="g") != HeartbeatRequest(group_id="h")
    assert HeartbeatResponse() != ResponseHeader()
    topic = MetadataRequest.MetadataRequestTopic
    assert MetadataRequest(topics=[topic(name="a")]) == MetadataRequest(topics=[topic(name="a")])
    assert MetadataRequest(topics=[topic(name="a")]) != MetadataRequest(topics=[topic(name="b")])
    with pytest.raises(TypeError, match="unhashable"):
        hash(HeartbeatRequest())


def test_a_message_shows_its_fields() -> None:
    assert repr(HeartbeatResponse(error_code=27)) == (
        "HeartbeatResponse(throttle_time_ms=0, error_code=27)"
    )
    protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range")
    assert repr(protocol) == (
        "JoinGroupRequest.JoinGroupRequestProtocol(name='range', metadata=b'')"
    )


def test_a_message_can_be_copied_and_pickled() -> None:
    message = FetchResponse(responses=[FetchResponse.FetchableTopicResponse(topic="t")])
    assert pickle.loads(pickle.dumps(message)) == message == copy.deepcopy(message)


def test_a_request_knows_its_response() -> None:
    assert HeartbeatRequest.response is HeartbeatResponse
    for name in messages.__all__:
        cls = getattr(messages, name)
        if issubclass(cls, Request):
            assert issubclass(cls.response, Response)


def test_version_ranges() -> None:
    assert version_range("4-18") == VersionRange(4, 18)
    assert str(version_range("4-18")) == "4-18"
    assert str(version_range("3")) == "3"
    assert 40 in version_range("12+")
    assert 11 not in version_range("12+")
    assert 0 not in version_range("none")
    for wrong in ("", "a", "1-", "-1", "1+2"):
        with pytest.raises(ValueError, match="not a range of versions"):
            version_range(wrong)


def test_importing_the_messages_compiles_nothing() -> None:
    """A process that uses five APIs must not pay for fifty."""
    program = (
        "import kohort.protocol._compile as c, kohort.protocol.messages as m;"
        "assert c.encoder.cache_info().currsize == c.decoder.cache_info().currsize == 0;"
        "assert not any('__init__' in vars(getattr(m, n)) for n in m.__all__)"
    )
    subprocess.run([sys.executable, "-c", program], check=True, cwd=ROOT, timeout=60)
