"""Group of members in separate processes, which read under a steady load."""

from __future__ import annotations

import json
from typing import Any

from tests.interop.brokers import Broker
from tests.interop.reporting import ReportingMember, SteadyFeed, read_count, settled
from tests.interop.waiting import wait_until

PARTITIONS = 6
RATE = 500  # records a second
SESSION_S = 4.0
SESSION_MS, HEARTBEAT_MS = int(SESSION_S * 1000), 300
OPTIONS: dict[str, dict[str, Any]] = {
    "classic": {
        "session_timeout_ms": SESSION_MS,
        "heartbeat_interval_ms": HEARTBEAT_MS,
        "partition_assignment_strategy": ["range"],
    },
    "consumer": {"consumer_session_timeout_ms": SESSION_MS},
    "auto": {"consumer_session_timeout_ms": SESSION_MS},
}
"""Options of a member by its protocol. By the consumer protocol the broker has the interval."""


class ReportedGroup:
    """Group whose members change while one feed writes."""

    def __init__(self, broker: Broker, topic: str, group: str, protocol: str) -> None:
        self.broker = broker
        self.group = group
        self.protocol = protocol
        self.topic = topic
        broker.configure_group(
            group,
            {
                "consumer.session.timeout.ms": str(SESSION_MS),
                "consumer.heartbeat.interval.ms": str(HEARTBEAT_MS),
            },
        )
        self.all: list[ReportingMember] = []
        self.present: list[ReportingMember] = []
        self.feed = SteadyFeed(broker.bootstrap_servers, topic, RATE)

    def join(self, protocol: str | None = None, **more: Any) -> ReportingMember:
        """Start one more member, by the group's protocol or another one."""
        protocol = protocol or self.protocol
        options = OPTIONS[protocol] | {"group_protocol": protocol} | more
        member = ReportingMember(
            self.broker.bootstrap_servers, self.topic, self.group, json.dumps(options)
        )
        self.all.append(member)
        self.present.append(member)
        return member

    def wait_until_lost(self, member: ReportingMember, times: int) -> None:
        """Wait until the member has reported lost partitions ``times`` times."""
        wait_until(lambda: len(member.reported("lost")) >= times)

    def catch_up(self) -> None:
        """Wait until all records so far, and one more, are read."""
        already = len(self.feed.written)
        wait_until(lambda: len(self.feed.written) > already)
        due = set(self.feed.written)
        wait_until(lambda: due <= read_count(self.all).keys())

    def take(self) -> ReportingMember:
        """Return the longest-running member. It no longer counts as present."""
        return self.present.pop(0)

    def settle(self, since: float = 0.0) -> float:
        """Wait until the present members own everything. Return the seconds that it took."""

        def look() -> bool:
            latest = max((member.settled_at for member in self.present), default=0.0)
            return settled(self.present, PARTITIONS) and latest > since

        wait_until(look, explain=lambda: [sorted(member.owned) for member in self.present])
        return max(member.settled_at for member in self.present) - since

    def finish(self) -> dict[tuple[int, int], int]:
        """End the feed, wait until all is read, and return the records that were read more than
        once.
        """
        self.feed.stop()
        written = set(self.feed.written)
        wait_until(
            lambda: written <= read_count(self.all).keys(),
            explain=lambda: sorted(written - read_count(self.all).keys())[:20],
        )
        for member in self.present:
            member.leave()
        times = read_count(self.all)
        assert times.keys() == written
        return {place: number for place, number in times.items() if number > 1}

    def __enter__(self) -> ReportedGroup:
        return self

    def __exit__(self, *_: object) -> None:
        for member in self.all:
            member.tool.kill()
