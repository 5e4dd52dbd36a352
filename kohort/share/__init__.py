"""Share consumers (KIP-932): many workers of a group take records of the same partitions.

Theory of operation. A share consumer has the driver and the engine of a consumer without a group.
So its connections, options, logins and life are those of a consumer. ``ShareClient`` runs beside
the engine and sends its requests. The machines that decide are in ``machine/``, without I/O:
the membership, the session at each leader, and the acquired records of a partition. ``Locks``
joins what the caller's thread and the event loop share. ``_delivery.py`` decodes on the caller's
side, as the consumers do.

The text of the methods is in ``_async.py``, and ``python -m tools.sync_api`` writes ``_sync.py``
from it.

Invariants:

1. A poll hands out acquired offsets only, each once for each acquisition.
2. In implicit mode only records that a poll has returned are accepted, by a later call.
3. An acknowledgement after the deadline is never sent. The next commit() names it.
4. ``close()`` leaves nothing locked under this member, as far as brokers are reached.
5. ``import kohort`` does not load this package.
"""
# Private: see docs/reference/api.md for the public names.

from __future__ import annotations

from typing import TYPE_CHECKING

from kohort.types import lazy_names

__all__ = ["AsyncShareConsumer", "ShareConsumer", "ShareRecord"]

if TYPE_CHECKING:
    from kohort.share._async import AsyncShareConsumer
    from kohort.share._record import ShareRecord
    from kohort.share._sync import ShareConsumer
else:
    # A program that uses one API does not import the modules of the other.
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "AsyncShareConsumer": "kohort.share._async",
            "ShareConsumer": "kohort.share._sync",
            "ShareRecord": "kohort.share._record",
        }.get,
    )
