"""A cluster has no options of brokers as keywords."""

from __future__ import annotations

from kohort.testing import Cluster

# expect: mypy call-arg | pyright reportCallIssue
Cluster(num_partitions=3)
