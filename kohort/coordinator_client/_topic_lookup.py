"""The look-up of topic names by the ids of an assignment."""

from __future__ import annotations

import logging
from collections.abc import Collection

from kohort.coordinator_client._cluster_view import GroupCluster
from kohort.errors import UnsupportedVersionError
from kohort.protocol.messages import MetadataRequest

logger = logging.getLogger(__name__)

BY_ID_VERSION = 12
"""First version of a Metadata request with topic ids that brokers respond to (KIP-516)."""


async def names_of_ids(cluster: GroupCluster, ids: Collection[bytes]) -> dict[bytes, str]:
    """Return the names of topics by id. Unknown topics have no entry.

    Request the metadata of topics that the known metadata does not have.
    """
    names = _known_names(cluster, ids)
    missing = [topic_id for topic_id in sorted(ids) if topic_id not in names]
    if not missing:
        return names
    cluster.request_refresh()
    try:
        response = await cluster.request(
            MetadataRequest(
                topics=[
                    MetadataRequest.MetadataRequestTopic(topic_id=topic_id, name=None)
                    for topic_id in missing
                ],
                allow_auto_topic_creation=False,
            ),
            min_version=BY_ID_VERSION,
        )
    except UnsupportedVersionError:
        return names  # the refresh finds topics of the subscription
    found = {
        bytes(topic.topic_id): topic.name
        for topic in response.topics
        if topic.name and not topic.error_code
    }
    if found:
        await cluster.fetch_topics(frozenset(found.values()))  # for their leaders
    return names | found


def _known_names(cluster: GroupCluster, ids: Collection[bytes]) -> dict[bytes, str]:
    by_id = cluster.metadata.topic_names
    return {topic_id: by_id[topic_id] for topic_id in ids if topic_id in by_id}
