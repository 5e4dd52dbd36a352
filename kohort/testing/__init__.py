"""A Kafka cluster in the process, for tests and experiments.

```python
with Cluster(topics={"orders": 6}) as cluster:
    cluster.produce("orders", [("key", "value")])
    consumer = KafkaConsumer("orders", bootstrap_servers=cluster.bootstrap_servers)
```
"""

from __future__ import annotations

from kohort.broker.requests._dispatch import ReceivedRequest
from kohort.broker.requests._faults import Action, Call
from kohort.broker.security import (
    Acl,
    Authorization,
    CertificateFiles,
    ClientCertificate,
    Listener,
    Security,
    TokenKey,
    unsecured_token,
)
from kohort.testing._cluster import Cluster
from kohort.testing._cluster_options import ClusterOptions, MemoryClusterOptions
from kohort.testing._fault_control import Fault
from kohort.testing._memory_cluster import MemoryCluster
from kohort.testing._producing import Produced, ProducerRecord
from kohort.testing._proxy import Proxy
from kohort.testing._serve import serve
from kohort.testing._snapshots import GroupSnapshot, MemberSnapshot, SharedRecord, ShareState
from kohort.testing._virtual_loop import VirtualLoop

__all__ = [
    "Acl",
    "Action",
    "Authorization",
    "Call",
    "CertificateFiles",
    "ClientCertificate",
    "Cluster",
    "ClusterOptions",
    "Fault",
    "GroupSnapshot",
    "Listener",
    "MemberSnapshot",
    "MemoryCluster",
    "MemoryClusterOptions",
    "Produced",
    "ProducerRecord",
    "Proxy",
    "ReceivedRequest",
    "Security",
    "ShareState",
    "SharedRecord",
    "TokenKey",
    "VirtualLoop",
    "serve",
    "unsecured_token",
]
