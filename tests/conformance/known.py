"""Known differences and their reasons."""

from __future__ import annotations

import re
from dataclasses import dataclass

from kohort.broker.apis import SERVED
from tests.conformance.probe import Difference


@dataclass(frozen=True)
class Known:
    """Known difference. ``places`` has regular expressions for its paths, by probe."""

    title: str
    why: str
    places: dict[str, tuple[str, ...]]

    def covers(self, probe: str, difference: Difference) -> bool:
        return any(re.fullmatch(path, difference.path) for path in self.places.get(probe, ()))


_KAFKAS = {
    "authentication and ACLs": (17, 29, 30, 31, 36, 38, 39, 40, 41, 50, 51),
    "moving replicas and electing leaders": (34, 43, 45),
    "quotas": (48, 49),
    "features, nodes and voters of the quorum": (57, 64, 80, 81, 94),
    "the newer group protocols": (68, *range(76, 80), *range(83, 94)),
}
"""APIs that Apache Kafka advertises and that are not served here, or were not at some time."""

_NOT_SERVED = {
    what: left
    for what, keys in _KAFKAS.items()
    if (left := [str(key) for key in keys if key not in SERVED])
}


def _count(keys: list[str]) -> str:
    return "keys" if len(keys) > 1 else "key"


KNOWN = (
    Known(
        "APIs that are not served",
        "The cluster does not advertise these, and clients do without them. "
        + " ".join(
            f"{what[0].upper()}{what[1:]} have {_count(keys)} {', '.join(keys)}."
            for what, keys in _NOT_SERVED.items()
        ),
        {
            "advertised_versions": tuple(
                rf"version \d\.apis\.{key}" for keys in _NOT_SERVED.values() for key in keys
            )
        },
    ),
    Known(
        "Features",
        "The cluster has the features group.version, metadata.version, share.version and "
        "transaction.version. The others of Kafka need APIs that are not served, or its "
        "controllers. Clients that do not see them use the APIs that every broker has.",
        {"features": (r"version [345]\.(supported|finalized)\.(?!transaction).*",)},
    ),
    Known(
        "Strings that are not UTF-8",
        "Kafka replaces the invalid bytes by a replacement character and looks for a topic of "
        "that name. The cluster ends the connection.",
        {"frames_that_cannot_be_read_close": ("no UTF-8",)},
    ),
    Known(
        "Requests without a response from Kafka",
        "If a member sends JoinGroup or SyncGroup twice, Kafka responds only to the second one. It "
        "does not respond to the SyncGroup of a removed member, or to a partition with null for "
        "records. Those connections hang until the client's timeout. The cluster responds with "
        "errors 27, 27, 25 and 87.",
        {
            "a_parked_member_asks_again": ("the earlier one is never answered",),
            "a_parked_sync_is_sent_again": ("the earlier one is never answered",),
            "a_member_that_leaves_while_it_syncs": ("its sync is never answered",),
            "null_for_records": ("never",),
        },
    ),
    Known(
        "Content of a batch",
        "Kafka reads every record that is produced and refuses a batch with a malformed one. It "
        "also corrects the header's largest timestamp and timestamp type. The cluster checks "
        "header and checksum, and reads records only where the topic's settings require it. "
        "Reading all of them would make it several times slower.",
        {
            "batches_that_lie": (
                r"stored\..*\.records\[2\]\.attributes",
                r"stored\..*\.records\[2\]\.records\[0\]\[1\]",
                r"stored\..*\.records\[4\]\.max_timestamp",
            ),
            "records_that_cannot_be_read": (
                r"(record length|compressed)\..*\.(error_code|base_offset)",
                r"stored\[0\]",
            ),
        },
    ),
    Known(
        "The largest timestamp of an emptied log",
        "Deleted records stay in Kafka's files until their segments are deleted. ListOffsets -3 "
        "finds them there, below the log's start. The cluster finds nothing.",
        {
            "special_timestamps_after_everything_was_deleted": (
                r"-3\.topics\[0\]\.partitions\[0\]\.(timestamp|offset|leader_epoch)",
            ),
        },
    ),
    Known(
        "Equal votes for two assignors",
        "As many members may name one assignor as another one. Kafka then compares two hash tables "
        "of different order. So heartbeats may begin new epochs although no vote has changed. The "
        "cluster takes the broker's first assignor and keeps the epoch.",
        {
            "assignors_of_a_group": (
                r"c joined\[1\]",
                r"c joined, assigned.*",
                r"all uniform.*",
                r"not yet.*",
                r"topics change\.member_epoch",
            )
        },
    ),
    Known(
        "Members without topics",
        "A member with an empty subscription may join before the next target assignment. Kafka "
        "then takes the first member of a hash table, and assigns its topics to all. Others lose "
        "their partitions if that is the member without topics. In the cluster each member gets "
        "partitions of its topics.",
        {
            "a_member_without_topics_joins": (
                r"(range|uniform): the other beats\.(member_epoch|assignment)",
                r"(range|uniform): described\..*",
            )
        },
    ),
    Known(
        "The start of a log inside a transaction",
        "Records of an open transaction may be deleted. Kafka's last stable offset then stays "
        "below the start of the log until the next write. The cluster's is the start of the log, "
        "which is also Kafka's after that write.",
        {
            "deleting_what_is_open": (
                r"ends\[0\]\.topics\[0\]\.partitions\[0\]\.offset",
                r"fetched\.responses\[0\]\.partitions\[0\]\.last_stable_offset",
            ),
        },
    ),
    Known(
        "The first look-up of a coordinator",
        "Kafka starts to create the topic of offsets then, and responds with error 15. The cluster "
        "creates the topic at once and responds with the coordinator.",
        {"groups_before_the_offsets_topic": (r"first look-up\.coordinators\[0\]\..*",)},
    ),
    Known(
        "Too few replicas of the groups' records",
        "__consumer_offsets may have fewer replicas in sync than min.insync.replicas. Kafka then "
        "responds with error 15 to each request that writes a record. The cluster writes it.",
        {
            "groups_with_too_few_replicas": (
                r"commit\.topics\[0\]\.partitions\[0\]\.error_code",
                r"delete\.results\[0\]\.error_code",
                r"offset delete\.(error_code|topics.*)",
                r"join\..*",
                r"leave\.(error_code|members.*)",
                r"described (members|new)\..*",
            )
        },
    ),
    Known(
        "Sizes of disks",
        "The logs are in memory, so the size of the disk is reported as -1 (unknown).",
        {"log_directories": (r".*\.(total|usable)_bytes",)},
    ),
    Known(
        "The metadata's log",
        "The cluster has none, so the quorum's offsets are 0.",
        {"the_metadata_quorum": (r"metadata \d\..*\.(high_watermark|log_end_offset)",)},
    ),
)


def unexplained(probe: str, found: list[Difference]) -> list[Difference]:
    """Return the differences that no known difference covers."""
    return [one for one in found if not any(known.covers(probe, one) for known in KNOWN)]


def gone(probe: str, found: list[Difference]) -> list[str]:
    """Return the known differences of the probe that were not found."""
    return [
        f"{known.title}: {path}"
        for known in KNOWN
        for path in known.places.get(probe, ())
        if not any(re.fullmatch(path, one.path) for one in found)
    ]
