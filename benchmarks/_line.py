"""Proxy that makes a long line of a short one, in a separate process.

    python -m benchmarks._line PORT TARGET_PORT ROUND_TRIP_MS BYTES_PER_S WINDOW

All connections share the rate of the line from the broker. ``WINDOW`` is the number of bytes that
one connection may have on its way. TCP has that with a send buffer of the broker. 0 means any
number.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable

PIECE = 64 << 10


class Line:
    """The time at which bytes arrive."""

    def __init__(self, round_trip: float, rate: float, window: int) -> None:
        self.round_trip = round_trip
        self.window = window or 1 << 40
        self._rate = rate
        self._free_at = 0.0

    def arrival(self, now: float, size: int) -> float:
        """Take the line for these bytes, and return the time of their arrival."""
        self._free_at = max(now, self._free_at) + size / self._rate
        return self._free_at + self.round_trip / 2


async def carry(
    line: Line, source: asyncio.StreamReader, to: asyncio.StreamWriter, *, is_paced: bool
) -> None:
    """Carry bytes in one direction until the source ends."""
    loop, queue = asyncio.get_running_loop(), asyncio.Queue[tuple[float, bytes]]()
    room, has_room = line.window if is_paced else 1 << 40, asyncio.Event()

    def acknowledge(size: int) -> None:
        nonlocal room
        room += size
        has_room.set()

    async def deliver() -> None:
        while True:
            at, data = await queue.get()
            await asyncio.sleep(max(0.0, at - loop.time()))
            to.write(data)
            if not data:
                return
            await to.drain()

    delivery = asyncio.ensure_future(deliver())
    data = b"-"
    while data:
        while not room:
            has_room.clear()
            await has_room.wait()
        data = await source.read(min(PIECE, room))
        room -= len(data)
        now = loop.time()
        at = line.arrival(now, len(data)) if is_paced else now + line.round_trip / 2
        loop.call_at(at + line.round_trip / 2, acknowledge, len(data))
        queue.put_nowait((at, data))
    await delivery
    to.close()


async def serve(port: int, target: int, line: Line) -> None:
    """Carry the connections to ``port`` on to ``target``, until cancelled."""

    async def quietly(carried: Awaitable[None]) -> None:
        try:
            await carried
        except OSError:
            pass  # a client ends its process with its connections

    async def connected(near: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        await asyncio.sleep(line.round_trip)
        far, broker = await asyncio.open_connection("127.0.0.1", target, limit=PIECE)
        await asyncio.gather(
            quietly(carry(line, near, broker, is_paced=False)),
            quietly(carry(line, far, client, is_paced=True)),
        )

    async with await asyncio.start_server(connected, "127.0.0.1", port, limit=PIECE) as server:
        print("ready", flush=True)
        await server.serve_forever()


def main() -> None:
    port, target, round_trip_ms, rate, window = map(int, sys.argv[1:])
    asyncio.run(serve(port, target, Line(round_trip_ms / 1000, rate, window)))


if __name__ == "__main__":
    main()
