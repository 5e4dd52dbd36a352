"""What is to be probed, row by row; the probes say which rows they are for."""

from __future__ import annotations

from dataclasses import dataclass

SECTIONS = {
    "2": "Rules of the wire",
    "3": "Every API in every version",
    "6": "What a faithful broker does",
    "7": "TLS, logins and users",
}

NOT_HERE = "The cluster leaves this out on purpose: "
ONE_BROKER = (
    "Needs a second broker, and Apache Kafka runs as a single one here; "
    "`tests/testing/test_brokers.py` and `test_failover.py` hold it on the cluster."
)


@dataclass(frozen=True)
class Row:
    """``number``: section, row, and a letter for each thing that it says. ``reason``: no probe."""

    number: str
    says: str
    reason: str = ""


ROWS = (
    Row(
        "2.1a",
        "ApiVersions in an unknown version: header and body of version 0, error 35, its "
        "own range alone",
    ),
    Row("2.1b", "any other API in an unknown version, and an unknown key: the connection ends"),
    Row("2.1c", "the ranges that ApiVersions tells, Produce from 0 on"),
    Row("2.2a", "the header of the ApiVersions answer is version 0 in every version"),
    Row("2.2b", "names of client software that are not taken: error 42"),
    Row("2.3a", "the client id in the header is an int16 string in flexible versions, too"),
    Row("2.3b", "OffsetDelete and SaslHandshake never become flexible"),
    Row("2.3c", "Produce with acks=0 has no answer"),
    Row("2.4a", "tagged fields: unknown ones are skipped, defaults are left out"),
    Row("2.4b", "a nullable structure in line is an int8, -1 or 1"),
    Row(
        "2.4c",
        "a nullable structure inside of a tagged field is a uvarint, 0 or 1",
        "No request or answer has one, only records of `__consumer_offsets`; "
        "`tests/protocol/test_golden.py` reads and writes those byte by byte.",
    ),
    Row("2.5a", "answers come in the order of the requests; requests may be pipelined"),
    Row("2.5b", "a fetch that waits holds up no other connection"),
    Row(
        "2.5c",
        "frames that cannot be read end the connection; what is behind a request is ignored",
    ),
    Row(
        "2.6a",
        "JoinGroup from version 4 on: error 79 and a new id of client id and uuid; not "
        "before, not for static members",
    ),
    Row(
        "2.6b",
        "JoinGroup refused: unknown member 25 with its id, empty group 24, no protocols "
        "23, session timeout 26",
    ),
    Row("2.7a", "Heartbeat and SyncGroup for an unknown group: 25"),
    Row("2.7b", "LeaveGroup for an unknown group: 0, and 25 for each member"),
    Row(
        "2.7c",
        "DescribeGroups of an unknown group: state Dead, from version 6 on error 69 with a message",
    ),
    Row("2.7d", "DeleteGroups of an unknown group: 69"),
    Row("2.7e", "ConsumerGroupDescribe of a classic group: 69, so that clients fall back"),
    Row(
        "2.7f",
        "ConsumerGroupHeartbeat: unknown group 69, joining without partitions 42",
        "The newer group protocol (KIP-848) is not served yet; the API is not advertised.",
    ),
    Row("2.8a", "OffsetCommit with generation -1 and no member makes or uses an empty group"),
    Row(
        "2.8b",
        "OffsetCommit with a generation to an unknown group: 69 from version 9 on, 22 before",
    ),
    Row("2.8c", "OffsetCommit for unknown topics and partitions: 3"),
    Row("2.8d", "metadata over 4096: 12"),
    Row("2.8e", "what is committed comes back: epochs, any offset, the later of two"),
    Row("2.9a", "OffsetFetch with nothing committed: -1, -1, an empty string, no error"),
    Row("2.9b", "null topics are all of them; every version"),
    Row("2.9c", "several groups from version 8 on"),
    Row("2.9d", "require_stable without an open transaction"),
    Row("2.9e", "member ids and epochs in OffsetFetch for a classic group"),
    Row("2.9f", "offsets of topics that are deleted"),
    Row("2.9g", "require_stable with an open transaction: 88 for each partition"),
    Row(
        "2.10a",
        "ListOffsets of the special timestamps -1 to -6, and 35 for others, in each version",
    ),
    Row(
        "2.10b",
        "ListOffsets by time: the first record not older, -1 without an error if there is none",
    ),
    Row("2.10c", "ListOffsets with a later epoch: 75"),
    Row("2.10d", "ListOffsets of what is not there, and twice"),
    Row("2.10e", "ListOffsets, Fetch and OffsetForLeaderEpoch with an older epoch: 74"),
    Row(
        "2.11a",
        "Fetch out of range: error 1, all offsets -1, no records, and not null; every version",
    ),
    Row(
        "2.11b",
        "Fetch at the end and with less than min_bytes waits max_wait, then answers with "
        "what there is",
    ),
    Row("2.11c", "Fetch with a later epoch: 75"),
    Row("2.11d", "Fetch with the epoch of the last fetched record: where the logs part"),
    Row("2.11e", "Fetch of unknown topics and partitions: 3, by id 100"),
    Row("2.11f", "aborted transactions are null unless committed records are asked for"),
    Row("2.11g", "limits: a first batch is returned whatever its size, the last one is cut off"),
    Row("2.11h", "a batch is returned whole, from before the offset that is asked for"),
    Row("2.12a", "Metadata in every version, with all brokers"),
    Row("2.12b", "unknown topics 3, invalid names 17"),
    Row("2.12c", "no topics and all topics"),
    Row("2.12d", "operations of the cluster in versions 8 to 10 only"),
    Row("2.12e", "topics by id"),
    Row("2.12f", "internal topics"),
    Row("2.13a", "batches are stored and fetched as producers wrote them"),
    Row("2.13b", "LogAppendTime, bounds for times, a topic's own codec"),
    Row("2.13c", "zstd and versions that do not know it"),
    Row("2.13d", "batches over max.message.bytes: 10"),
    Row("2.13e", "batches that are damaged or lie, records without a key in compacted topics"),
    Row(
        "2.14a",
        "compaction keeps base and last offset of a batch and each record's delta",
    ),
    Row(
        "2.14b",
        "retention by time",
    ),
    Row("2.15a", "control records of transactions"),
    Row("3", "every version that the cluster advertises is asked for"),
    Row("6.1a", "a member id that is handed out starts no rebalance"),
    Row(
        "6.1b",
        "the barrier: JoinGroup is parked until all known members have rejoined; the "
        "generation counts at its end",
    ),
    Row("6.1c", "or until the largest rebalance timeout of the members has passed"),
    Row("6.1d", "or until the session of a silent member is over"),
    Row(
        "6.1e",
        "the first joiner leads, is kept if it rejoins, and is replaced by a live one; "
        "only it gets the members",
    ),
    Row("6.1f", "JoinGroup in every version"),
    Row("6.1g", "the vote for a protocol; incompatible protocols 23"),
    Row("6.1h", "the initial delay of an empty group, which new members extend"),
    Row("6.1i", "ids that were handed out: they expire, are waited for, may leave"),
    Row("6.1j", "the largest size of a group: 81"),
    Row("6.2a", "Heartbeat in each state: 27 while preparing, else 0; generation 22, member 25"),
    Row("6.2b", "SyncGroup in each state: parked, repeated, 27, 22, 23"),
    Row(
        "6.2c",
        "OffsetCommit in each state: preparing 0, completing 27, stable 0, generation 22,"
        " member 25",
    ),
    Row("6.2d", "JoinGroup in each state"),
    Row("6.2e", "DeleteGroups in each state: 68 unless empty"),
    Row("6.2f", "LeaveGroup in each state: a code for each member, 0 at the top"),
    Row("6.2g", "DescribeGroups and OffsetFetch in each state"),
    Row(
        "6.3a",
        "a static member that comes back to a stable group: same generation, new id, "
        "skip_assignment",
    ),
    Row("6.3b", "a static member that comes back with another subscription"),
    Row("6.3c", "the old id of a static member is fenced: 82 everywhere"),
    Row("6.3d", "unknown instance ids: 25"),
    Row("6.3e", "static members are removed by instance id, or by their session"),
    Row("6.4a", "a follower that rejoins unchanged is told the generation"),
    Row("6.4b", "a leader that rejoins, and changed metadata, begin a rebalance"),
    Row("6.4c", "a first static join needs no second request"),
    Row("6.4d", "rejoining before the assignment"),
    Row("6.5a", "what begins a session anew: heartbeat, commit, join"),
    Row("6.5b", "the session's end removes the member"),
    Row("6.5c", "the session's end completes the barrier"),
    Row("6.5d", "sessions do not run out while a request is parked"),
    Row("6.5e", "members that do not sync within the rebalance timeout are removed"),
    Row("6.6a", "the long poll, woken by produce"),
    Row("6.6b", "max_bytes of the answer and of partitions"),
    Row("6.6c", "fetch sessions: opened, continued, closed"),
    Row(
        "6.6d",
        "only what has changed is told; partitions are added, changed, forgotten, and take turns",
    ),
    Row("6.6e", "session errors 70, 71 and 106"),
    Row("6.6f", "errors of partitions in sessions"),
    Row("6.6g", "OffsetForLeaderEpoch"),
    Row("6.6h", "the preferred replica of a rack", ONE_BROKER),
    Row(
        "6.7a",
        "errors 5 and 6 for a moment after a topic is made",
        "They come only sometimes, as Kafka's parts learn of the topic; every probe waits until "
        "they are over.",
    ),
    Row("6.7b", "topics are made by asking, unless the request forbids it"),
    Row("6.8a", "producer ids"),
    Row("6.8b", "sequences of each producer and partition"),
    Row("6.8c", "duplicates of the last five batches: their first offset, no error"),
    Row("6.8d", "gaps: 45"),
    Row("6.8e", "epochs of producers: 47"),
    Row("6.8f", "a transactional producer that is fenced: 90"),
    Row("6.9a", "the finalized features that ApiVersions tells"),
    Row("6.9b", "transactions of both versions: last stable offset, markers, 51, 88"),
    Row(
        "6.10",
        "COORDINATOR_LOAD_IN_PROGRESS right after the start",
        "Kafka answers so once in its life, at a moment that cannot be met; the cluster does when "
        "a test tells it to (`cluster.fail`).",
    ),
    Row("6.11", "the newer group protocol (KIP-848)", "Not served yet."),
    Row(
        "6.12",
        "replication, throttling, quotas, SSL, tiers, telemetry",
        NOT_HERE + "there is one log to a partition, and nothing is held back.",
    ),
    Row("7.1a", "each order of steps before a login, and what each one answers"),
    Row("7.1b", "SaslHandshake: versions, unknown mechanisms 33, repeated 34, without SASL 34"),
    Row("7.1c", "SaslAuthenticate in each version, and tokens without headers"),
    Row("7.1d", "frames over sasl.server.max.receive.size end the connection before the login"),
    Row("7.1e", "a failed login is answered after the delay, and the connection ends"),
    Row("7.1f", "each order of steps of a re-login; other principals and mechanisms; too early"),
    Row("7.1g", "a session that is over: the next request ends the connection, a login does not"),
    Row("7.2a", "PLAIN: good and bad messages, with Kafka's texts"),
    Row("7.2b", "SCRAM: each field of both messages, good and bad"),
    Row("7.2c", "OAUTHBEARER: framing, unsecured and signed tokens, the challenge, lifetimes"),
    Row("7.2d", "delegation tokens: created, described, renewed, expired, and used for logins"),
    Row("7.3a", "the TLS listener: plain bytes, hellos on plain listeners, versions of TLS"),
    Row("7.3b", "client certificates: missing, foreign, and the principal of a good one"),
    Row("7.3c", "Metadata and FindCoordinator name the listener that was asked"),
    Row("7.4", "SCRAM users: set, deleted, described, refused"),
)
