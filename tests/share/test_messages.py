"""The parts of requests and responses of a share consumer."""

from __future__ import annotations

from kohort.protocol.messages import ShareFetchResponse
from kohort.share.client._messages import acquired_ranges
from kohort.share.machine._acquired import AcquiredRange


def test_neighbours_with_one_delivery_count_are_one_range() -> None:
    acquired = [(0, 4, 1), (5, 5, 1), (6, 9, 2), (11, 11, 2), (12, 20, 2)]
    found = acquired_ranges(
        ShareFetchResponse.AcquiredRecords(
            first_offset=first, last_offset=last, delivery_count=count
        )
        for first, last, count in acquired
    )
    assert found == (
        AcquiredRange(0, 5, 1),
        AcquiredRange(6, 9, 2),
        AcquiredRange(11, 20, 2),
    )
