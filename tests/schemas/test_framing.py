"""The id of a schema in the bytes or in a header."""

from __future__ import annotations

from uuid import UUID

import pytest

from kohort.schemas import FramingError
from kohort.schemas._framing import KEY_HEADER, VALUE_HEADER, unframe

GUID = UUID("89791762-2336-4186-9674-299b90a802e2")
V1 = b"\x01" + GUID.bytes


def test_number_before_the_data() -> None:
    assert unframe(b"\0\0\0\1\2body", (), VALUE_HEADER) == (258, b"body", None)


def test_guid_before_the_data() -> None:
    assert unframe(V1 + b"body", None, VALUE_HEADER) == (GUID, b"body", None)


def test_guid_in_the_header_of_the_value_leaves_the_data() -> None:
    headers = (("x", None), (KEY_HEADER, b"\0\0\0\0\1"), (VALUE_HEADER, V1 + b"\2"))
    assert unframe(b"\0\0\0\0\7body", headers, VALUE_HEADER) == (GUID, b"\0\0\0\0\7body", b"\2")
    assert unframe(b"body", headers, KEY_HEADER) == (1, b"body", b"")


@pytest.mark.parametrize(
    "data", [b"", b"\0\0\0\1", b"\x01" + bytes(15), b"{}", b"\x02" + bytes(20)]
)
def test_other_bytes_raise_framing_error(data: bytes) -> None:
    with pytest.raises(FramingError, match="have no schema id"):
        unframe(data, (), VALUE_HEADER)
