"""A connection to a broker, whatever network it came over."""

from __future__ import annotations

import logging

import anyio
import anyio.lowlevel

from kohort.errors import FrameTooLargeError, MessageDecodeError
from kohort.testing._broker import Broker
from kohort.testing._dispatch import answer
from kohort.testing._pace import send_paced
from kohort.testing._socket import ByteConnection, FrameSource
from kohort.testing.apis import CloseConnection

logger = logging.getLogger("kohort.testing")


async def serve_connection(broker: Broker, connection: ByteConnection) -> None:
    """Answer the requests of one connection one after the other, as Kafka does.

    A request that has to wait holds up those behind it on its own connection, and no other.
    """
    client_host = f"/{connection.peer_host}"
    frames = FrameSource(connection, broker.cluster.config.max_request_bytes)
    try:
        while (frame := await frames.next()) is not None:
            await _serve_request(broker, connection, client_host, frame)
            # An idle connection must hold neither the request nor slices of a log.
            del frame
            # A busy connection must not keep the others from their turn.
            await anyio.lowlevel.checkpoint()
    except (CloseConnection, FrameTooLargeError, MessageDecodeError) as error:
        logger.info("broker %d closes on %s: %s", broker.node.id, client_host, str(error))
    except OSError as error:
        logger.debug("broker %d lost %s: %s", broker.node.id, client_host, str(error))
    except Exception:
        logger.exception("broker %d failed on a request of %s", broker.node.id, client_host)
    finally:
        with anyio.CancelScope(shield=True):
            await connection.aclose()


async def _serve_request(
    broker: Broker, connection: ByteConnection, client_host: str, frame: bytearray
) -> None:
    reply = await answer(broker, client_host, frame)
    if reply is not None and reply.pace is not None:
        await send_paced(connection, reply.frame, reply.pace, broker.cluster.faults.rng)
    elif reply is not None:
        await connection.send(reply.frame)
