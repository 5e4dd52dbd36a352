"""Section of the options of a group."""

from __future__ import annotations

import re
from dataclasses import field
from typing import Any

from kohort.config._client import RequestOptions
from kohort.config.options._option import invalid, option, section
from kohort.config.options._option_types import Assignors, Boolean, Integer, OneOf, Text

_JAVA_ASSIGNORS = {
    "org.apache.kafka.clients.consumer.RangeAssignor": "range",
    "org.apache.kafka.clients.consumer.RoundRobinAssignor": "roundrobin",
    "org.apache.kafka.clients.consumer.StickyAssignor": "sticky",
    "org.apache.kafka.clients.consumer.CooperativeStickyAssignor": "cooperative-sticky",
}
_CLASSIC_ONLY = ("partition_assignment_strategy", "session_timeout_ms", "heartbeat_interval_ms")
"""Options of members that the consumer protocol leaves to the coordinator."""
_INSTANCE_ID = re.compile(r"[A-Za-z0-9._-]{1,249}")


def _instance_id(text: str) -> bool:
    """of at most 249 of A-Z a-z 0-9 . _ -, and not . or .."""
    return _INSTANCE_ID.fullmatch(text) is not None and text not in {".", ".."}


@section
class GroupConfig(RequestOptions):
    """Options of the membership in a group and of committed offsets."""

    group_id: str | None = field(
        default=None,
        metadata=option(
            Text(nullable=True, empty=False),
            "The consumer group. None: no membership and no commits.",
        ),
    )
    group_instance_id: str | None = field(
        default=None,
        metadata=option(
            Text(nullable=True, empty=False, valid=_instance_id),
            "Makes this a static member, which keeps its partitions over a restart (KIP-345).",
        ),
    )
    group_protocol: str = field(
        default="auto",
        metadata=option(
            OneOf("classic", "consumer", "auto"),
            "Protocol of the membership. `consumer` is that of KIP-848. `auto` uses it if the "
            "cluster has it enabled and the group has no classic members.",
        ),
    )
    group_remote_assignor: str | None = field(
        default=None,
        metadata=option(
            Text(nullable=True, empty=False),
            "Assignor of the coordinator, such as `uniform` or `range`, under the consumer "
            "protocol. With None the coordinator chooses.",
        ),
    )
    consumer_session_timeout_ms: int = field(
        default=45_000,
        metadata=option(
            Integer(1),
            "The coordinator's session timeout under the consumer protocol, which no response "
            "has. After that time without a heartbeat no records are returned. Set it if the "
            "brokers or the group use another value than 45 s.",
            unit="ms",
        ),
    )
    session_timeout_ms: int = field(
        default=45_000,
        metadata=option(
            Integer(1),
            "Time without a heartbeat after which a member is removed from the group. Classic "
            "protocol only.",
            unit="ms",
        ),
    )
    heartbeat_interval_ms: int = field(
        default=3_000,
        metadata=option(
            Integer(1),
            "Time between heartbeats, which notice a rebalance. Use at most a third of "
            "session_timeout_ms. Classic protocol only.",
            unit="ms",
        ),
    )
    max_poll_interval_ms: int = field(
        default=300_000,
        metadata=option(
            Integer(1), "Time without a poll after which a consumer leaves its group.", unit="ms"
        ),
    )
    rebalance_timeout_ms: int = field(
        default=0,
        metadata=option(
            Integer(1, special={None: 0, 0: 0}, expected="an int of at least 1, or None"),
            "Time that the group waits for this member to rejoin. None: max_poll_interval_ms.",
            unit="ms",
            properties=(),
            shown_default="max_poll_interval_ms",
        ),
    )
    partition_assignment_strategy: tuple[Any, ...] = field(
        default=("range", "cooperative-sticky", "roundrobin"),
        metadata=option(
            Assignors(
                names=("range", "cooperative-sticky", "sticky", "roundrobin"),
                java=_JAVA_ASSIGNORS,
            ),
            "Assignors of the group's leader, in order of preference. Classic protocol only.",
            shown_default='("range", "cooperative-sticky", "roundrobin")',
        ),
    )
    client_rack: str | None = field(
        default=None,
        metadata=option(
            Text(nullable=True),
            "Rack of this consumer. Assignors prefer partitions with a replica there (KIP-881). "
            "Leaders name a follower there for fetches, by KIP-392.",
        ),
    )
    enable_auto_commit: bool = field(
        default=True,
        metadata=option(
            Boolean(),
            "Commit positions while polling, before partitions are revoked, and on close.",
            also=("auto.commit.enable",),
        ),
    )
    auto_commit_interval_ms: int = field(
        default=5_000, metadata=option(Integer(0), "Time between automatic commits.", unit="ms")
    )

    offsets_recommit_interval_ms: int = field(
        default=600_000,
        metadata=option(
            Integer(1, special={None: 0, 0: 0}, expected="an int of at least 1, or None"),
            "Time between automatic commits of unchanged offsets with assign(). Brokers would "
            "delete them after offsets.retention.minutes. None turns it off.",
            unit="ms",
            properties=(),
        ),
    )

    @property
    def classic_only_options(self) -> tuple[str, ...]:
        """The options set by the user that have a meaning in the classic protocol only."""
        return tuple(name for name in _CLASSIC_ONLY if name in self.passed_names)

    @property
    def auto_commit(self) -> bool:
        """True if positions are committed automatically, which needs a group."""
        return self.enable_auto_commit and self.group_id is not None

    def _check_together(self) -> None:
        RequestOptions._check_together(self)
        if self.heartbeat_interval_ms >= self.session_timeout_ms:
            raise invalid(
                "heartbeat_interval_ms",
                self.heartbeat_interval_ms,
                f"less than session_timeout_ms ({self.session_timeout_ms})",
            )
        if self.group_protocol == "consumer":
            for name in self.classic_only_options:
                raise invalid(
                    name,
                    getattr(self, name),
                    'no value with group_protocol="consumer", where the coordinator decides it',
                )
        if self.group_protocol == "classic" and self.group_remote_assignor is not None:
            raise invalid(
                "group_remote_assignor",
                self.group_remote_assignor,
                'no value with group_protocol="classic", where partition_assignment_strategy '
                "decides",
            )
        if self.group_instance_id is not None and self.group_id is None:
            raise invalid("group_instance_id", self.group_instance_id, "a group_id with it")
        if self.rebalance_timeout_ms == 0:
            self._set("rebalance_timeout_ms", self.max_poll_interval_ms)
