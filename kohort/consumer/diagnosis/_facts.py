"""The keys of ``explain().as_dict()``, with their types."""

from __future__ import annotations

from typing import TypedDict


class DecoderFacts(TypedDict):
    """The record decoders."""

    compiled: bool
    plain_reason: str | None
    """The reason for plain decoders; None if they are compiled."""


class SlowLineFacts(TypedDict):
    """The line to a broker whose latest large response took a second or longer."""

    bytes_per_second: int
    fetch_seconds: float
    """The time from the first to the last byte of that response."""


class DistantBrokerFacts(TypedDict):
    """The way to a broker whose round trip takes 5 ms or longer."""

    round_trip_seconds: float
    """The shortest time from a request to the first byte of its response."""
    connections: int
    """The number of connections for its fetches, apart from one for changes."""
    bytes_per_second: int | None
    """The rate of all of them together, or None before it was measured."""


class ClusterFacts(TypedDict):
    """The brokers as this consumer knows them."""

    reached: bool
    """True if a broker has responded."""
    last_error: str | None
    """The latest failure of a bootstrap server, until one is reached."""
    bootstrap_servers: list[str]
    proxy: str | None
    brokers: list[int]
    unreachable: dict[int, str]
    """Broker -> failure, for the brokers that this consumer needs."""
    slow_lines: dict[int, SlowLineFacts]
    """Broker -> its slow line."""
    distant_brokers: dict[int, DistantBrokerFacts]
    """Broker -> the way to it, for each broker that is far away."""
    api_versions: dict[int, list[int]]
    """API key -> first and last version that all known brokers serve."""
    fetch_max_wait_ms: float
    """The value of the option, or that of the first fetches without one."""
    fetch_interval_ms: float
    """Time between two fetches of a broker while few records arrive at a time."""


class SecurityFacts(TypedDict):
    """The login and the client certificate."""

    protocol: str
    encrypted_by: str | None
    mechanism: str | None
    """The SASL mechanism; None without SASL."""
    principal: str | None
    """The user of the login, or the subject of the client certificate."""
    refusals: list[str]
    credentials_obstacle: str | None
    """The reason why there are no credentials to log in with."""
    certificate_of: str | None
    certificate_expires_at: str | None
    certificate_expires_in_days: float | None


class SubscriptionFacts(TypedDict):
    """The topics or the pattern."""

    mode: str
    """``"none"``, ``"topics"``, ``"pattern"``, ``"broker pattern"`` or ``"manual"``."""
    topics: list[str]
    pattern: str | None
    appeared_topics: list[str]
    """Topics that did not exist when this consumer requested them first."""
    unknown_topics: list[str]


class PollFacts(TypedDict):
    """The calls of poll()."""

    inside: bool
    last_seconds_ago: float | None
    max_poll_interval_ms: float
    errors_waiting: list[str]
    """Errors that the next poll() raises."""


class HeldPartitionFacts(TypedDict):
    """A partition that this member waits for, and the member that has not released it."""

    partition: str
    member_id: str
    client_id: str
    host: str


class AssignmentCauseFacts(TypedDict):
    """The reason why a member has no partitions, or waits for some."""

    text: str
    members: int
    """The number of the group's members that subscribe to topics of this member."""
    partitions: int
    """The number of partitions of this member's topics."""
    waits_for: list[HeldPartitionFacts]


class GroupFacts(TypedDict):
    """The membership in the group."""

    group_id: str
    state: str
    coordinator: int | None
    """The broker; None until it is known."""
    generation: int
    """The generation, or the member epoch of the consumer protocol; -1 without a membership."""
    member_id: str
    group_instance_id: str | None
    group_protocol: str | None
    """``"classic"``, ``"consumer"`` or ``"share"``; None until ``"auto"`` has chosen."""
    group_protocol_reason: str
    protocol: str | None
    """The name of the assignor."""
    leads: bool
    waits_for_poll: bool
    """True if a rebalance waits for the next poll()."""
    rebalance_reason: str | None
    join_obstruction: str | None
    assignment_cause: AssignmentCauseFacts | None
    """None while the cause is unknown, or if there is nothing to explain."""
    offset_read_failure: str | None
    last_failure: str | None
    fenced: bool
    last_heartbeat_seconds_ago: float | None
    session_in_doubt: bool
    """True if no heartbeat had a response for the time of a session."""


class RebalanceFacts(TypedDict):
    """A completed rebalance. Partitions are named as in ``orders-0``."""

    seconds_ago: float | None
    reason: str
    generation: int
    protocol: str | None
    gained: list[str]
    lost: list[str]
    assigned: int
    """The number of partitions after the rebalance."""
    seconds: float
    waited_for_poll_seconds: float


class OpenTransactionFacts(TypedDict):
    """The open transaction that a partition waits for."""

    text: str
    producer_id: int
    epoch: int
    first_offset: int
    last_timestamp: int
    """The time of the producer's latest record in ms since 1970, or -1."""


class PartitionFacts(TypedDict):
    """An assigned partition."""

    topic: str
    position: int | None
    committed: int | None
    """The offset that this consumer committed last."""
    end: int | None
    """The offset after the last readable record, as of the latest fetch."""
    high_watermark: int | None
    hidden_offsets: int
    """The number of offsets after the last stable offset, if all before it were read."""
    open_transaction: OpenTransactionFacts | None
    """None while the transaction is unknown."""
    started_at_end: int | None
    """The offset at which reading started by "latest", if the log has earlier ones."""
    paused: bool
    paused_by: list[str | None]
    """The owners of the pauses, with None for the program's own ``pause()``."""
    being_revoked: bool
    leader: int | None
    read_from: int | None
    """The leader, or the follower that it named (KIP-392)."""
    last_fetch_seconds_ago: float | None
    withheld_seconds: float | None
    """The time for which responses had no records below the high watermark."""
    last_error: str | None
    lag: int | None
    lag_seconds: float | None
    """The age of the record at the position; 0 without a lag, None while it is not buffered."""
    buffered_bytes: int
    in_flight: bool
    in_flight_to: int | None
    in_flight_seconds: float | None
    in_flight_max_wait_ms: float | None
    """The time for which the broker may delay the fetch in flight."""


class RightFacts(TypedDict):
    """A permission that brokers denied."""

    principal: str | None
    operation: str
    resource: str
    name: str


class CommitFacts(TypedDict):
    """The automatic commits."""

    automatic: bool
    recommit_seconds: float | None
    """The interval of commits of unchanged offsets; None without them."""


class ShareFacts(TypedDict):
    """The records of a share consumer. Its group, poll and subscription have their own keys."""

    acknowledgement: str
    """``"implicit"`` or ``"explicit"``."""
    start: str | None
    partitions: list[str]
    """The assigned partitions, as in ``jobs-0``."""
    sessions: list[int]
    """The brokers that have a share session of this consumer."""
    nothing_available: bool
    """True if the latest response of each of them had no records."""
    lock_seconds: float
    locked: int
    """The number of records that this consumer has not finished."""
    buffered: int
    """The number of these that wait for a poll."""
    unacknowledged: int
    """The number of these that were returned, without an acknowledgement so far."""
    first_deadline_seconds: float | None
    """The time until the first lock of a returned record expires; negative if it has."""
    acquired: int
    acknowledged: int
    failed: int
    """Totals since the start."""


class ProcessingFacts(TypedDict):
    """The process() of a consumer."""

    stopping: bool
    """True from the beginning of its stop."""
    failure: str | None
    """The error that has ended it."""
    stuck: list[str]
    """A sentence on each handler that has not returned for ``stuck_after`` seconds."""
    waiting: list[str]
    """A sentence on each record that is retried for as long, such as in an outage."""
    letters: list[str]
    """A sentence on each record whose dead letter is not acknowledged for 10 s."""


class ExplanationFacts(TypedDict):
    """The result of ``explain().as_dict()``. The values are plain, so json.dumps() accepts them."""

    reasons: list[str]
    """The reasons why no records arrive, the first cause first; empty if there are none."""
    client_id: str
    state: str
    decoders: DecoderFacts
    cluster: ClusterFacts
    security: SecurityFacts
    subscription: SubscriptionFacts
    poll: PollFacts
    group: GroupFacts | None
    """None without a group."""
    rebalances: list[RebalanceFacts]
    """The latest rebalances, the oldest first."""
    partitions: dict[str, PartitionFacts]
    """``topic-number`` -> its facts."""
    shares: ShareFacts | None
    """None unless it is a share consumer, which has no ``partitions``."""
    missing_rights: list[RightFacts]
    last_commit_error: str | None
    commits: CommitFacts
    processing: ProcessingFacts | None
    """None without process()."""


for _public in (ExplanationFacts, GroupFacts, PartitionFacts, ProcessingFacts, ShareFacts):
    _public.__module__ = "kohort"
