"""Admin clients: the groups, offsets, topics and settings of a cluster.

Theory of operation. An admin client has the driver of a consumer without a group, a thread or a
task. So its connections, options, logins and life are those of a consumer. A method is a plan: a
function of the engine with checked arguments and a timeout. The text of the methods is in
``_async.py``, and ``python -m tools.sync_api`` writes ``_sync.py`` from it.

``AdminRequests`` sends what a method needs. A method names resources: groups, partitions, topics.
``each()`` repeats an attempt for the resources without a final result, after a back-off, until the
timeout. An error that does not pass is final. The coordinator of a group is looked up by the
``CoordinatorConnection`` of the membership, and the offsets of partitions by ``OffsetLookup`` of
the fetcher.

Invariants:

1. One resource never spoils the result of another. ``AdminResults`` has a value or an error for
   each resource of the call. Only an error that concerns no resource is raised, such as
   NoBrokersAvailable.
2. Every call ends at its timeout. A resource without a response gets KafkaTimeoutError then, with
   its latest error as the cause.
3. Nothing is kept between two calls except connections and metadata, so no result is stale.
4. A reset reads, then compares, then commits. ``_reset.py`` has its steps, and computes a plan
   without I/O.
5. ``import kohort`` does not load this package.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kohort.types import lazy_names

__all__ = [
    "AdminOptions",
    "AdminResults",
    "AsyncKafkaAdminClient",
    "BrokerDescription",
    "ClusterDescription",
    "ConfigEntry",
    "ConfigResource",
    "GroupDescription",
    "GroupLag",
    "GroupListing",
    "GroupListings",
    "KafkaAdminClient",
    "MemberDescription",
    "MemberToRemove",
    "NewTopic",
    "OffsetSpec",
    "PartitionDescription",
    "PartitionLag",
    "ResetPlan",
    "ResetStep",
    "ShareOffset",
    "TopicDescription",
    "stuck_reason",
]

if TYPE_CHECKING:
    from kohort._options import AdminOptions
    from kohort.admin._async import AsyncKafkaAdminClient
    from kohort.admin._lag import GroupLag, PartitionLag, stuck_reason
    from kohort.admin._members import MemberToRemove
    from kohort.admin._plan import ResetPlan, ResetStep
    from kohort.admin._results import (
        AdminResults,
        GroupDescription,
        GroupListing,
        GroupListings,
        MemberDescription,
        OffsetSpec,
        ShareOffset,
    )
    from kohort.admin._sync import KafkaAdminClient
    from kohort.admin._topics import (
        BrokerDescription,
        ClusterDescription,
        ConfigEntry,
        ConfigResource,
        NewTopic,
        PartitionDescription,
        TopicDescription,
    )
else:
    # A program that uses one API does not import the modules of the other.
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "AdminOptions": "kohort._options",
            "AdminResults": "kohort.admin._results",
            "AsyncKafkaAdminClient": "kohort.admin._async",
            "BrokerDescription": "kohort.admin._topics",
            "ClusterDescription": "kohort.admin._topics",
            "ConfigEntry": "kohort.admin._topics",
            "ConfigResource": "kohort.admin._topics",
            "GroupDescription": "kohort.admin._results",
            "GroupLag": "kohort.admin._lag",
            "GroupListing": "kohort.admin._results",
            "GroupListings": "kohort.admin._results",
            "KafkaAdminClient": "kohort.admin._sync",
            "MemberDescription": "kohort.admin._results",
            "MemberToRemove": "kohort.admin._members",
            "NewTopic": "kohort.admin._topics",
            "OffsetSpec": "kohort.admin._results",
            "PartitionDescription": "kohort.admin._topics",
            "PartitionLag": "kohort.admin._lag",
            "ResetPlan": "kohort.admin._plan",
            "ResetStep": "kohort.admin._plan",
            "ShareOffset": "kohort.admin._results",
            "TopicDescription": "kohort.admin._topics",
            "stuck_reason": "kohort.admin._lag",
        }.get,
    )
