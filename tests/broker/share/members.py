"""Members of a share group that send raw requests to a cluster in the test's event loop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import anyio

from kohort.errors import ErrorCode
from kohort.protocol import Request, Response, decode_response, encode_request
from kohort.protocol import messages as m
from kohort.testing import MemoryCluster

R = TypeVar("R", bound=Response)
Acks = Mapping[int, Sequence[tuple[int, int, list[int]]]]
"""Partition -> (first offset, last offset, types) of acknowledgements"""
SHARE_STATE = "__share_group_state"


class Connection:
    """A connection to one broker of a cluster."""

    def __init__(self, cluster: MemoryCluster, node: int = 1) -> None:
        self._cluster = cluster
        self._node = node
        self._connection: Any = None

    async def ask(self, request: Request[R], version: int) -> R:
        """Send one request and return its response."""
        if self._connection is None:
            server = self._cluster.bootstrap_servers.split(",")[self._node - 1]
            host, port = server.rsplit(":", 1)
            self._connection = await self._cluster.connect(host, int(port))
        await self._connection.send(encode_request(request, version, 1, "probe"))
        frame = await self._exactly(int.from_bytes(await self._exactly(4), "big"))
        _, response = decode_response(request.response, version, frame)
        assert isinstance(response, request.response)
        return response  # type: ignore[return-value]  # the class of the answer is R's own

    async def _exactly(self, size: int) -> bytes:
        data = memoryview(bytearray(size))
        have = 0
        while have < size:
            count = await self._connection.recv_into(data[have:])
            assert count, "the broker closed the connection"
            have += count
        return bytes(data)

    async def close(self) -> None:
        """Close the connection; the next request opens another one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.aclose()


class Member:
    """A member of a share group at one broker, with the epochs of its requests."""

    def __init__(
        self, cluster: MemoryCluster, group: str, name: str, topic: str, node: int = 1
    ) -> None:
        self.cluster = cluster
        self.group = group
        self.member_id = f"{name}-{group}"
        self.topic = topic
        self.connection = Connection(cluster, node)
        self.member_epoch = 0
        self.session_epoch = 0
        self.partitions: set[int] = set()
        self.topic_id = b""

    async def join(self) -> None:
        """Find the group coordinator, join, and send heartbeats until there are partitions."""
        await self.connection.ask(
            m.FindCoordinatorRequest(key_type=0, coordinator_keys=[self.group]), 4
        )
        response = await self.heartbeat(epoch=0, topics=[self.topic])
        while response.assignment is None or not response.assignment.topic_partitions:
            # The first assignment was empty, and the next one comes after an interval.
            await anyio.sleep(0.2)
            response = await self.heartbeat()
        self.topic_id = bytes(response.assignment.topic_partitions[0].topic_id)

    async def heartbeat(
        self,
        epoch: int | None = None,
        topics: Sequence[str] | None = None,
        rack: str | None = None,
    ) -> m.ShareGroupHeartbeatResponse:
        request = m.ShareGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.member_id,
            member_epoch=self.member_epoch if epoch is None else epoch,
            rack_id=rack,
            subscribed_topic_names=None if topics is None else list(topics),
        )
        response = await self.connection.ask(request, 1)
        if not response.error_code:
            self.member_epoch = response.member_epoch
        return response

    async def fetch(
        self,
        acks: Acks | None = None,
        *,
        epoch: int | None = None,
        partitions: Sequence[int] = (0,),
        max_records: int = 500,
        batch_size: int = 500,
        wait_ms: int = 500,
        min_bytes: int = 1,
        max_bytes: int = 50 << 20,
        mode: int = 0,
        renew: bool = False,
    ) -> m.ShareFetchResponse:
        """Fetch; partitions that the session does not have are added to it."""
        cls = m.ShareFetchRequest
        sent = self.session_epoch if epoch is None else epoch
        acks = acks or {}
        added = set(partitions) if sent == 0 else set(partitions) - self.partitions
        named = acks.keys() if sent == -1 else added | acks.keys()
        request = cls(
            group_id=self.group,
            member_id=self.member_id,
            share_session_epoch=sent,
            max_wait_ms=wait_ms,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            max_records=max_records,
            batch_size=batch_size,
            share_acquire_mode=mode,
            is_renew_ack=renew,
            topics=[
                cls.FetchTopic(
                    topic_id=self.topic_id,
                    partitions=[
                        cls.FetchPartition(
                            partition_index=partition,
                            acknowledgement_batches=[
                                cls.AcknowledgementBatch(
                                    first_offset=first, last_offset=last, acknowledge_types=types
                                )
                                for first, last, types in acks.get(partition, ())
                            ],
                        )
                        for partition in sorted(named)
                    ],
                )
            ],
        )
        response = await self.connection.ask(request, 2)
        if not response.error_code:
            if sent <= 0:
                self.partitions.clear()
            self.partitions |= named
            self._count(sent)
        return response

    async def acknowledge(
        self,
        acks: Acks,
        *,
        epoch: int | None = None,
        renew: bool = False,
        version: int = 2,
    ) -> m.ShareAcknowledgeResponse:
        cls = m.ShareAcknowledgeRequest
        sent = self.session_epoch if epoch is None else epoch
        request = cls(
            group_id=self.group,
            member_id=self.member_id,
            share_session_epoch=sent,
            is_renew_ack=renew,
            topics=[
                cls.AcknowledgeTopic(
                    topic_id=self.topic_id,
                    partitions=[
                        cls.AcknowledgePartition(
                            partition_index=partition,
                            acknowledgement_batches=[
                                cls.AcknowledgementBatch(
                                    first_offset=first, last_offset=last, acknowledge_types=types
                                )
                                for first, last, types in batches
                            ],
                        )
                        for partition, batches in acks.items()
                    ],
                )
            ],
        )
        response = await self.connection.ask(request, version)
        if not response.error_code:
            self._count(sent)
        elif response.error_code == ErrorCode.SHARE_SESSION_NOT_FOUND:
            self.session_epoch = 0
        return response

    async def disconnect(self) -> None:
        """End the connection, and with it the session."""
        await self.connection.close()
        await anyio.sleep(0.01)

    def _count(self, sent: int) -> None:
        if sent == -1:
            self.session_epoch = 0
        else:
            self.session_epoch = 1 if sent == 0 else sent + 1


def acquired(response: m.ShareFetchResponse) -> dict[int, list[tuple[int, int, int]]]:
    """Return the acquired ranges by partition."""
    assert response.error_code == 0
    return {
        data.partition_index: [
            (each.first_offset, each.last_offset, each.delivery_count)
            for each in data.acquired_records
        ]
        for topic in response.responses
        for data in topic.partitions
        if data.acquired_records
    }


def ack_codes(response: m.ShareAcknowledgeResponse) -> dict[int, tuple[int, str | None]]:
    """Return code and message of each partition."""
    return {
        data.partition_index: (data.error_code, data.error_message)
        for topic in response.responses
        for data in topic.partitions
    }
