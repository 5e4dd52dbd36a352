"""The core of process(), step by step and without a cluster."""

from __future__ import annotations

import base64

import pytest

from kohort import OffsetAndMetadata
from kohort.errors import ConfigurationError
from kohort.processing import GiveUp, Retry, Skip, Stop
from kohort.processing._commands import Pause, Resume, Skipped, StopRequest
from kohort.processing._done_set import decode_done, encode_done
from tests.processing.kit import OTHER, TP, commit, make_core, record, records, take_all

BOOM = ValueError("boom")


def test_records_of_a_key_run_one_after_the_other() -> None:
    core = make_core(order="key")
    core.records(TP, [record(0, b"a"), record(1, b"b"), record(2, b"a")], 0.0)
    first, second = take_all(core)
    assert [first.load.offset, second.load.offset] == [0, 1]
    following = core.done(first)
    assert following is first and following.load.offset == 2
    assert core.done(second) is None


def test_records_of_equal_keys_in_two_partitions_run_side_by_side() -> None:
    core = make_core(TP, OTHER, order="key")
    core.records(TP, records(0, key=b"a"), 0.0)
    core.records(OTHER, records(0, key=b"a", tp=OTHER), 0.0)
    assert len(take_all(core)) == 2


@pytest.mark.parametrize("order", ["partition", "key"])
@pytest.mark.parametrize("end", ["error", "stop", "cancelled"])
def test_later_records_do_not_overtake_one_that_stops_process(order: str, end: str) -> None:
    core = make_core(order=order)
    core.records(TP, records(0, 1, key=b"a"), 0.0)
    (lane,) = take_all(core)
    if end == "cancelled":
        core.cancelled(lane)
    else:
        assert core.failed(lane, BOOM if end == "error" else Stop(), 0.0) is None
    core.records(TP, records(2, key=b"a"), 0.0)  # of a poll before the stop
    assert core.take() is None


def test_null_keys_have_no_order() -> None:
    core = make_core(order="key")
    core.records(TP, records(0, 1, 2), 0.0)
    assert len(take_all(core)) == 3


@pytest.mark.parametrize(("order", "lanes"), [("partition", 1), ("key", 2), ("none", 3)])
def test_an_order_decides_how_many_records_run_at_once(order: str, lanes: int) -> None:
    core = make_core(order=order)
    core.records(TP, [record(0, b"a"), record(1, b"b"), record(2, b"a")], 0.0)
    assert len(take_all(core)) == lanes


def test_lanes_take_turns_when_more_are_ready_than_slots() -> None:
    core = make_core(order="key")
    core.records(TP, [record(0, b"a"), record(1, b"a"), record(2, b"b"), record(3, b"b")], 0.0)
    lane, order = core.take(), []
    while lane is not None:
        order.append(lane.load.offset)
        lane = core.done(lane)
    assert order == [0, 2, 1, 3]


@pytest.mark.parametrize("key", [["a"], {"a": 1}, (["a"],), object()])
def test_keys_without_equality_or_hash_are_an_error(key: object) -> None:
    core = make_core(order="key")
    with pytest.raises(ConfigurationError, match="cannot compare"):
        core.records(TP, records(0, key=key), 0.0)


# -- commits -----------------------------------------------------------------------------------


def test_a_commit_is_the_lowest_offset_in_flight() -> None:
    core = make_core(order="none")
    core.records(TP, records(10, 11, 12), 0.0)
    lanes = take_all(core)
    core.done(lanes[1])
    offset, text = commit(core) or (0, "")
    assert offset == 10
    assert decode_done(10, text) == {11}
    core.done(lanes[0])
    assert commit(core) == (12, "")
    core.done(lanes[2])
    assert commit(core) == (13, "")
    assert commit(core) is None


def test_holes_count_as_done() -> None:
    core = make_core(order="none")
    core.records(TP, records(10, 20), 0.0)
    lanes = take_all(core)
    core.done(lanes[1])
    assert decode_done(10, (commit(core) or (0, ""))[1]) == set(range(11, 21))
    core.done(lanes[0])
    assert commit(core, position=25) == (25, "")


def test_the_position_counts_only_when_nothing_is_in_flight() -> None:
    core = make_core()
    core.records(TP, records(10, 11), 0.0)
    assert commit(core, position=30) == (10, "")


def test_order_by_partition_commits_no_done_set() -> None:
    core = make_core()
    core.records(TP, records(0, 1, 2), 0.0)
    lane = core.take()
    assert lane is not None
    core.done(lane)
    assert commit(core) == (1, "")


def test_a_new_owner_skips_what_a_done_set_has() -> None:
    core = make_core(order="none")
    core.assigned(TP, OffsetAndMetadata(10, encode_done(10, 14, {10, 12})))
    core.records(TP, records(10, 11, 12, 13, 14), 0.0)
    assert [lane.load.offset for lane in take_all(core)] == [10, 12, 14]


def test_a_done_set_survives_commits_before_its_records_come() -> None:
    core = make_core()
    core.assigned(TP, OffsetAndMetadata(10, encode_done(10, 14, {10, 12})))
    core.records(TP, records(10), 0.0)
    lane = core.take()
    assert lane is not None
    core.done(lane)
    offset, text = commit(core) or (0, "")
    assert offset == 11
    assert decode_done(11, text) == {11, 13}


def test_a_position_before_the_committed_offset_replays_everything() -> None:
    core = make_core(order="none")
    core.assigned(TP, OffsetAndMetadata(10, encode_done(10, 14, {10, 12})))
    core.records(TP, records(*range(5, 15)), 0.0)
    assert len(take_all(core)) == 10


@pytest.mark.parametrize("text", ["", "abc", "k1:", "k1:%%", "k2:AAAA", "k1:" + "A" * 4096])
def test_foreign_metadata_is_ignored(text: str) -> None:
    assert decode_done(7, text) == set()


def test_a_done_set_of_a_full_window_fits_into_the_metadata() -> None:
    window = 20_000
    core = make_core(order="none", window=window)
    core.records(TP, records(*range(window)), 0.0)
    lanes = take_all(core)
    core.done(lanes[-1])
    _, text = commit(core) or (0, "")
    assert len(text) <= 4096
    assert decode_done(0, text) == {window - 1}


def test_a_done_set_is_a_bitmap_in_base64() -> None:
    assert encode_done(100, 103, {100, 102}) == "k1:" + base64.b64encode(b"\x02").decode()
    assert encode_done(0, 17, set(range(16))) == "k1:" + base64.b64encode(b"\0\0\x01").decode()
    assert encode_done(5, 5, ()) == encode_done(5, 7, {5, 6}) == ""


def test_a_refused_done_set_is_left_out() -> None:
    core = make_core(order="none")
    core.records(TP, records(*range(100)), 0.0)
    core.done(take_all(core)[-1])
    offsets = core.offsets({})
    assert core.refuse_done_sets(offsets)
    assert commit(core) == (0, "")
    assert not core.refuse_done_sets({TP: OffsetAndMetadata(0)})


# -- the window --------------------------------------------------------------------------------


def test_a_full_partition_is_paused_and_resumed_at_half() -> None:
    core = make_core(order="none", window=10)
    core.records(TP, records(*range(14)), 0.0)
    assert list(core.commands) == [Pause(TP)]
    core.commands.clear()
    lanes = take_all(core)
    assert [lane.load.offset for lane in lanes] == list(range(10))
    for lane in lanes[1:]:
        core.done(lane)
    assert not core.commands, "offset 0 holds the window"
    core.done(lanes[0])
    assert core.take() is not None or core.running
    assert list(core.commands) == [Resume(TP)]


def test_the_window_is_kept_across_holes() -> None:
    core = make_core(order="none", window=10)
    core.records(TP, records(0, 1, 1_000_000, 1_000_001), 0.0)
    lanes = take_all(core)
    assert [lane.load.offset for lane in lanes] == [0, 1]
    core.done(lanes[0])
    following = core.done(lanes[1])
    assert following is not None and following.load.offset == 1_000_000


def test_large_records_pause_a_partition_by_their_bytes() -> None:
    core = make_core(TP, OTHER, order="none", max_bytes=10_000)
    large = [record(n) for n in range(8)]
    for each in large:
        object.__setattr__(each, "value", bytes(1000))
        object.__setattr__(each, "_sizes", None)
    core.records(TP, large[:4], 0.0)
    assert not core.commands
    core.records(TP, large[4:], 0.0)
    assert list(core.commands) == [Pause(TP)]
    core.commands.clear()
    lanes = take_all(core)
    assert len(lanes) == 8
    for lane in lanes[:5]:
        core.done(lane)
    assert not core.commands
    for lane in lanes[5:]:
        core.done(lane)
    assert list(core.commands) == [Resume(TP)]


# -- failures ----------------------------------------------------------------------------------


def test_a_failed_record_sleeps_without_its_slot() -> None:
    core = make_core(order="key", retries=(Retry(3, first=5.0),))
    core.records(TP, [record(0, b"a"), record(1, b"b"), record(2, b"a")], 0.0)
    lane = core.take()
    assert lane is not None
    other = core.failed(lane, BOOM, 1.0)
    assert other is not None and other.load.offset == 1
    assert core.done(other) is None
    assert core.next_deadline() == 6.0
    core.tick(5.9, 0.0)
    assert core.take() is None
    core.tick(6.0, 0.0)
    again = core.take()
    assert again is lane and again.load.offset == 0 and again.attempt == 2
    following = core.done(again)
    assert following is not None and (following.load.offset, following.attempt) == (2, 1)


def test_the_last_attempt_stops_process_by_default() -> None:
    core = make_core(retries=(Retry(2, first=0.0),))
    core.records(TP, records(0, 1), 0.0)
    lane = core.take()
    assert lane is not None
    core.failed(lane, BOOM, 0.0)
    core.tick(0.0, 0.0)
    lane = core.take()
    assert lane is not None
    assert core.failed(lane, BOOM, 0.0) is None
    assert core.commands[-1] == StopRequest(BOOM, lane.load, 2)
    assert commit(core) == (0, "")


def test_the_first_matching_retry_decides() -> None:
    retries = (Retry(None, on=OSError, first=1.0), Retry(1))
    core = make_core(order="none", retries=retries, failed="skip")
    core.records(TP, records(0, 1), 0.0)
    away, bad = take_all(core)
    core.failed(bad, BOOM, 0.0)
    for attempt in range(1, 100):
        core.failed(away, ConnectionError(), core.now)
        core.tick(core.next_deadline() or 0.0, 0.0)
        assert core.take() is away
        assert away.attempt == attempt + 1
    assert [each.load.offset for each in core.commands if isinstance(each, Skipped)] == [1]


def test_pauses_grow_up_to_the_longest() -> None:
    retry = Retry(None, first=1.0, factor=3.0, longest=20.0)
    assert [retry.pause(attempt) for attempt in range(1, 6)] == [1.0, 3.0, 9.0, 20.0, 20.0]
    assert retry.pause(10_000) == 20.0


@pytest.mark.parametrize("error", [Skip(), BOOM])
def test_a_skipped_record_is_done(error: Exception) -> None:
    core = make_core(failed="skip")
    core.records(TP, records(0, 1), 0.0)
    lane = core.take()
    assert lane is not None
    following = core.failed(lane, error, 0.0)
    assert following is not None and following.load.offset == 1
    assert commit(core) == (1, "")


def test_stop_leaves_the_record_in_flight() -> None:
    core = make_core(retries=(Retry(5),), failed="skip")
    core.records(TP, records(0, 1), 0.0)
    lane = core.take()
    assert lane is not None
    core.failed(lane, Stop(), 0.0)
    assert core.commands[-1] == StopRequest(None, lane.load, 1)
    assert commit(core) == (0, "")


def test_give_up_passes_the_cause_to_the_policy_at_once() -> None:
    core = make_core(retries=(Retry(5),), failed="call")
    core.records(TP, records(0, 1), 0.0)
    lane = core.take()
    assert lane is not None
    error = GiveUp()
    error.__cause__ = BOOM
    assert core.failed(lane, error, 0.0) is lane
    assert (lane.error, lane.attempt) == (BOOM, 1)


def test_a_policy_that_raises_is_called_again_without_limit() -> None:
    core = make_core(failed="call")
    core.records(TP, records(0, 1), 0.0)
    lane = core.take()
    assert lane is not None
    core.failed(lane, BOOM, 0.0)
    for _ in range(100):
        assert core.failed(lane, OSError("dead letters are away"), core.now) is None
        core.tick(core.next_deadline() or 0.0, 0.0)
        assert core.take() is lane
        assert (lane.error, lane.attempt) == (BOOM, 1)
    following = core.done(lane)
    assert following is not None and (following.error, following.load.offset) == (None, 1)


# -- rebalances --------------------------------------------------------------------------------


def test_a_closed_partition_starts_nothing_and_keeps_its_results() -> None:
    core = make_core(order="key", retries=(Retry(3),))
    core.records(TP, [record(n, b"%d" % (n % 2)) for n in range(6)], 0.0)
    first, second = core.take(), core.take()
    assert first is not None and second is not None
    core.close([TP])
    assert core.running_of([TP]) and core.done(second) is None
    assert core.failed(first, BOOM, 0.0) is None
    assert not core.running_of([TP]) and core.next_deadline() is None
    offset, text = commit(core) or (0, "")
    assert (offset, set(decode_done(0, text))) == (0, {1})


def test_results_of_a_dropped_partition_are_ignored() -> None:
    core = make_core(order="none")
    core.records(TP, records(0, 1), 0.0)
    lane = take_all(core)[0]
    core.drop([TP])
    core.assigned(TP)
    core.records(TP, records(0, 1), 0.0)
    core.done(lane)
    assert commit(core) == (0, "")


@pytest.mark.parametrize("order", ["partition", "key"])
def test_a_lane_waits_for_a_handler_of_its_former_partition(order: str) -> None:
    core = make_core(order=order)
    core.records(TP, records(0, 1, key=b"a"), 0.0)
    lane = core.take()
    assert lane is not None
    core.drop([TP])
    core.assigned(TP)
    core.records(TP, records(0, 1, key=b"a"), 0.0)
    assert core.take() is None, "a handler of the key still runs"
    following = core.done(lane)
    assert following is not None and following.load.offset == 0
    assert commit(core) == (0, "")
    assert core.done(following) is following
    assert core.done(following) is None
    assert commit(core) == (2, "")


@pytest.mark.parametrize("order", ["partition", "key", "none"])
def test_a_position_that_went_back_replays_the_records(order: str) -> None:
    core = make_core(order=order)
    core.records(TP, records(5, 6, 7, key=b"a"), 0.0)
    running = core.take()
    assert running is not None
    core.records(TP, records(2, 3, key=b"a"), 0.0)
    lane = core.done(running)
    handled = []
    while lane is not None:
        handled.append(lane.load.offset)
        lane = core.done(lane)
    assert handled == [2, 3]
    assert commit(core) == (4, "")


def test_partitions_that_come_during_a_stop_are_paused() -> None:
    core = make_core()
    core.stop()
    core.assigned(OTHER)
    core.records(OTHER, records(0, tp=OTHER), 0.0)
    assert Pause(OTHER) in core.commands
    assert core.take() is None
    assert core.offsets({OTHER: 1}) == {}


def test_records_of_unknown_partitions_are_dropped() -> None:
    core = make_core()
    core.drop([TP])
    core.records(TP, records(0), 0.0)
    assert core.take() is None and core.offsets({TP: 1}) == {}


# -- time --------------------------------------------------------------------------------------


def test_a_delay_holds_records_until_their_time() -> None:
    core = make_core(delay=60.0)
    core.tick(100.0, 1_000_000.0)
    late = [record(0), record(1)]
    for each, at in zip(late, (999_950, 999_990), strict=True):
        object.__setattr__(each, "timestamp", at * 1000)
    core.records(TP, late, 100.0)
    assert core.take() is None
    assert core.next_deadline() == 110.0
    core.tick(110.0, 1_000_010.0)
    lane = core.take()
    assert lane is not None and lane.load.offset == 0
    assert core.done(lane) is None
    assert core.next_deadline() == 150.0
    core.tick(150.0, 1_000_050.0)
    lane = core.take()
    assert lane is not None and lane.load.offset == 1


def test_records_in_flight_for_long_are_stuck() -> None:
    core = make_core(order="none", retries=(Retry(None, first=1000.0, longest=1000.0),))
    core.records(TP, records(0, 1), 0.0)
    running, sleeping = core.take(), core.take()
    assert running is not None and sleeping is not None
    core.failed(sleeping, BOOM, 0.0)
    core.tick(400.0, 0.0)
    assert set(core.stuck(100.0)) == {running, sleeping}
    assert not set(core.stuck(-1.0))


def test_a_retried_record_is_in_flight_while_it_waits_for_a_slot() -> None:
    core = make_core(retries=(Retry(None, first=1.0),))
    core.records(TP, records(0), 0.0)
    lane = core.take()
    assert lane is not None
    core.failed(lane, ValueError(), 5.0)
    assert list(core.stuck(0.0)) == [lane]
    core.tick(6.0, 6.0)
    assert list(core.ready) == list(core.stuck(0.0)) == [lane]
    assert core.take() is lane and (lane.started, lane.called()) == (0.0, 6.0)


def test_a_record_that_was_put_back_is_in_flight_from_its_first_call() -> None:
    core = make_core(retries=(Retry(None, first=1.0),))
    core.records(TP, records(0), 0.0)
    for started in (None, 7.0):  # the second time its handler has failed
        lane = core.take()
        assert lane is not None
        core.put_back(lane)
        assert lane.started == started
        core.tick(7.0, 7.0)
        lane = core.take()
        assert lane is not None
        core.failed(lane, BOOM, 7.0)
        core.tick(9.0, 9.0)
