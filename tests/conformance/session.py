"""Environment of a probe: one of the two clusters, unique names, and connections."""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from kohort.errors import ErrorCode
from kohort.protocol import Request, Response
from kohort.protocol.messages import (
    CreateTopicsRequest,
    DescribeGroupsRequest,
    DescribeTransactionsRequest,
    FindCoordinatorRequest,
    InitProducerIdRequest,
    ListOffsetsRequest,
    MetadataRequest,
    OffsetFetchRequest,
    ProduceRequest,
)
from kohort.records import Compression, NewRecord, encode_batch
from tests.conformance.masks import Masks
from tests.conformance.wire import Connection
from tests.support.certificates import Certificates
from tests.support.tokens import SigningKey

R = TypeVar("R", bound=Response)

READY_S = 150.0
"""Seconds for what happens soon, or after ``EXPIRY_MS``."""
MAX_PAUSE_S = 0.25
NETWORK_THREADS, ROUNDS = 3, 20
NOT_READY = (14, 15, 16)
"""Error codes of coordinators that load, or do not exist yet."""
T0 = 1_700_000_000_000
"""Default timestamp of records. It is a constant, so that it is compared."""


@dataclass(frozen=True)
class Secured:
    """Listeners of a secured cluster by name, with the credentials for them."""

    ports: Mapping[str, int]
    certificates: Certificates
    signing_key: SigningKey


@dataclass(frozen=True)
class SecondBroker:
    """Second broker of a cluster: its port, and functions that stop and start it.

    ``fail`` lets the next request of an API fail with an error. It is None for a broker that needs
    time to load its groups.
    """

    port: int
    stop: Callable[[], None]
    start: Callable[[], None]
    fail: Callable[[str, ErrorCode], object] | None = None


@dataclass(frozen=True)
class Target:
    """Cluster of one or two brokers. ``token`` is in all names, and the same for both clusters.

    ``compact`` starts a compaction of a topic, where none starts automatically.
    """

    name: str
    host: str
    port: int
    token: str
    compact: Callable[[str], None] | None = None
    secured: Secured | None = None
    second: SecondBroker | None = None


class Session:
    """One run of one probe against one cluster."""

    def __init__(self, target: Target, probe: str) -> None:
        self.target = target
        self._prefix = f"{probe}.{target.token}"
        self._connections: list[Connection] = []
        self._main: Connection | None = None
        ports = list(target.secured.ports.values()) if target.secured else []
        if target.second is not None:
            ports.append(target.second.port)
        self._masks = Masks(target.port, *ports)

    def close(self) -> None:
        for connection in self._connections:
            connection.close()

    def plain(self, value: object) -> Any:
        """Return an observation with its masks."""
        return self._masks.plain(value)

    def name_id(self, value: bytes, name: str) -> None:
        """Give an id a fixed name in the observations."""
        self._masks.name_id(value, name)

    # Connections

    def connect(self, client_id: str = "probe") -> Connection:
        connection = Connection(self.target.host, self.target.port, client_id)
        self._connections.append(connection)
        return connection

    @property
    def second(self) -> SecondBroker:
        """Return the second broker of a cluster with two."""
        assert self.target.second is not None
        return self.target.second

    def connect_to_second(self) -> Connection:
        connection = Connection(self.target.host, self.second.port, "probe")
        self._connections.append(connection)
        return connection

    @property
    def secured(self) -> Secured:
        """Return the TLS and SASL settings of a secured cluster."""
        assert self.target.secured is not None
        return self.target.secured

    def connect_to(
        self, listener: str, certificate: str | None = None, version: ssl.TLSVersion | None = None
    ) -> Connection:
        """Connect to a listener. ``certificate`` is the client's, if it uses TLS."""
        port = self.secured.ports[listener]
        connection = Connection(self.target.host, port, "probe")
        self._connections.append(connection)
        if listener in ("SSL", "MTLS", "SASL_SSL", "OAUTH"):
            files = self.secured.certificates
            context = ssl.create_default_context(cafile=files.ca)
            if version is not None:
                context.minimum_version = context.maximum_version = version
            if certificate is not None:
                pem, key = (files.path(f"{certificate}.{kind}") for kind in ("pem", "key"))
                context.load_cert_chain(pem, key)
            connection.start_tls(context)
        return connection

    @property
    def main(self) -> Connection:
        """Connection for requests that need no separate one."""
        if self._main is None:
            self._main = self.connect()
        return self._main

    def ask(self, request: Request[R], version: int) -> R:
        return self.main.ask(request, version)

    def let_through(self, group: str) -> None:
        """Return when the broker has handled all requests that were sent before.

        Nothing shows that a request of a group is parked. Many later requests go the same way,
        through each of the broker's network threads. The slower the machine, the longer that takes.
        """
        later = [self.connect() for _ in range(NETWORK_THREADS)]
        for _ in range(ROUNDS):
            for connection in later:
                connection.ask(DescribeGroupsRequest(groups=[group]), 5)

    # Names

    def name(self, label: str) -> str:
        """Return a name that no other probe and no other run has, the same on both clusters."""
        return f"{self._prefix}.{label}"

    def topic(
        self, label: str = "t", partitions: int = 1, configs: Mapping[str, str] | None = None
    ) -> str:
        """Create a topic and return its name once every partition has a leader that responds."""
        name = self.name(label)
        created = self.ask(
            CreateTopicsRequest(
                timeout_ms=20_000,
                topics=[
                    CreateTopicsRequest.CreatableTopic(
                        name=name,
                        num_partitions=partitions,
                        replication_factor=1,
                        configs=[
                            CreateTopicsRequest.CreatableTopicConfig(name=key, value=value)
                            for key, value in (configs or {}).items()
                        ],
                    )
                ],
            ),
            7,
        )
        assert created.topics[0].error_code == 0, created
        self.wait_for_leaders(name, partitions)
        return name

    def wait_for_leaders(self, name: str, partitions: int, epoch: int = -1) -> None:
        """Return when the broker responds for every partition, as its leader in this epoch."""
        deadline = time.monotonic() + READY_S
        while self.end_offsets(name, partitions, epoch).count(-1):
            assert time.monotonic() < deadline, f"{name} has no leaders"
            time.sleep(0.005)

    def wait_until_gone(self, name: str) -> None:
        """Return when the broker does not know the topic."""
        asked = MetadataRequest(
            topics=[MetadataRequest.MetadataRequestTopic(name=name)],
            allow_auto_topic_creation=False,
        )
        deadline = time.monotonic() + READY_S
        while self.ask(asked, 9).topics[0].error_code == 0:
            assert time.monotonic() < deadline, f"{name} is still there"
            time.sleep(0.005)

    def end_offsets(self, name: str, partitions: int, epoch: int = -1) -> list[int]:
        """Return the end of each partition, or -1 for one without a leader in this epoch."""
        asked = ListOffsetsRequest(
            replica_id=-1,
            topics=[
                ListOffsetsRequest.ListOffsetsTopic(
                    name=name,
                    partitions=[
                        ListOffsetsRequest.ListOffsetsPartition(
                            partition_index=index, current_leader_epoch=epoch, timestamp=-1
                        )
                        for index in range(partitions)
                    ],
                )
            ],
        )
        answers = self.ask(asked, 6).topics[0].partitions
        found = {a.partition_index: -1 if a.error_code else a.offset for a in answers}
        return [found[index] for index in range(partitions)]

    def topic_id(self, name: str) -> bytes:
        asked = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=name)])
        return bytes(self.ask(asked, 12).topics[0].topic_id)

    @property
    def _good_codes(self) -> set[int]:
        """Error codes of a coordinator that is ready. It may be the second broker."""
        return {0} if self.target.second is None else {0, ErrorCode.NOT_COORDINATOR}

    def group(self, label: str = "g") -> str:
        """Return the name of a new group whose coordinator is ready."""
        name = self.name(label)
        deadline = time.monotonic() + READY_S
        find = FindCoordinatorRequest(coordinator_keys=[name])
        group = OffsetFetchRequest.OffsetFetchRequestGroup(group_id=name, topics=None)
        fetch = OffsetFetchRequest(groups=[group])
        while (
            self.ask(find, 4).coordinators[0].error_code
            or self.ask(fetch, 8).groups[0].error_code not in self._good_codes
        ):
            assert time.monotonic() < deadline, f"{name} has no coordinator"
            time.sleep(0.02)
        return name

    def transactional_id(self, label: str = "x") -> str:
        """Return a new transactional id whose coordinator is ready."""
        name = self.name(label)
        deadline = time.monotonic() + READY_S
        find = FindCoordinatorRequest(key_type=1, coordinator_keys=[name])
        describe = DescribeTransactionsRequest(transactional_ids=[name])
        while (
            self.ask(find, 4).coordinators[0].error_code
            or self.ask(describe, 0).transaction_states[0].error_code
            in set(NOT_READY) - self._good_codes
        ):
            assert time.monotonic() < deadline, f"{name} has no coordinator"
            time.sleep(0.02)
        return name

    def warm_up(self) -> None:
        """Wait for what a cluster does once: create internal topics, allocate producer ids."""
        self.group()
        self.transactional_id()
        deadline = time.monotonic() + READY_S
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        while self.ask(request, 4).error_code:
            assert time.monotonic() < deadline, "no producer ids"
            time.sleep(0.02)

    # Records

    def produce(
        self, topic: str, *batches: bytes, partition: int = 0, version: int = 9, acks: int = -1
    ) -> list[int]:
        """Append batches, one request each, and return their base offsets."""
        offsets = []
        for batch in batches:
            answer = self.ask(produce_request(topic, batch, partition, acks), version)
            result = answer.responses[0].partition_responses[0]
            assert result.error_code == 0, answer
            offsets.append(result.base_offset)
        return offsets


def wait_for(holds: Callable[[], bool], what: str) -> None:
    """Return when it holds. The pauses grow, so that a long wait does not load the machine."""
    deadline = time.monotonic() + READY_S
    pause = 0.002
    while not holds():
        assert time.monotonic() < deadline, f"not in {READY_S:.0f} s: {what}"
        time.sleep(pause)
        pause = min(1.5 * pause, MAX_PAUSE_S)


def produce_request(
    topic: str, records: bytes | None, partition: int = 0, acks: int = -1, topic_id: bytes = b""
) -> ProduceRequest:
    data = ProduceRequest.PartitionProduceData(index=partition, records=records)
    named = ProduceRequest.TopicProduceData(name=topic, partition_data=[data])
    if topic_id:
        named = ProduceRequest.TopicProduceData(topic_id=topic_id, partition_data=[data])
    return ProduceRequest(acks=acks, timeout_ms=10_000, topic_data=[named])


def batch(
    *values: bytes | None,
    timestamps: Sequence[int] = (),
    compression: Compression = Compression.NONE,
    **header: Any,
) -> bytes:
    """Return a batch of records without keys. ``header`` has further arguments of
    ``encode_batch``.
    """
    times = timestamps or [T0 + index for index in range(len(values))]
    records = [NewRecord(at, None, value) for at, value in zip(times, values, strict=True)]
    return encode_batch(records, compression=compression, **header)
