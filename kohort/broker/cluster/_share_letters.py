"""Dead letters of share groups (KIP-1191): records that no member could process, in a topic.

A letter is best effort, as in Kafka. If the topic takes none, one line of the log says why, and the
record is archived all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from kohort.broker._broker_node import BrokerNode
from kohort.broker.cluster._topics import NO_LEADER, Topic, Topics
from kohort.broker.configs._broker_configs import BrokerConfigs
from kohort.broker.configs._cluster_config import ClusterConfig
from kohort.broker.configs._topic_settings import is_legal_name
from kohort.broker.log import AppendError, PartitionLog
from kohort.broker.share import Letter, ShareKey
from kohort.logs import error_text, get_logger
from kohort.records import NewRecord, Record, RecordBatch, encode_batch

logger = get_logger("kohort.testing")

LETTERS_VERSION = 2
"""First level of share.version with dead letters."""
_TOPIC = "errors.deadletterqueue.topic.name"
_COPIES = "errors.deadletterqueue.copy.record.enable"
_CREATES = "errors.deadletterqueue.auto.create.topics.enable"
_PREFIX = "errors.deadletterqueue.topic.name.prefix"
_TAKES = "errors.deadletterqueue.group.enable"


class LetterCluster(Protocol):
    """Parts of the cluster's state that dead letters need."""

    config: ClusterConfig
    configs: BrokerConfigs
    topics: Topics
    now_ms: Callable[[], int]
    changed: Callable[[], None]

    def create_topic(
        self,
        name: str,
        partitions: int | None = None,
        replication_factor: int | None = None,
        configs: Mapping[str, str] | None = None,
    ) -> Topic:
        """Create a topic with the cluster's defaults for omitted values."""
        ...


class ShareLetters:
    """The dead letters that the brokers of a cluster write."""

    def __init__(self, cluster: LetterCluster) -> None:
        self._cluster = cluster

    def topic_of(self, group_id: str) -> str:
        """Return the name of the group's topic for dead letters, empty without one."""
        if self._cluster.config.share_version < LETTERS_VERSION:
            return ""
        return self._cluster.configs.groups.of(group_id).get(_TOPIC, "")

    def write(self, node: BrokerNode, key: ShareKey, letters: Sequence[Letter]) -> None:
        """Write the letters of offsets that share a broker and a partition."""
        name, source = self.topic_of(key.group_id), self._cluster.topics.by_id(key.topic_id)
        found = self._topic(node, name)
        if isinstance(found, str) or source is None:
            logger.warning("[%s] dead letters for %s are lost: %s", key.group_id, name, found)
            return
        target = found.partitions[key.partition % len(found.partitions)]
        if target.leader == NO_LEADER:
            logger.warning("[%s] dead letters for %s are lost: no leader", key.group_id, name)
            return
        is_copy = self._cluster.configs.groups.of(key.group_id).get(_COPIES, "false") == "true"
        log, now_ms = source.partitions[key.partition].log, self._cluster.now_ms()
        records = []
        for letter in letters:
            record = _record_at(log, letter.offset) if is_copy else None
            headers = (
                ("__dlq.errors.topic", source.name),
                ("__dlq.errors.partition", str(key.partition)),
                ("__dlq.errors.offset", str(letter.offset)),
                ("__dlq.errors.group", key.group_id),
                ("__dlq.errors.delivery.count", str(letter.deliveries)),
                ("__dlq.errors.message", letter.message),
            )
            records.append(
                NewRecord(
                    now_ms,
                    None if record is None else record.key,
                    None if record is None else record.value,
                    [(header, text.encode()) for header, text in headers],
                )
            )
        try:
            target.append(RecordBatch.of(encode_batch(records)), now_ms)
        except AppendError as error:
            logger.warning(
                "[%s] dead letters for %s are lost: %s", key.group_id, name, error_text(error)
            )
        self._cluster.changed()

    def _topic(self, node: BrokerNode, name: str) -> Topic | str:
        """Return the topic of this name, which may be created, or the reason why it takes none."""

        def value(config: str) -> str:
            return self._cluster.configs.origins(config, node)[0].value or ""

        if not name.startswith(value(_PREFIX)):
            return f"the name does not begin with {value(_PREFIX)!r}, as {_PREFIX} says"
        topic = self._cluster.topics.get(name)
        if topic is not None:
            return topic if topic.config(_TAKES) == "true" else f"{_TAKES} of the topic is false"
        if value(_CREATES).lower() != "true" or not is_legal_name(name):
            return f"the topic does not exist, and {_CREATES} is false"
        return self._cluster.create_topic(name, configs={_TAKES: "true"})


def _record_at(log: PartitionLog, offset: int) -> Record | None:
    """Return the record of an offset, None for a marker, a hole or a deleted record."""
    for batch in log.batches(offset):
        if batch.header.is_control or batch.header.base_offset > offset:
            return None
        return next((each for each in batch.records() if each.offset == offset), None)
    return None
