"""A function makes the connections to brokers."""

from __future__ import annotations

import anyio

from kohort import AsyncKafkaConsumer
from kohort.network import ByteConnection, Connect, StreamConnection


async def through_a_socket(host: str, port: int) -> ByteConnection:
    return StreamConnection(await anyio.connect_unix(f"/run/{host}-{port}.sock"))


connect: Connect = through_a_socket
AsyncKafkaConsumer("orders", connect=connect)
