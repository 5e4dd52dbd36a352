"""The differences that are known, and why they are there."""

from __future__ import annotations

import re
from dataclasses import dataclass

from kohort.broker.apis import SERVED
from tests.conformance.probe import Difference


@dataclass(frozen=True)
class Known:
    """``places``: for each probe the paths (regular expressions) where the difference shows."""

    title: str
    why: str
    places: dict[str, tuple[str, ...]]

    def covers(self, probe: str, difference: Difference) -> bool:
        return any(re.fullmatch(path, difference.path) for path in self.places.get(probe, ()))


_KAFKAS = {
    "authentication and ACLs": (17, 29, 30, 31, 36, 38, 39, 40, 41, 50, 51),
    "moving replicas and electing leaders": (34, 43, 45),
    "quotas": (48, 49),
    "features, brokers and voters of the quorum": (57, 64, 80, 81),
    "the newer group protocols": (68, *range(76, 80), *range(83, 93)),
}
"""APIs that Apache Kafka advertises and that are not served here, or were once not."""

UNSERVED = {
    68: "a member id, its epoch, how often to heartbeat, and an assignment by topic ids",
    76: "a member id, its epoch, how often to heartbeat, and an assignment by topic ids",
    77: "the groups: state, epochs, the assignor simple, members, authorized operations",
    78: "records that are locked for this member for a time, and where each range of them ends",
    79: "an error code for each partition, and how long records are locked",
    90: "where each partition of the groups begins, its epoch, its lag, or an error code",
}
"""APIs among recorded requests that are not served: what Apache Kafka answers them."""

_NOT_SERVED = {
    what: left
    for what, keys in _KAFKAS.items()
    if (left := [str(key) for key in keys if key not in SERVED])
}

KNOWN = (
    Known(
        "APIs that are not served",
        "What is not implemented is not advertised either, and clients go without it: "
        + ", ".join(f"{what} ({', '.join(keys)})" for what, keys in _NOT_SERVED.items())
        + ".",
        {
            "advertised_versions": tuple(
                rf"version \d\.apis\.{key}" for keys in _NOT_SERVED.values() for key in keys
            )
        },
    ),
    Known(
        "Features",
        "The cluster reports transaction.version alone. The other features of Kafka belong to "
        "what is not served, or to its controllers: clients that do not see them keep "
        "to what every broker can do.",
        {"features": (r"version [34]\.(supported|finalized)\.(?!transaction).*",)},
    ),
    Known(
        "Strings that are no UTF-8",
        "Kafka puts a replacement character for what it cannot read and looks for a topic of "
        "that name; the cluster ends the connection.",
        {"frames_that_cannot_be_read_close": ("no UTF-8",)},
    ),
    Known(
        "Requests that Kafka forgets",
        "A JoinGroup or SyncGroup that is sent a second time takes the place of the first, a "
        "member that is sent away leaves its SyncGroup behind, and a partition with null for "
        "records is dropped on the way: Kafka never answers those, and their connections hang "
        "until the client gives up. The cluster answers them with an error (27, 27, 25, 87).",
        {
            "a_parked_member_asks_again": ("the earlier one is never answered",),
            "a_parked_sync_is_sent_again": ("the earlier one is never answered",),
            "a_member_that_leaves_while_it_syncs": ("its sync is never answered",),
            "null_for_records": ("never",),
        },
    ),
    Known(
        "What is inside of a batch",
        "Kafka reads every record that is produced, refuses a batch with one that cannot be read, "
        "and puts the header's largest timestamp and timestamp type right. The cluster checks "
        "header and checksum, and looks at records only where the topic's settings ask for it: "
        "reading all of them would make it several times slower.",
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
        "Deleted records stay in Kafka's files until it tidies up, and ListOffsets -3 finds them "
        "there, below the log's start. The cluster finds nothing.",
        {
            "special_timestamps_after_everything_was_deleted": (
                r"-3\.topics\[0\]\.partitions\[0\]\.(timestamp|offset|leader_epoch)",
            ),
        },
    ),
    Known(
        "Settings of groups",
        "They are for the newer group protocols, and come with those.",
        {"settings_of_groups": (r"(described|changed|unknown)\..*",)},
    ),
    Known(
        "The start of a log in the middle of a transaction",
        "Where records of an open transaction are deleted, Kafka's last stable offset stays below "
        "the start of the log until something is written next. The cluster's is the start of the "
        "log, where Kafka's comes to be, too.",
        {
            "deleting_what_is_open": (
                r"ends\[0\]\.topics\[0\]\.partitions\[0\]\.offset",
                r"fetched\.responses\[0\]\.partitions\[0\]\.last_stable_offset",
            ),
        },
    ),
    Known(
        "Sizes of disks",
        "The logs are in memory: the size of the disk is reported as -1, unknown.",
        {"log_directories": (r".*\.(total|usable)_bytes",)},
    ),
    Known(
        "The metadata's log",
        "There is none here: the quorum's offsets are 0.",
        {"the_metadata_quorum": (r"metadata \d\..*\.(high_watermark|log_end_offset)",)},
    ),
)


def unexplained(probe: str, found: list[Difference]) -> list[Difference]:
    """The differences that nothing here is about."""
    return [one for one in found if not any(known.covers(probe, one) for known in KNOWN)]


def gone(probe: str, found: list[Difference]) -> list[str]:
    """What is listed here for the probe and does not show any more."""
    return [
        f"{known.title}: {path}"
        for known in KNOWN
        for path in known.places.get(probe, ())
        if not any(re.fullmatch(path, one.path) for one in found)
    ]
