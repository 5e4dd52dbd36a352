"""Requests with older epochs to a restarted leader, and the ends of epochs."""

from __future__ import annotations

from kohort.protocol.messages import MetadataRequest
from tests.conformance.aged import EMPTY, FIRST, PRESENT, QUIET, WRITTEN, aged_topic
from tests.conformance.probe import Observations, probe
from tests.conformance.probes.fetching import fetch, partition
from tests.conformance.probes.list_offsets import list_offsets, offset_for_epoch
from tests.conformance.session import T0, Session

EPOCHS = (-5, -1, FIRST, 1, PRESENT, 3)
KINDS = (WRITTEN, QUIET, EMPTY)


@probe("2.10e")
def metadata_of_a_leader_that_came_back(session: Session) -> Observations:
    """Read the epoch of a restarted leader. It has grown by two, with no leader in between."""
    for kind in KINDS:
        named = MetadataRequest.MetadataRequestTopic(name=aged_topic(session, kind))
        for version in (6, 7, 13):
            found = session.ask(MetadataRequest(topics=[named]), version).topics[0].partitions
            yield f"{kind} {version}", [[one.leader_id, one.leader_epoch] for one in found]


@probe("2.10e")
def list_offsets_with_older_epochs(session: Session) -> Observations:
    """Send older epochs in ListOffsets: error 74. Found offsets have the epoch of their batch."""
    for kind in KINDS:
        topic = aged_topic(session, kind)
        for version in (4, 6, 7, 11):
            for epoch in EPOCHS:
                for timestamp in (-1, -2, -3, T0, T0 + 1, T0 + 9):
                    if timestamp == -3 and version < 7:
                        continue
                    answer = list_offsets(session, topic, timestamp, version, epoch=epoch)
                    yield f"{kind} {version} epoch {epoch} {timestamp}", answer


@probe("2.10e", "2.11c")
def fetches_with_older_epochs(session: Session) -> Observations:
    """Send older epochs in Fetch: error 74 in each version that has the field."""
    for kind in KINDS:
        topic = aged_topic(session, kind)
        for version in range(9, 19):
            named: str | bytes = topic if version < 13 else session.topic_id(topic)
            for epoch in EPOCHS:
                asked = partition(0, 0, current_leader_epoch=epoch)
                answer = fetch(session, named, asked, version=version)
                yield f"{kind} {version} epoch {epoch}", answer


@probe("2.11d", "6.6g")
def logs_that_part_from_the_leaders(session: Session) -> Observations:
    """Send the epoch of the last fetched record, right and wrong for its offset."""
    for kind in KINDS:
        topic = aged_topic(session, kind)
        for version in (12, 17):
            named: str | bytes = topic if version < 13 else session.topic_id(topic)
            for epoch in EPOCHS:
                for offset in (0, 1, 2, 3, 5, 6):
                    asked = partition(0, offset, last_fetched_epoch=epoch)
                    answer = fetch(session, named, asked, version=version)
                    yield f"{kind} {version} epoch {epoch} from {offset}", answer


@probe("2.10e", "6.6g")
def ends_of_several_epochs(session: Session) -> Observations:
    """Read where each epoch ends, also one without records. Older current epochs are error 74."""
    for kind in KINDS:
        topic = aged_topic(session, kind)
        for version in (2, 3, 4):
            for epoch in (*EPOCHS, 9):
                for current in EPOCHS:
                    yield (
                        f"{kind} {version} epoch {epoch} current {current}",
                        offset_for_epoch(session, topic, epoch, current, version),
                    )
