"""Fetch sessions: opened, continued, changed, ended, and with wrong ids and epochs."""

from __future__ import annotations

from collections.abc import Sequence

from kohort.protocol.messages import CreatePartitionsRequest, FetchRequest, FetchResponse
from tests.conformance.probe import Observations, probe
from tests.conformance.probes.fetching import fetch_request, partition
from tests.conformance.probes.list_offsets import delete_records
from tests.conformance.session import Session, batch
from tests.conformance.wire import FAR_MS


class Fetcher:
    """Client with a fetch session. It keeps the id and the next epoch."""

    def __init__(self, session: Session, version: int = 12) -> None:
        self._session = session
        self._version = version
        self.id = 0
        self.epoch = 0

    def fetch(
        self,
        *topics: tuple[str | bytes, Sequence[FetchRequest.FetchPartition]],
        forget: Sequence[tuple[str | bytes, Sequence[int]]] = (),
        **other: int,
    ) -> FetchResponse:
        request = fetch_request(topics, **other)
        request.session_id, request.session_epoch = self.id, self.epoch
        request.forgotten_topics_data = [
            FetchRequest.ForgottenTopic(topic=topic, partitions=list(partitions))
            if isinstance(topic, str)
            else FetchRequest.ForgottenTopic(topic_id=topic, partitions=list(partitions))
            for topic, partitions in forget
        ]
        answer = self._session.ask(request, self._version)
        if answer.error_code == 0:
            self.id, self.epoch = answer.session_id, self.epoch + 1
        return answer


def _names(session: Session, version: int, count: int = 1) -> tuple[str, str | bytes]:
    """Create a topic and return its name, and its name or id for Fetch."""
    topic = session.topic(f"t{version}", count)
    return topic, topic if version < 13 else session.topic_id(topic)


@probe("6.6c")
def a_session_in_every_version(session: Session) -> Observations:
    """Open with epoch 0, continue without changes, close with epoch -1."""
    for version in range(7, 19):
        topic, called = _names(session, version)
        session.produce(topic, batch(b"x"))
        client = Fetcher(session, version)
        yield f"open {version}", client.fetch((called, [partition()]))
        yield f"read on {version}", client.fetch((called, [partition(0, 1)]))
        yield f"nothing new {version}", client.fetch()
        session.produce(topic, batch(b"y"))
        yield f"new {version}", client.fetch()
        client.epoch = -1
        yield f"closed {version}", client.fetch()
        client.epoch = 3
        yield f"gone {version}", client.fetch()


@probe("6.6c")
def fetches_outside_of_sessions(session: Session) -> Observations:
    """Send epoch -1 without an id, which reads everything and opens nothing."""
    topic, _ = _names(session, 12)
    session.produce(topic, batch(b"x"))
    client = Fetcher(session)
    client.epoch = -1
    yield "first", client.fetch((topic, [partition()]))
    client.epoch = -1
    yield "second", client.fetch((topic, [partition()]))


@probe("6.6c")
def sessions_without_partitions(session: Session) -> Observations:
    """Send epoch 0 without partitions, which opens no session."""
    yield "first", Fetcher(session).fetch()


@probe("6.6d")
def only_changes_are_told(session: Session) -> Observations:
    """Continue a session. The response has only partitions with changes."""
    topic, _ = _names(session, 12, 3)
    for index in range(3):
        session.produce(topic, batch(b"x"), partition=index)
    client = Fetcher(session)
    yield "all", client.fetch((topic, [partition(index, 1) for index in range(3)]))
    yield "nothing", client.fetch()
    session.produce(topic, batch(b"y"), partition=1)
    yield "one", client.fetch()
    yield "again, not read on", client.fetch()
    yield "read on", client.fetch((topic, [partition(1, 2)]))
    yield "nothing again", client.fetch()


@probe("6.6d")
def a_moved_log_start_is_told(session: Session) -> Observations:
    """Move the log's start of a partition without records. The response has the partition."""
    topic, _ = _names(session, 12)
    session.produce(topic, batch(b"x"), batch(b"y"))
    client = Fetcher(session)
    yield "open", client.fetch((topic, [partition(0, 2)]))
    delete_records(session, topic, 1)
    yield "moved", client.fetch()
    yield "nothing", client.fetch()


@probe("6.6d")
def a_moved_end_is_told(session: Session) -> Observations:
    """Move the high watermark while size limits leave no room for the partition's records."""
    topic, _ = _names(session, 12, 2)
    client = Fetcher(session)
    session.produce(topic, batch(b"x" * 500), partition=0)
    yield "open", client.fetch((topic, [partition(0, 0), partition(1, 0)]))
    session.produce(topic, batch(b"y" * 500), partition=1)
    yield "no room", client.fetch(max_bytes=1)
    yield "next", client.fetch(max_bytes=1)


@probe("6.6d")
def who_had_its_turn_goes_to_the_end(session: Session) -> Observations:
    """Limit the response of a session, which then reads its partitions in turn."""
    topic, _ = _names(session, 12, 3)
    for index in range(3):
        session.produce(topic, *[batch(b"v" * 300)] * 3, partition=index)
    client = Fetcher(session)
    first = client.fetch((topic, [partition(index) for index in range(3)]), max_bytes=400)
    yield "first", first
    for number in range(4):
        yield f"then {number}", client.fetch(max_bytes=400)


@probe("6.6d")
def partitions_are_added_and_changed(session: Session) -> Observations:
    """Add and change partitions in a request."""
    topic, _ = _names(session, 12, 3)
    for index in range(3):
        session.produce(topic, batch(b"a"), batch(b"b"), partition=index)
    client = Fetcher(session)
    yield "open", client.fetch((topic, [partition(0)]))
    yield "added", client.fetch((topic, [partition(1)]))
    yield "changed", client.fetch((topic, [partition(0, 1), partition(2, 2)]))
    yield "all at their ends", client.fetch((topic, [partition(index, 2) for index in range(3)]))


@probe("6.6d")
def partitions_are_forgotten(session: Session) -> Observations:
    """Forget partitions, which are not read then. The last one ends the session."""
    topic, _ = _names(session, 12, 3)
    for index in range(3):
        session.produce(topic, batch(b"a"), partition=index)
    client = Fetcher(session)
    yield "open", client.fetch((topic, [partition(index) for index in range(3)]))
    yield "two left", client.fetch(forget=[(topic, [1])])
    yield "unknown", client.fetch(forget=[(topic, [7]), ("no-such-topic", [0])])
    yield "forgotten and named", client.fetch((topic, [partition(0)]), forget=[(topic, [0])])
    yield "none left", client.fetch(forget=[(topic, [0, 2])])
    yield "afterwards", client.fetch()


@probe("6.6e")
def unknown_sessions(session: Session) -> Observations:
    """Send an unknown session id: error 70 without topics."""
    topic, _ = _names(session, 12)
    topic_id = session.topic_id(topic)
    for version in (7, 11, 12, 13, 18):
        for epoch in (1, 7):
            client = Fetcher(session, version)
            client.id, client.epoch = 123, epoch
            called: str | bytes = topic if version < 13 else topic_id
            yield f"epoch {epoch}, version {version}", client.fetch((called, [partition()]))
    client = Fetcher(session)
    client.epoch = 1
    yield "no id", client.fetch((topic, [partition()]))


@probe("6.6e")
def wrong_session_epochs(session: Session) -> Observations:
    """Send an epoch that is not the next one: error 71. The session stays."""
    topic, _ = _names(session, 12)
    session.produce(topic, batch(b"x"))
    client = Fetcher(session)
    client.fetch((topic, [partition(0, 1)]))
    for epoch in (2, 5, 2**31 - 1):
        client.epoch = epoch
        yield f"epoch {epoch}", client.fetch()
    client.epoch = 1
    yield "right", client.fetch()
    client.epoch = 1
    yield "repeated", client.fetch()


@probe("6.6e")
def opening_anew(session: Session) -> Observations:
    """Send epoch 0 with the id of a session, which opens another one in its place."""
    topic, _ = _names(session, 12)
    session.produce(topic, batch(b"x"))
    client = Fetcher(session)
    client.fetch((topic, [partition(0, 1)]))
    old = client.id
    client.epoch = 0
    yield "anew", client.fetch((topic, [partition()]))
    client.id, client.epoch = old, 1
    yield "the old one", client.fetch()


@probe("6.6e")
def closing_and_reading(session: Session) -> Observations:
    """Send epoch -1 with an id, which ends the session and reads the requested partitions."""
    topic, _ = _names(session, 12)
    session.produce(topic, batch(b"x"))
    client = Fetcher(session)
    client.fetch((topic, [partition(0, 1)]))
    client.epoch = -1
    yield "closed", client.fetch((topic, [partition()]))
    client.epoch = 1
    yield "afterwards", client.fetch()


@probe("6.6e")
def sessions_of_names_and_of_ids(session: Session) -> Observations:
    """Open a session by name and continue it by id, and the reverse. Both are refused."""
    topic, _ = _names(session, 12)
    topic_id = session.topic_id(topic)
    for first, then in ((12, 13), (13, 12)):
        called: str | bytes = topic if first < 13 else topic_id
        client = Fetcher(session, first)
        client.fetch((called, [partition()]))
        other = Fetcher(session, then)
        other.id, other.epoch = client.id, client.epoch
        yield f"{first} then {then}", other.fetch()
        yield f"{first} again", client.fetch()


@probe("6.6f")
def errors_in_sessions(session: Session) -> Observations:
    """Fetch a partition with an error, which is repeated until the partition is
    forgotten or valid.
    """
    topic, _ = _names(session, 12)
    client = Fetcher(session)
    where = (topic, [partition(0, 99), partition(4)])
    yield "open", client.fetch(where, ("no-such-topic", [partition()]))
    yield "again", client.fetch()
    yield "put right", client.fetch((topic, [partition(0, 0)]), forget=[("no-such-topic", [0])])
    yield "then", client.fetch(forget=[(topic, [4])])


@probe("6.6f")
def errors_in_sessions_by_id(session: Session) -> Observations:
    """Fetch an unknown topic id in a session."""
    topic, topic_id = _names(session, 13)
    client = Fetcher(session, 13)
    strange = bytes(range(16))
    yield "open", client.fetch((topic_id, [partition(0, 0)]), (strange, [partition()]))
    yield "again", client.fetch()
    yield "forgotten", client.fetch(forget=[(strange, [0])])
    session.produce(topic, batch(b"x"))
    yield "data", client.fetch()


@probe("6.6f")
def partitions_that_come_into_being(session: Session) -> Observations:
    """Fetch a partition before it is created. It is read once it exists."""
    topic, _ = _names(session, 12)
    client = Fetcher(session)
    yield "open", client.fetch((topic, [partition(1)]))
    asked = CreatePartitionsRequest.CreatePartitionsTopic(name=topic, count=2, assignments=None)
    session.ask(CreatePartitionsRequest(topics=[asked], timeout_ms=10_000), 3)
    session.wait_for_leaders(topic, 2)
    session.produce(topic, batch(b"x"), partition=1)
    yield "there", client.fetch()


@probe("6.6a", "6.6d")
def a_session_waits(session: Session) -> Observations:
    """Wait in an incremental fetch, until a partition of the session has data."""
    topic, _ = _names(session, 12, 2)
    client = Fetcher(session)
    client.fetch((topic, [partition(0), partition(1)]))
    waiting = session.connect()
    request = fetch_request([], max_wait_ms=FAR_MS)
    request.session_id, request.session_epoch = client.id, 1
    waiting.send(request, 12)
    yield "waits", waiting.is_parked()
    session.produce(topic, batch(b"x"), partition=1)
    yield "woken", waiting.receive()
