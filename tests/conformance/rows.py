"""Rows of the table of probed behaviour. Each probe names its rows."""

from __future__ import annotations

from dataclasses import dataclass

SECTIONS = {
    "2": "Rules of the wire",
    "3": "Every API in every version",
    "6": "Behaviour of a faithful broker",
    "7": "TLS, logins and users",
    "8": "Consumer groups (KIP-848)",
    "9": "Share groups (KIP-932)",
}

NOT_HERE = "The cluster does not implement this: "
ONE_BROKER = (
    "Apache Kafka runs with one broker here. `tests/broker/cluster/test_brokers.py` and "
    "`test_failover.py` test it."
)


@dataclass(frozen=True)
class Row:
    """Row of the table.

    ``number`` has section, row, and a letter for each statement. ``reason`` says why it has no
    probe.
    """

    number: str
    says: str
    reason: str = ""


ROWS = (
    Row(
        "2.1a",
        "ApiVersions in an unknown version: response of version 0 with error 35 and a range",
    ),
    Row("2.1b", "other APIs in an unknown version, and unknown API keys: the connection ends"),
    Row("2.1c", "the version ranges in ApiVersions, with Produce from 0 on"),
    Row("2.1d", "ApiVersions 5 for another cluster or node: error 129 (KIP-1242)"),
    Row("2.2a", "the response header of ApiVersions is version 0 in every version"),
    Row("2.2b", "invalid names of client software: error 42"),
    Row("2.3a", "the client id in the header is an int16 string in flexible versions, too"),
    Row("2.3b", "OffsetDelete and SaslHandshake are not flexible in any version"),
    Row("2.3c", "Produce with acks=0 has no response"),
    Row("2.4a", "unknown tagged fields are skipped, and defaults are left out"),
    Row("2.4b", "a nullable structure starts with an int8, -1 or 1"),
    Row(
        "2.4c",
        "a nullable structure in a tagged field starts with a uvarint, 0 or 1",
        "Only records of `__consumer_offsets` have one: `tests/protocol/test_golden.py`.",
    ),
    Row("2.5a", "responses come in the order of the requests, which may be pipelined"),
    Row("2.5b", "a waiting fetch does not delay other connections"),
    Row(
        "2.5c",
        "malformed frames end the connection, and bytes after a request are ignored",
    ),
    Row(
        "2.6a",
        "JoinGroup of a dynamic member from version 4 on: error 79 and a member id",
    ),
    Row(
        "2.6b",
        "JoinGroup errors: member id 25, group id 24, protocols 23, session timeout 26",
    ),
    Row("2.7a", "Heartbeat and SyncGroup for an unknown group: 25"),
    Row("2.7b", "LeaveGroup for an unknown group: 0, and 25 for each member"),
    Row(
        "2.7c",
        "DescribeGroups of an unknown group: Dead, from version 6 on error 69 with a message",
    ),
    Row("2.7d", "DeleteGroups of an unknown group: 69"),
    Row("2.7e", "ConsumerGroupDescribe of a classic group: 69, so that clients fall back"),
    Row(
        "2.7f",
        "ConsumerGroupHeartbeat for an unknown group: 69, without partitions: 42",
    ),
    Row("2.8a", "OffsetCommit with generation -1 and no member creates or uses an empty group"),
    Row(
        "2.8b",
        "OffsetCommit with a generation to an unknown group: 69, before version 9: 22",
    ),
    Row("2.8c", "OffsetCommit for unknown topics and partitions: 3"),
    Row("2.8d", "OffsetCommit with metadata over 4096 bytes: 12"),
    Row("2.8e", "committed values are returned: epochs, any offset, the later of two"),
    Row("2.9a", "OffsetFetch without a commit: -1, -1, an empty string, no error"),
    Row("2.9b", "OffsetFetch with null topics returns all, in every version"),
    Row("2.9c", "OffsetFetch of several groups from version 8 on"),
    Row("2.9d", "require_stable without an open transaction"),
    Row("2.9e", "member ids and epochs in OffsetFetch for a classic group"),
    Row("2.9f", "offsets of deleted topics"),
    Row("2.9g", "require_stable with an open transaction: 88 for each partition"),
    Row(
        "2.10a",
        "ListOffsets of the special timestamps -1 to -6, and 35 for others, in each version",
    ),
    Row(
        "2.10b",
        "ListOffsets by time: the first record at that time or later, else -1",
    ),
    Row("2.10c", "ListOffsets with a later epoch: 75"),
    Row("2.10d", "ListOffsets of unknown partitions, and of a partition twice"),
    Row("2.10e", "ListOffsets, Fetch and OffsetForLeaderEpoch with an older epoch: 74"),
    Row(
        "2.11a",
        "Fetch out of range: error 1, all offsets -1, empty records (not null)",
    ),
    Row(
        "2.11b",
        "Fetch below min_bytes waits max_wait and returns what is available",
    ),
    Row("2.11c", "Fetch with a later epoch: 75"),
    Row("2.11d", "Fetch with the epoch of the last fetched record: where the logs diverge"),
    Row("2.11e", "Fetch of unknown topics and partitions: 3, by id 100"),
    Row("2.11f", "aborted transactions are null unless committed records are requested"),
    Row("2.11g", "limits: a first batch is returned whatever its size, the last one is cut off"),
    Row("2.11h", "a batch is returned whole, from before the requested offset"),
    Row("2.12a", "Metadata in every version, with all brokers"),
    Row("2.12b", "unknown topics 3, invalid names 17"),
    Row("2.12c", "no topics and all topics"),
    Row("2.12d", "operations of the cluster in versions 8 to 10 only"),
    Row("2.12e", "topics by id"),
    Row("2.12f", "internal topics"),
    Row("2.13a", "batches are stored and fetched as producers wrote them"),
    Row("2.13b", "LogAppendTime, limits of timestamps, a topic's codec"),
    Row("2.13c", "zstd, and versions without it"),
    Row("2.13d", "batches over max.message.bytes: 10"),
    Row("2.13e", "damaged or inconsistent batches, and records without a key in compacted topics"),
    Row(
        "2.14a",
        "compaction keeps base and last offset of a batch and each record's delta",
    ),
    Row(
        "2.14b",
        "retention by time",
    ),
    Row("2.15a", "control records of transactions"),
    Row("3", "every advertised version is requested"),
    Row("6.1a", "a newly assigned member id starts no rebalance"),
    Row(
        "6.1b",
        "JoinGroup is parked until all known members have rejoined, then the generation increases",
    ),
    Row("6.1c", "the largest rebalance timeout of the members ends the barrier, too"),
    Row("6.1d", "the end of a silent member's session ends the barrier, too"),
    Row(
        "6.1e",
        "the first joiner leads, and only the leader gets the members",
    ),
    Row("6.1f", "JoinGroup in every version"),
    Row("6.1g", "the vote for a protocol, and incompatible protocols: 23"),
    Row("6.1h", "the initial delay of an empty group, which new members extend"),
    Row("6.1i", "assigned but unused member ids expire, are waited for, may leave"),
    Row("6.1j", "the largest size of a group: 81"),
    Row("6.2a", "Heartbeat in each state: 27 while preparing, else 0, generation 22, member 25"),
    Row("6.2b", "SyncGroup in each state: parked, repeated, 27, 22, 23"),
    Row(
        "6.2c",
        "OffsetCommit in each state: preparing 0, completing 27, stable 0",
    ),
    Row("6.2d", "JoinGroup in each state"),
    Row("6.2e", "DeleteGroups in each state: 68 unless empty"),
    Row("6.2f", "LeaveGroup in each state: a code for each member, 0 at the top"),
    Row("6.2g", "DescribeGroups and OffsetFetch in each state"),
    Row(
        "6.3a",
        "a restarted static member of a stable group: same generation, new id, skip_assignment",
    ),
    Row("6.3b", "a restarted static member with another subscription"),
    Row("6.3c", "the old id of a static member is fenced: 82 everywhere"),
    Row("6.3d", "unknown instance ids: 25"),
    Row("6.3e", "static members are removed by instance id, or by the end of their session"),
    Row("6.4a", "a follower that rejoins unchanged gets the present generation"),
    Row("6.4b", "a leader that rejoins, and changed metadata, start a rebalance"),
    Row("6.4c", "a first static join needs no second request"),
    Row("6.4d", "rejoining before the assignment"),
    Row("6.5a", "requests that restart a session: heartbeat, commit, join"),
    Row("6.5b", "the session's end removes the member"),
    Row("6.5c", "the session's end completes the barrier"),
    Row("6.5d", "sessions do not end while a request is parked"),
    Row("6.5e", "members that do not sync within the rebalance timeout are removed"),
    Row("6.6a", "the long poll, woken by produce"),
    Row("6.6b", "max_bytes of the response and of partitions"),
    Row("6.6c", "fetch sessions: opened, continued, closed"),
    Row(
        "6.6d",
        "only changes are returned, and partitions are added, changed, forgotten, and take turns",
    ),
    Row("6.6e", "session errors 70, 71 and 106"),
    Row("6.6f", "errors of partitions in sessions"),
    Row("6.6g", "OffsetForLeaderEpoch"),
    Row("6.6h", "the preferred replica of a rack", ONE_BROKER),
    Row(
        "6.7a",
        "errors 5 and 6 for a moment after a topic is created",
        "They come only sometimes. Every probe waits until they are over.",
    ),
    Row("6.7b", "Metadata creates topics, unless the request forbids it"),
    Row("6.8a", "producer ids"),
    Row("6.8b", "sequences of each producer and partition"),
    Row("6.8c", "duplicates of the last five batches: their first offset, no error"),
    Row("6.8d", "gaps: 45"),
    Row("6.8e", "epochs of producers: 47"),
    Row("6.8f", "a fenced transactional producer: 90"),
    Row("6.9a", "the finalized features in ApiVersions"),
    Row("6.9b", "transactions of both versions: last stable offset, markers, 51, 88"),
    Row(
        "6.10",
        "COORDINATOR_LOAD_IN_PROGRESS while a coordinator loads, here when a test calls "
        "`cluster.fail`",
    ),
    Row("6.11", "the newer group protocol of streams", NOT_HERE + "no APIs."),
    Row(
        "6.12",
        "replication, throttling, quotas, SSL, tiers, telemetry",
        NOT_HERE + "one log for a partition, and no throttling.",
    ),
    Row("7.1a", "each order of steps before a login, and the response to each"),
    Row("7.1b", "SaslHandshake: versions, unknown mechanisms 33, repeated 34, without SASL 34"),
    Row("7.1c", "SaslAuthenticate in each version, and tokens without headers"),
    Row("7.1d", "frames over sasl.server.max.receive.size end the connection before the login"),
    Row("7.1e", "a failed login gets its response after the delay, and the connection ends"),
    Row(
        "7.1f",
        "each order of steps of a re-login, with other principals and mechanisms, and too early",
    ),
    Row("7.1g", "after a session's end a request ends the connection, a login does not"),
    Row("7.2a", "PLAIN: good and bad messages, with Kafka's texts"),
    Row("7.2b", "SCRAM: each field of both messages, good and bad"),
    Row("7.2c", "OAUTHBEARER: framing, unsecured and signed tokens, the challenge, lifetimes"),
    Row("7.2d", "delegation tokens: created, described, renewed, expired, and used for logins"),
    Row("7.3a", "the TLS listener: plain bytes, hellos on plain listeners, versions of TLS"),
    Row("7.3b", "client certificates: missing, foreign, and the principal of a good one"),
    Row("7.3c", "Metadata and FindCoordinator name the listener of the connection"),
    Row("7.4", "SCRAM users: set, deleted, described, refused"),
    Row("8.1", "each field of ConsumerGroupHeartbeat, good and bad, joining and as a member"),
    Row("8.2", "epochs of heartbeats: older, newer, the previous one after a lost response"),
    Row("8.3", "errors of heartbeats: 25, 35, 42, 69, 81, 110, and leaving in each state"),
    Row("8.4", "reconciliation: each state, targets that change back, new epochs, topics"),
    Row("8.5", "static members: leaving for now, returning, 82, 111, and wrong ids"),
    Row("8.6", "OffsetCommit, TxnOffsetCommit and OffsetFetch with epochs: 25, 35, 113"),
    Row("8.7", "migration both ways, under each policy, and what is refused"),
    Row("8.8", "classic members of consumer groups: each request, 22, 23, 25, 27, 79, 82"),
    Row("8.9", "ConsumerGroupDescribe, ListGroups, DeleteGroups, OffsetDelete, LeaveGroup"),
    Row("8.10", "regular expressions: RE2J's words, whole names, resolution, changes"),
    Row("8.11", "configs of groups: names, bounds, defaults, effect, assignment interval"),
    Row("8.12", "timeouts: sessions, revocations, classic members that are late"),
    Row("8.13", "records of groups in `__consumer_offsets`, step by step"),
    Row("8.14", "brokers that do not coordinate the group: 16, 15 by look-up, 14 while loading"),
    Row("9.1", "ShareGroupHeartbeat: each field, good and bad, epochs, and leaving"),
    Row("9.2", "share groups in ShareGroupDescribe, ListGroups, DeleteGroups, other protocols"),
    Row("9.3", "ShareFetch and ShareAcknowledge: sessions, acquired ranges, acknowledgements"),
    Row("9.4", "the share coordinator: epochs of states and leaders, merged batches"),
    Row("9.5", "starts of share groups: described, set and deleted"),
    Row("9.6", "dead letters of share groups: topics, partitions, headers, copies, stored states"),
)
