"""The subscription: modes, ownership, positions."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from kohort.errors import IllegalStateError, NotAssignedError
from kohort.subscription import OffsetReset, SubscriptionMode, SubscriptionState
from kohort.types import OffsetAndMetadata, TopicPartition

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def epoch_of(subscription: SubscriptionState, tp: TopicPartition) -> int:
    return subscription.snapshot().partitions[tp].epoch


def deliver(subscription: SubscriptionState, tp: TopicPartition, position: int) -> None:
    """Move a position as a delivery of records does."""
    with subscription.lock:
        state = subscription.partition(tp)
        assert state is not None
        state.position = position


def owning(*partitions: TopicPartition, offset: int = 0) -> SubscriptionState:
    subscription = SubscriptionState()
    subscription.assign(partitions)
    for tp, epoch in subscription.awaiting_position().items():
        assert subscription.set_position(tp, offset, epoch=epoch)
    return subscription


class TestModes:
    def test_the_ways_to_get_partitions_do_not_mix(self) -> None:
        subscription = SubscriptionState()
        subscription.subscribe(["a"])
        with pytest.raises(
            IllegalStateError, match=r"assign\(\).*subscribe\(topics\).*unsubscribe"
        ):
            subscription.assign([A0])
        with pytest.raises(IllegalStateError, match="pattern"):
            subscription.subscribe_pattern("a.*")
        subscription.unsubscribe()
        subscription.assign([A0])
        with pytest.raises(IllegalStateError, match="unsubscribe"):
            subscription.subscribe(["a"])
        assert subscription.mode is SubscriptionMode.MANUAL

    def test_a_group_cannot_assign_to_a_manual_consumer(self) -> None:
        subscription = owning(A0)
        with pytest.raises(IllegalStateError):
            subscription.assign_from_group([B0])
        assert subscription.assigned() == {A0}

    def test_one_string_is_not_a_list_of_topics(self) -> None:
        with pytest.raises(TypeError, match="list of topic names"):
            SubscriptionState().subscribe("orders")

    def test_a_pattern_takes_topics_as_they_appear(self) -> None:
        subscription = SubscriptionState()
        subscription.subscribe_pattern("a")
        assert subscription.topics() == frozenset()
        assert subscription.match_topics(["a", "ab", "ba"])
        assert subscription.topics() == {"a", "ab"}
        assert not subscription.match_topics(["ab", "a", "c"])
        assert subscription.match_topics(["ab"])

    def test_topics_follow_a_manual_assignment(self) -> None:
        assert owning(A0, A1, B0).topics() == {"a", "b"}

    def test_unsubscribed_topics_are_withheld_until_their_revocation(
        self,
    ) -> None:
        subscription = SubscriptionState()
        subscription.subscribe(["a", "b"])
        subscription.assign_from_group([A0, B0])
        subscription.seek(A0, 3)
        subscription.seek(B0, 4)
        subscription.subscribe(["b"])
        assert [t.topic_partition for t in subscription.fetch_targets()] == [B0]
        assert subscription.positions_for_commit().keys() == {A0, B0}

    def test_topics_subscribed_again_before_revocation_are_fetched(self) -> None:
        subscription = SubscriptionState()
        subscription.subscribe(["a", "b"])
        subscription.assign_from_group([A0, B0])
        subscription.seek(A0, 3)
        subscription.seek(B0, 4)
        subscription.subscribe(["b"])
        subscription.mark_pending_revocation([B0])
        subscription.subscribe(["a", "b"])
        # B0 waits for its revocation.
        assert [t.topic_partition for t in subscription.fetch_targets()] == [A0]


class TestConsumed:
    def test_it_is_the_position_of_the_moment_that_was_noted(self) -> None:
        subscription = owning(A0, offset=4)
        deliver(subscription, A0, 7)
        assert subscription.consumed_offsets() == {A0: OffsetAndMetadata(4)}
        subscription.note_consumed()
        assert subscription.consumed_offsets() == {A0: OffsetAndMetadata(7)}

    def test_a_seek_counts_at_once_and_a_reset_takes_it_away(self) -> None:
        subscription = owning(A0, offset=4)
        subscription.seek(A0, 2, leader_epoch=5)
        assert subscription.consumed_offsets() == {A0: OffsetAndMetadata(2, "", 5)}
        subscription.request_reset(A0)
        assert subscription.consumed_offsets() == {}

    def test_it_does_not_outlive_the_ownership(self) -> None:
        subscription = SubscriptionState()
        subscription.subscribe(["a"])
        subscription.assign_from_group([A0])
        subscription.seek(A0, 9)
        subscription.revoke([A0])
        subscription.assign_from_group([A0])
        assert subscription.consumed_offsets() == {}


class TestOwnership:
    def test_retained_partitions_keep_their_state_and_new_ones_wait(self) -> None:
        subscription = SubscriptionState()
        subscription.subscribe(["a", "b"])
        assert subscription.assign_from_group([A0, A1]) == {A0, A1}
        subscription.seek(A0, 7)
        subscription.pause([A0])
        epoch = epoch_of(subscription, A0)
        subscription.mark_pending_revocation([A0])
        assert subscription.assign_from_group([A0, B0]) == {B0}
        assert subscription.assigned() == {A0, B0}
        assert subscription.position(A0) == 7
        assert subscription.paused() == {A0}
        assert epoch_of(subscription, A0) == epoch
        assert subscription.awaiting_position().keys() == {B0}
        subscription.resume([A0])
        assert [t.topic_partition for t in subscription.fetch_targets()] == [A0]

    def test_withheld_partitions_are_not_fetched(self) -> None:
        subscription = SubscriptionState()
        subscription.subscribe(["a", "b"])
        subscription.assign_from_group([A0])
        subscription.seek(A0, 7)
        subscription.assign_from_group([A0, B0], withheld=[A0, B0])
        assert subscription.assigned() == {A0, B0}
        assert not subscription.fetch_targets()
        assert not subscription.awaiting_position()
        subscription.clear_pending_revocation([A0])
        assert [t.topic_partition for t in subscription.fetch_targets()] == [A0]

    def test_a_partition_that_comes_back_is_at_a_new_epoch(self) -> None:
        subscription = SubscriptionState()
        subscription.subscribe(["a"])
        subscription.assign_from_group([A0])
        old, changes = epoch_of(subscription, A0), subscription.changes
        assert subscription.revoke([A0, B0]) == {A0}
        assert subscription.changes > changes
        subscription.assign_from_group([A0])
        assert epoch_of(subscription, A0) > old
        assert not subscription.set_position(A0, 5, epoch=old)
        assert subscription.position(A0) is None

    def test_pending_revocation_stops_fetching_and_still_commits(self) -> None:
        subscription = owning(A0, A1, offset=4)
        subscription.mark_pending_revocation([A0, B0])
        assert [t.topic_partition for t in subscription.fetch_targets()] == [A1]
        assert subscription.positions_for_commit() == {
            A0: OffsetAndMetadata(4),
            A1: OffsetAndMetadata(4),
        }

    def test_unsubscribe_owns_nothing(self) -> None:
        subscription = owning(A0)
        subscription.unsubscribe()
        assert subscription.assigned() == frozenset()
        assert subscription.mode is SubscriptionMode.NONE
        assert subscription.fetch_targets() == []

    def test_calls_for_a_partition_that_is_not_owned_say_so(self) -> None:
        subscription = owning(A0)
        calls: list[Callable[[], object]] = [
            lambda: subscription.seek(B0, 1),
            lambda: subscription.position(B0),
            lambda: subscription.request_reset(B0),
            lambda: subscription.high_watermark(B0),
        ]
        for call in calls:
            with pytest.raises(NotAssignedError, match="b-0"):
                call()
        with pytest.raises(NotAssignedError):
            subscription.pause([A0, B0])
        assert subscription.paused() == frozenset()


class TestPositions:
    def test_seek_starts_anew_at_a_new_epoch(self) -> None:
        subscription = owning(A0, offset=3)
        [before] = subscription.fetch_targets()
        subscription.seek(A0, 10, leader_epoch=2)
        [after] = subscription.fetch_targets()
        assert after.offset == 10
        assert after.epoch > before.epoch
        assert subscription.positions_for_commit() == {A0: OffsetAndMetadata(10, "", 2)}
        with pytest.raises(ValueError, match="must be >= 0"):
            subscription.seek(A0, -1)

    def test_a_position_that_was_looked_up_does_not_undo_a_seek(self) -> None:
        subscription = SubscriptionState()
        subscription.assign([A0, A1])
        epochs = subscription.awaiting_position()
        subscription.seek(A0, 9)
        assert not subscription.set_position(A0, 1, epoch=epochs[A0])
        assert subscription.set_position(A1, 1, epoch=epochs[A1])
        assert (subscription.position(A0), subscription.position(A1)) == (9, 1)

    def test_a_reset_takes_the_position_away_until_it_is_looked_up(self) -> None:
        subscription = owning(A0, offset=3)
        subscription.request_reset(A0)
        assert subscription.position(A0) is None
        assert subscription.fetch_targets() == []
        assert subscription.positions_for_commit() == {}
        assert subscription.awaiting_position() == {}
        [pending] = subscription.pending_resets()
        assert pending.strategy is OffsetReset.LATEST
        assert subscription.set_position(A0, 8, epoch=pending.epoch)
        assert subscription.pending_resets() == []

    def test_the_last_of_two_resets_counts(self) -> None:
        subscription = owning(A0)
        subscription.request_reset(A0, OffsetReset.EARLIEST)
        [first] = subscription.pending_resets()
        subscription.request_reset(A0, OffsetReset.LATEST)
        assert not subscription.set_position(A0, 0, epoch=first.epoch)
        [second] = subscription.pending_resets()
        assert second.strategy is OffsetReset.LATEST

    def test_paused_partitions_are_not_fetched(self) -> None:
        subscription = owning(A0, A1)
        subscription.pause([A0])
        assert [t.topic_partition for t in subscription.fetch_targets()] == [A1]
        subscription.resume([A0])
        assert len(subscription.fetch_targets()) == 2

    def test_each_owner_ends_its_own_pauses_only(self) -> None:
        subscription = owning(A0, A1)
        subscription.pause([A0, A1])
        subscription.pause([A0], "library")
        subscription.resume([A1], "library")
        assert subscription.paused() == {A0, A1}
        subscription.resume([A0, A1])
        assert subscription.paused() == {A0}
        assert [t.topic_partition for t in subscription.fetch_targets()] == [A1]
        subscription.resume([A0], "library")
        assert len(subscription.fetch_targets()) == 2

    def test_a_revocation_ends_the_pauses_of_all_owners(self) -> None:
        subscription = SubscriptionState()
        subscription.subscribe(["a"])
        subscription.assign_from_group([A0, A1])
        subscription.pause([A0, A1], "library")
        subscription.revoke([A0])
        subscription.assign_from_group([A0, A1])
        assert subscription.paused() == {A1}

    def test_a_snapshot_does_not_change_afterwards(self) -> None:
        subscription = owning(A0, offset=3)
        snapshot = subscription.snapshot()
        subscription.seek(A0, 10)
        assert snapshot.partitions[A0].position == 3


def test_assignment_seen_from_another_thread_is_always_whole() -> None:
    """assigned() is read without the lock. It must never show half of a change."""
    subscription = SubscriptionState()
    subscription.subscribe(["a", "b"])
    both, one = frozenset([A0, B0]), frozenset([A1])
    seen: set[frozenset[TopicPartition]] = set()
    stop = threading.Event()

    def look() -> None:
        while not stop.is_set():
            seen.add(subscription.assigned())

    thread = threading.Thread(target=look)
    thread.start()
    for _ in range(500):
        subscription.assign_from_group(both)
        subscription.assign_from_group(one)
    stop.set()
    thread.join()
    assert seen <= {frozenset(), both, one}
