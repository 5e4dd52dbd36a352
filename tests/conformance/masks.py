"""Responses as plain values: values that two clusters cannot have in common are masked.

Numbered names replace ids, times and ports in the order in which they are seen. The same id always
gets the same name. Examples are ``<id 1>``, ``probe-<uuid 2>``, ``<now>``.
"""

from __future__ import annotations

import base64
import re
import time
from typing import Any

from kohort.protocol import ZERO_UUID, Struct
from kohort.records import Compression, RecordBatch, split_batches

_MEMBER_ID = re.compile(r"[\w-]{22}")
"""Member ids that a broker invents for consumer groups: 16 bytes as text."""
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_DAY_MS = 86_400_000
_UNORDERED = {
    ("JoinGroupResponse", "members"),
    ("DescribedGroup", "members"),
    ("DescribeGroupsResponse", "groups"),
    ("ConsumerGroupDescribeResponse", "groups"),
    ("ShareGroupDescribeResponse", "groups"),
    ("Member", "subscribed_topic_names"),
    ("Assignment", "topic_partitions"),
    ("TopicPartitions", "partitions"),
    ("ConsumerGroupTargetAssignmentMemberValue", "topic_partitions"),
    ("TopicPartition", "partitions"),
    ("GroupMetadataValue", "members"),
    ("DeleteGroupsResponse", "results"),
    ("ListGroupsResponse", "groups"),
    ("ListOffsetsResponse", "topics"),
    ("ListOffsetsTopicResponse", "partitions"),
    ("OffsetFetchResponse", "topics"),
    ("OffsetFetchResponse", "groups"),
    ("OffsetFetchResponseTopic", "partitions"),
    ("OffsetFetchResponseGroup", "topics"),
    ("OffsetFetchResponseTopics", "partitions"),
    ("MetadataResponse", "topics"),
    ("DescribeConfigsResult", "configs"),
    ("ListConfigResourcesResponse", "config_resources"),
    ("DescribeLogDirsResult", "topics"),
    ("DescribeLogDirsTopic", "partitions"),
    ("AlterReplicaLogDirsResponse", "results"),
    ("AlterReplicaLogDirTopicResult", "partitions"),
    ("TransactionState", "topics"),
    ("TopicData", "partitions"),
    ("ListTransactionsResponse", "transaction_states"),
    ("PartitionResponse", "active_producers"),
    ("AddPartitionsToTxnResponse", "results_by_topic_v3_and_below"),
    ("AddPartitionsToTxnTopicResult", "results_by_partition"),
    ("AddPartitionsToTxnResult", "topic_results"),
    ("TxnOffsetCommitResponse", "topics"),
    ("TxnOffsetCommitResponseTopic", "partitions"),
    ("WritableTxnMarkerTopicResult", "partitions"),
    ("PartitionsSchema", "partition_ids"),
}
"""Lists that Kafka takes from a hash table. They are sorted before they are compared."""

_WORDING = {"error_message", "batch_index_error_message"}
"""Fields of texts for humans. Only their presence is compared, except for texts about rights."""
_ABOUT_RIGHTS = re.compile(r"[\w ]+ authorization failed\.|NONE")

_FIXED = "<id of "


class Masks:
    """Masks of one run of one probe."""

    def __init__(self, *ports: int) -> None:
        self._ports = ports
        self._names: dict[object, str] = {}

    def _name(self, kind: str, value: object) -> str:
        if value not in self._names:
            number = 1 + sum(name.startswith(f"<{kind} ") for name in self._names.values())
            self._names[value] = f"<{kind} {number}>"
        return self._names[value]

    def name_id(self, value: bytes, name: str) -> None:
        """Give an id a fixed name."""
        self._names[value] = f"{_FIXED}{name}>"

    def plain(self, value: object, field: str = "") -> Any:
        """Return ``value`` as dicts, lists and constants, with messages by their fields."""
        if isinstance(value, Struct):
            return self._struct(value)
        if isinstance(value, list | tuple):
            return [self.plain(item, field) for item in value]
        if isinstance(value, dict):
            return {str(key): self.plain(item, str(key)) for key, item in value.items()}
        if isinstance(value, bytes | bytearray | memoryview):
            return self._bytes(bytes(value), field)
        if isinstance(value, str):
            return self._text(value, field)
        if isinstance(value, int) and not isinstance(value, bool):
            return self._number(int(value), field)
        return value

    def _struct(self, struct: Struct) -> dict[str, Any]:
        cls = type(struct).__name__
        plain = {}
        for spec in struct._fields:
            value = getattr(struct, spec.name)
            if (cls, spec.name) in _UNORDERED and value:
                value = sorted(value, key=self._rank)
            plain[spec.name] = self.plain(value, spec.name)
        return plain

    def _rank(self, item: Struct | int | str) -> tuple[str, list[str]]:
        """Return a sort key that depends on an id only if nothing else is different."""
        masks = Masks(*self._ports)
        masks._names = {key: name for key, name in self._names.items() if name.startswith(_FIXED)}
        text = repr(masks.plain(item))
        ids = [self._names.get(uuid, "") for uuid in _UUID.findall(repr(item))]
        return re.sub(r"<uuid \d+>", "", text), ids

    def _number(self, value: int, field: str) -> object:
        if field.endswith("producer_id") and value >= 0:
            return self._name("producer_id", ("producer_id", value))
        if field == "session_id" and value > 0:
            return self._name(field, (field, value))
        if field == "port" and value in self._ports:
            number = self._ports.index(value)
            return f"<port {number}>" if number else "<port>"
        if abs(value - time.time() * 1000) < _DAY_MS:
            return "<now>"
        return value

    def _text(self, value: str, field: str) -> str:
        if field == "cluster_id" and value:
            return f"<{len(value)} characters>"
        if field in _WORDING and value and not _ABOUT_RIGHTS.fullmatch(value):
            return "<text>"
        if field in ("member_id", "leader") and _MEMBER_ID.fullmatch(value):
            return self._name("member", value)
        for known, name in self._names.items():
            if isinstance(known, bytes):
                value = value.replace(base64_id(known), name)
        return _UUID.sub(lambda match: self._name("uuid", match[0]), value)

    def _bytes(self, value: bytes, field: str) -> object:
        if field == "records":
            split = split_batches(value)
            batches = [self._batch(batch) for batch in split]
            return [*batches, f"{split.tail_size} bytes cut off"] if split.tail_size else batches
        if field.endswith("_id") and len(value) == len(ZERO_UUID):
            return "<no id>" if value == ZERO_UUID else self._name("id", value)
        return value

    def _batch(self, batch: RecordBatch) -> dict[str, Any]:
        """Return a stored batch: its records and its header without the checksum,
        which is checked.
        """
        batch.check_crc()
        header = batch.header
        plain: dict[str, Any] = {
            name: self.plain(getattr(header, name), name)
            for name in (
                "base_offset",
                "partition_leader_epoch",
                "magic",
                "attributes",
                "last_offset_delta",
                "base_timestamp",
                "max_timestamp",
                "producer_id",
                "producer_epoch",
                "base_sequence",
                "count",
            )
        }
        if header.compression is Compression.NONE:
            plain["length"] = header.length
        plain["records"] = [
            [
                record.offset,
                self.plain(record.timestamp),
                self.plain(record.key),
                self.plain(record.value),
                [list(pair) for pair in record.headers],
            ]
            for record in batch.records()
        ]
        return plain


def base64_id(value: bytes) -> str:
    """Return 16 bytes as Kafka writes them in its messages."""
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()
