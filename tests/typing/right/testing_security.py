"""The cluster for tests has users and faults."""

from __future__ import annotations

from kohort.errors import ErrorCode
from kohort.testing import Cluster, Listener, Security

security = Security(listeners=[Listener("SASL_PLAINTEXT")], users={"user": "secret"})
with Cluster(topics={"orders": 1}, security=security) as cluster:
    with cluster.fail("Heartbeat", ErrorCode.REBALANCE_IN_PROGRESS, times=2) as fault:
        print(fault.hits)
