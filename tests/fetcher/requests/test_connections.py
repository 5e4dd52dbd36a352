"""The choice of a connection for a fetch, and the delay of a retry."""

from __future__ import annotations

import random
from typing import Any

import pytest

from kohort.config import FetchConfig
from kohort.fetcher._retries import Retries
from kohort.fetcher.requests._connections import (
    EXTRA_POLL_MARGIN,
    LONG_POLL_AFTER,
    LongPolls,
    NodeConnections,
)
from kohort.transport import Backoff


class TestLanes:
    def test_the_main_lane_comes_first(self) -> None:
        connections = NodeConnections(1)
        choice = connections.choose(10.0, 0.5)
        assert (choice.connection, choice.max_wait) == (connections.main, 0.5)

    def test_a_fetch_that_may_just_be_coming_in_is_waited_for(self) -> None:
        connections = NodeConnections(1)
        connections.main.start(10.0, 0.5)
        choice = connections.choose(10.0 + LONG_POLL_AFTER / 2, 0.5)
        assert choice.connection is None
        assert choice.retry_at == 10.0 + LONG_POLL_AFTER

    def test_beside_a_parked_fetch_go_short_ones_that_end_before_it(self) -> None:
        connections = NodeConnections(1)
        connections.main.start(10.0, 0.5)
        waits, now = [], 10.1
        while (choice := connections.choose(now, 0.5)).connection is connections.extra:
            waits.append(choice.max_wait)
            connections.extra.start(now, choice.max_wait)
            now += choice.max_wait
            connections.extra.finish()
        assert waits[:4] == [LONG_POLL_AFTER * factor for factor in (1, 2, 4, 8)]
        assert len(waits) == 5
        assert abs(now - (10.5 - EXTRA_POLL_MARGIN)) < 1e-9

    def test_long_poll_doubles_until_there_is_news(self) -> None:
        connections, waits, now = NodeConnections(1), [], 10.0
        for number in range(9):
            choice = connections.choose(now, 0.5)
            assert choice.connection is connections.main
            waits.append(choice.max_wait)
            connections.main.start(now, choice.max_wait)
            now += choice.max_wait
            connections.main.finish()
            connections.note_idle(connections.main, 10.0)
            if number == 6:
                connections.note_news()
        assert waits == [0.5, 1, 2, 4, 8, 10, 10, 0.5, 1]

    def test_extra_polls_are_short_beside_a_longer_long_poll(self) -> None:
        connections = NodeConnections(1)
        connections.main.start(10.0, 10.0)
        waits, now = [], 10.1
        while (choice := connections.choose(now, 0.5)).connection is connections.extra:
            waits.append(choice.max_wait)
            connections.extra.start(now, choice.max_wait)
            now += choice.max_wait
            connections.extra.finish()
            connections.note_idle(connections.extra, 10.0)
        assert waits[:5] == [LONG_POLL_AFTER, 2 * LONG_POLL_AFTER, 4 * LONG_POLL_AFTER, 0.1, 0.1]
        assert max(waits) == 0.1
        assert 19.9 < now < 20.0
        connections.main.finish()
        assert connections.choose(now, 0.5).max_wait == 0.5

    @pytest.mark.parametrize(
        ("options", "seconds"),
        [
            ({}, (0.5, 10.0)),
            ({"fetch_max_wait_ms": 500}, (0.5, 0.5)),
            ({"fetch_max_wait_ms": 20_000}, (20.0, 20.0)),
            ({"fetch_min_bytes": 2}, (0.5, 0.5)),
            ({"request_timeout_ms": 6000}, (0.5, 3.0)),
            ({"request_timeout_ms": 400}, (0.2, 0.2)),
        ],
    )
    def test_long_polls_have_the_given_time(
        self, options: dict[str, Any], seconds: tuple[float, float]
    ) -> None:
        assert LongPolls.of(FetchConfig(**options)) == seconds

    def test_extra_poll_is_short_again_after_records(self) -> None:
        connections = NodeConnections(1)
        connections.main.start(10.0, 0.5)
        waits = []
        for number in range(6):
            choice = connections.choose(10.1 + number / 1000, 0.5)
            waits.append(choice.max_wait)
            connections.extra.start(10.1 + number / 1000, choice.max_wait)
            connections.extra.finish()
            if number == 2:
                connections.note_records(connections.main)
            if number == 3:
                connections.note_records(connections.extra)
        assert waits == [LONG_POLL_AFTER * factor for factor in (1, 2, 4, 8, 1, 2)]

    def test_extra_poll_is_short_again_in_the_next_long_poll(self) -> None:
        connections = NodeConnections(1)
        for begun in (10.0, 10.5):
            connections.main.start(begun, 0.5)
            choice = connections.choose(begun + 0.1, 0.5)
            assert choice.max_wait == LONG_POLL_AFTER
            connections.extra.start(begun + 0.1, choice.max_wait)
            connections.extra.finish()
            connections.main.finish()

    def test_shortly_before_its_end_the_main_lane_is_waited_for(self) -> None:
        connections = NodeConnections(1)
        connections.main.start(10.0, 0.5)
        assert connections.choose(10.51 - EXTRA_POLL_MARGIN, 0.5) == (
            None,
            0.0,
            10.5 + LONG_POLL_AFTER,
        )

    def test_each_lane_has_one_fetch_in_flight(self) -> None:
        connections = NodeConnections(1)
        connections.main.start(10.0, 0.5)
        connections.extra.start(10.1, 0.3)
        assert connections.choose(10.2, 0.5) == (None, 0.0, float("inf"))
        connections.main.finish()
        assert connections.choose(10.2, 0.5).connection is connections.main

    def test_fetch_waits_start_short_beside_full_partitions(self) -> None:
        connections = NodeConnections(1)
        waits = [connections.choose(10.0, 0.5, has_waiting=True).max_wait for _ in range(7)]
        assert waits == [LONG_POLL_AFTER * factor for factor in (1, 2, 4, 8, 16)] + [0.5, 0.5]
        connections.note_records(connections.main)
        assert connections.choose(10.0, 0.5, has_waiting=True).max_wait == LONG_POLL_AFTER
        assert connections.choose(10.0, 0.5).max_wait == 0.5

    def test_a_fetch_whose_answer_takes_long_is_not_waited_for(self) -> None:
        connections = NodeConnections(1)
        choice = connections.choose(10.0, 0.5, has_waiting=True)
        connections.main.start(10.0, choice.max_wait)
        choice = connections.choose(10.001, 0.5)
        assert (choice.connection, choice.retry_at) == (None, 10.0 + LONG_POLL_AFTER)
        overdue_at = connections.main.until + LONG_POLL_AFTER
        assert connections.choose(10.0 + LONG_POLL_AFTER, 0.5) == (None, 0.0, overdue_at)
        choice = connections.choose(overdue_at, 0.5)
        assert (choice.connection, choice.max_wait) == (connections.extra, LONG_POLL_AFTER)

    def test_a_broker_in_back_off_is_left_alone(self) -> None:
        connections = NodeConnections(1)
        connections.not_before = 12.0
        assert connections.choose(11.0, 0.5) == (None, 0.0, 12.0)
        assert connections.choose(12.0, 0.5).connection is connections.main


class TestRetries:
    def make(self) -> Retries[str]:
        return Retries(Backoff(0.1, 1.0), random.Random(3))

    def test_pauses_double_up_to_a_limit(self) -> None:
        retries = self.make()
        pauses = [retries.failed("a", 5.0) - 5.0 for _ in range(8)]
        for pause, nominal in zip(pauses, [0.1, 0.2, 0.4, 0.8, 1, 1, 1, 1], strict=True):
            assert nominal * 0.79 < pause < nominal * 1.21
        assert retries.not_before("a") == 5.0 + pauses[-1]

    def test_a_success_or_a_new_epoch_starts_over(self) -> None:
        retries = self.make()
        for _ in range(5):
            retries.failed("a", 5.0, epoch=1)
        assert retries.not_before("a", epoch=2) == 0.0
        assert retries.failed("a", 5.0, epoch=2) < 5.2
        retries.succeeded("a")
        assert retries.not_before("a", epoch=2) == 0.0

    def test_what_is_gone_is_forgotten(self) -> None:
        retries = self.make()
        retries.failed("a", 5.0)
        retries.failed("b", 5.0)
        retries.keep_only({"b"})
        assert retries.not_before("a") == 0.0
        assert retries.not_before("b") > 0.0
