"""A history from samples of the present, where ``__consumer_offsets`` cannot be read."""

from __future__ import annotations

import time
from collections.abc import Callable

from kohort.admin import KafkaAdminClient, OffsetSpec
from kohort.errors import GroupIdNotFoundError, KafkaError
from kohort.history._timeline import GroupHistory, GroupState, LagPoint, PastMember, Timeline
from kohort.types import TopicPartition

MOST_MOMENTS = 200
"""Moments whose lag is kept. Of more, every second one is dropped."""


class GroupSampler:
    """Samples of a group. What happens between two of them is not known."""

    def __init__(
        self,
        admin: KafkaAdminClient,
        group_id: str,
        *,
        timeout_ms: float,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._admin = admin
        self._group_id = group_id
        self._timeout_ms = timeout_ms
        self._clock = clock
        self._timeline = Timeline(group_id)
        self._lags: dict[int, list[LagPoint]] = {}
        self._stride = 1
        self._times: list[int] = []

    def take(self) -> None:
        """Take a sample. It is left out if it fails for a reason that may end.

        The first sample raises every error, and GroupIdNotFoundError if there is no such group.
        """
        try:
            state, committed = self._state(), self._committed()
            ends = self._admin.list_partition_offsets(
                dict.fromkeys(committed, OffsetSpec.LATEST), timeout_ms=self._timeout_ms
            )
        except KafkaError as error:
            if self._times and error.retriable:
                return
            raise
        at_ms = round(1000 * self._clock())
        self._times.append(at_ms)
        self._timeline.sample(at_ms, state, committed)
        if len(self._times) % self._stride == 0:
            self._lags[at_ms] = [
                LagPoint(at_ms, tp, max(0, end.offset - committed[tp]))
                for tp, end in ends.items()
                if end is not None
            ]
        if len(self._lags) > MOST_MOMENTS:
            self._lags = dict(list(self._lags.items())[1::2])
            self._stride *= 2

    def _state(self) -> GroupState | None:
        found = self._admin.describe_groups(self._group_id, timeout_ms=self._timeout_ms)
        try:
            group = found[self._group_id]
        except GroupIdNotFoundError:
            if not self._times:
                raise
            return None
        return GroupState(
            "consumer" if group.type == "consumer" else "classic",
            group.epoch,
            {
                each.member_id: PastMember(
                    each.member_id,
                    each.client_id,
                    each.host,
                    each.group_instance_id,
                    frozenset(each.topics or (each.pattern or "",)),
                )
                for each in group.members
            },
            {each.member_id: frozenset(each.partitions) for each in group.members},
        )

    def _committed(self) -> dict[TopicPartition, int]:
        found = self._admin.list_group_offsets(self._group_id, timeout_ms=self._timeout_ms)
        return {tp: at.offset for tp, at in found[self._group_id].items()}

    def history(self) -> GroupHistory:
        """Return the history from the first sample to the latest one."""
        first, last = self._times[0], self._times[-1]
        lags = tuple(each for points in self._lags.values() for each in points)
        return self._timeline.finish(first, last)._replace(
            complete_since_ms=last, lags=lags, samples=tuple(self._times)
        )
