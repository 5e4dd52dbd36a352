"""Slow sending, and sending in small pieces."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import anyio
import anyio.lowlevel

from kohort.broker._server_connection import ServerConnection
from kohort.protocol import Buffer


@dataclass(frozen=True, slots=True)
class SendRate:
    """Size of pieces, 1 to ``piece`` bytes at random, and their rate; 0 is no limit."""

    piece: int = 1024
    bytes_per_second: float = 0.0


async def send_paced(
    connection: ServerConnection, buffers: Sequence[Buffer], pace: SendRate, rng: random.Random
) -> None:
    """Send the buffers piece by piece."""
    data = memoryview(b"".join(buffers))
    sent = 0
    while sent < len(data):
        size = rng.randint(1, pace.piece)
        piece = data[sent : sent + size]
        await connection.send([piece])
        sent += len(piece)
        if pace.bytes_per_second:
            await anyio.sleep(len(piece) / pace.bytes_per_second)
        else:
            await anyio.lowlevel.checkpoint()
