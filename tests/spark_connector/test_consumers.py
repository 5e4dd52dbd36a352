"""The consumers of readers: without the group, with fetch sizes that suit their ranges."""

from __future__ import annotations

import pytest

from kohort.spark_connector._consumers import FETCH_BYTES, FETCH_WAIT_MS, reader_properties

WAIT, FETCH = "fetch.max.wait.ms", "max.partition.fetch.bytes"


@pytest.mark.parametrize(
    ("offsets", "size"), [(0, 128 << 10), (400, 128 << 10), (75_000, 1 << 20), (10**9, 4 << 20)]
)
def test_a_fetch_is_no_larger_than_what_is_to_be_read_is_worth(offsets: int, size: int) -> None:
    given = {"bootstrap.servers": "h:1", "group.id": "g", "group.instance.id": "i"}
    found = reader_properties(given, offsets)
    assert found == {"bootstrap.servers": "h:1", WAIT: FETCH_WAIT_MS, FETCH: size}
    assert size in [each for _, each in FETCH_BYTES]


def test_what_the_user_has_chosen_stays_by_whatever_name() -> None:
    given = {"fetch.wait.max.ms": "5", "fetch.message.max.bytes": "7"}
    assert reader_properties(given, 10) == given
