"""A fault has an error code."""

from __future__ import annotations

from kohort.testing import Cluster

with Cluster() as cluster:
    # expect: mypy arg-type | pyright reportArgumentType
    cluster.fail("Heartbeat", 27)
