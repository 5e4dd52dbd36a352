"""Partitions that Spark's thread and the member's thread share, without a group."""

from __future__ import annotations

import threading

from kohort import TopicPartition
from kohort.spark_connector._offsets import Offsets, StreamOffset
from kohort.spark_connector.member._member_partitions import (
    BatchPlan,
    BatchView,
    MemberPartitions,
    ReadablePartition,
    ReleasedPartitions,
)
from kohort.spark_connector.member._partition_state import OffsetCommits

DEADLINE = 90.0
FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)
BOTH = frozenset({FIRST, SECOND})
BATCH = StreamOffset({FIRST: 0, SECOND: 0}, {FIRST: 5, SECOND: 0})


def assigned() -> MemberPartitions:
    """Return two partitions, assigned once, with start 0."""
    partitions = MemberPartitions()
    partitions.set_all_partitions(BOTH)
    partitions.add_assigned(BOTH)
    starts = {tp: ReadablePartition(epoch=1, start=0, committed_by="") for tp in BOTH}
    partitions.set_starts(starts, {})
    return partitions


def nothing(view: BatchView) -> Offsets:
    return {}


def planned(partitions: MemberPartitions) -> BatchPlan:
    """Begin a batch that reads the first partition."""
    return partitions.begin_batch(nothing, lambda view: BatchPlan(BATCH, view.readable.keys()))


def test_batch_reads_partitions_with_new_records_only() -> None:
    plan = planned(assigned())
    assert plan.partitions == BOTH
    assert plan.in_flight() == {FIRST}


def test_revocation_waits_for_the_batch_in_flight() -> None:
    partitions = assigned()
    planned(partitions)
    is_released = threading.Event()
    readable: list[object] = []

    def finish() -> None:
        while partitions.readable() and not is_released.wait(0.001):
            pass
        readable.append(partitions.readable())
        partitions.finish_batch(lambda view: {FIRST: 5})

    thread = threading.Thread(target=finish)
    thread.start()
    released = partitions.release(BOTH, DEADLINE)
    is_released.set()
    thread.join(DEADLINE)
    assert readable == [{}]
    assert released == ReleasedPartitions({FIRST: 5}, frozenset(), is_ending=False)
    assert partitions.existing() == {}


class WatchedLock(threading.Condition):
    """A lock that notes whether one thread found it held at its first attempt."""

    def __init__(self) -> None:
        super().__init__()
        self.watched: threading.Thread | None = None
        self.was_held: bool | None = None
        self.attempted = threading.Event()

    def __enter__(self) -> bool:
        if threading.current_thread() is not self.watched or self.attempted.is_set():
            return super().__enter__()
        is_free = self.acquire(blocking=False)
        self.was_held = not is_free
        self.attempted.set()
        return is_free or self.acquire()


def test_revocation_waits_while_a_batch_begins() -> None:
    """A release between the plan and its mark as in flight would not wait for the batch."""
    partitions = assigned()
    lock = partitions._changed = WatchedLock()
    released: list[ReleasedPartitions] = []

    def release() -> None:
        released.append(partitions.release(BOTH, DEADLINE))

    def plan(view: BatchView) -> BatchPlan:
        thread.start()
        assert lock.attempted.wait(DEADLINE)
        return BatchPlan(BATCH, view.readable.keys())

    thread = lock.watched = threading.Thread(target=release)
    partitions.begin_batch(nothing, plan)
    partitions.finish_batch(lambda view: {FIRST: 5})
    thread.join(DEADLINE)
    assert lock.was_held
    assert released == [ReleasedPartitions({FIRST: 5}, frozenset(), is_ending=False)]


def test_revocation_after_its_time_reports_the_unfinished_batch() -> None:
    partitions = assigned()
    planned(partitions)
    assert partitions.release(BOTH, 0.0).unfinished == {FIRST}


def test_finished_offsets_of_revoked_partition_are_not_committed() -> None:
    partitions = assigned()
    planned(partitions)
    partitions.remove([FIRST])
    partitions.finish_batch(lambda view: {FIRST: 5, SECOND: 0})
    assert partitions.offsets_to_commit() == {SECOND: 0}


def test_start_of_an_earlier_assignment_is_left_out() -> None:
    partitions = assigned()
    partitions.remove([FIRST])
    partitions.add_assigned([FIRST])
    partitions.set_starts({FIRST: ReadablePartition(1, 7, committed_by=None)}, {})
    assert partitions.without_start() == {FIRST: 2}


def test_void_partitions_start_at_the_beginning() -> None:
    partitions = assigned()
    partitions.set_starts({FIRST: ReadablePartition(1, 7, committed_by="")}, {})
    found = partitions.begin_batch(nothing, lambda view: BatchPlan(None, void={FIRST}))
    assert found.in_flight() == set()
    assert partitions.readable()[FIRST] == ReadablePartition(1, 0, committed_by=None)


def test_ends_of_some_partitions_answer_no_request() -> None:
    partitions = assigned()
    request = partitions.request_ends(urgent=True)
    partitions.set_ends({FIRST: 5}, {}, request)
    assert partitions.are_ends_urgent
    assert partitions.wait_for_ends(request, 0.0) is None
    partitions.set_ends({FIRST: 5, SECOND: 1}, {}, request)
    assert partitions.wait_for_ends(request, 0.0) == {FIRST: 5, SECOND: 1}
    assert not partitions.are_ends_urgent


def test_ends_wait_for_partitions_that_are_replaced() -> None:
    partitions = assigned()
    request = partitions.request_ends(urgent=True)
    partitions.set_ends({FIRST: 5, SECOND: 1}, {}, request)
    partitions.remove(BOTH)  # the topic was recreated: its new partitions follow
    assert partitions.wait_for_ends(request, 0.0) is None
    partitions.add_assigned(BOTH)
    assert partitions.wait_for_ends(request, 0.0) is None
    partitions.set_ends({FIRST: 0, SECOND: 2}, {}, request)
    assert partitions.wait_for_ends(request, 0.0) == {FIRST: 0, SECOND: 2}


def test_ends_wait_for_the_lookup_of_new_partitions() -> None:
    partitions = MemberPartitions()
    partitions.set_all_partitions([])  # the topic was created after this lookup
    request = partitions.request_ends(urgent=True)
    partitions.add_assigned([FIRST])
    assert partitions.wait_for_ends(request, 0.0) is None
    assert not partitions.has_all_starts
    partitions.set_all_partitions([FIRST])
    assert partitions.wait_for_ends(request, 0.0) is None
    partitions.set_ends({FIRST: 3}, {}, request)
    assert partitions.wait_for_ends(request, 0.0) == {FIRST: 3}


def test_partitions_of_a_deleted_topic_need_no_ends() -> None:
    partitions = MemberPartitions()
    partitions.set_all_partitions([FIRST])
    request = partitions.request_ends(urgent=True)
    partitions.add_assigned(BOTH)
    partitions.set_all_partitions([FIRST])  # the group still assigns the other one
    partitions.set_ends({FIRST: 3}, {}, request)
    assert partitions.wait_for_ends(request, 0.0) == {FIRST: 3}


def test_commit_that_returns_to_the_committed_offset_is_kept() -> None:
    """After the restore of a checkpoint, the first commits are below the committed offset."""
    commits = OffsetCommits()
    commits.mark_committed({FIRST: 14}, BOTH)
    commits.add({FIRST: 14})
    assert commits.pending == {}
    commits.add({FIRST: 13})  # its request is in flight when the next batch has finished
    commits.add({FIRST: 14})
    commits.mark_committed({FIRST: 13}, BOTH)
    assert commits.pending == {FIRST: 14}


def test_member_without_partitions_has_ends_after_its_next_look_only() -> None:
    partitions = MemberPartitions()
    partitions.set_all_partitions(BOTH)
    partitions.add_assigned(())
    request = partitions.request_ends()
    assert partitions.wait_for_ends(request, 0.0) is None
    partitions.set_ends({}, {}, request)
    assert partitions.wait_for_ends(request, 0.0) == {}


def test_look_is_complete_only_with_all_starts() -> None:
    partitions = MemberPartitions()
    partitions.set_all_partitions(BOTH)
    partitions.add_assigned(BOTH)
    partitions.set_ends({FIRST: 5, SECOND: 0}, {}, partitions.request_ends())
    look = partitions.begin_batch(nothing, lambda view: BatchPlan(None)).look
    assert not look.is_complete
    assert not partitions.wait_for_change(look, 0.0)
    partitions.set_starts({tp: ReadablePartition(1, 0, "") for tp in BOTH}, {})
    assert partitions.wait_for_change(look, 0.0)
    assert partitions.begin_batch(nothing, lambda view: BatchPlan(None)).look.is_complete


def test_offsets_of_other_members_end_a_wait_only_if_they_are_new() -> None:
    partitions = assigned()
    before = partitions._version
    others = {SECOND: ReadablePartition(0, 5, "")}
    partitions.set_others(others)
    partitions.set_others(dict(others))
    assert partitions._version == before + 1
