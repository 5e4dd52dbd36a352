"""A cluster maps topics to numbers of partitions."""

from __future__ import annotations

from kohort.testing import Cluster

# expect: mypy arg-type | pyright reportArgumentType
Cluster(topics=["orders"])
