"""Connections that are slow, or bring their bytes in small pieces."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import anyio
import anyio.lowlevel

from kohort.protocol import Buffer
from kohort.testing._server_connection import ServerConnection


@dataclass(frozen=True, slots=True)
class SendRate:
    """Pieces of 1 to ``piece`` bytes, ``bytes_per_second`` of them; 0 is without a limit."""

    piece: int = 1024
    bytes_per_second: float = 0.0


async def send_paced(
    connection: ServerConnection, buffers: Sequence[Buffer], pace: SendRate, rng: random.Random
) -> None:
    """Send it piece by piece."""
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
