"""Producers with a transactional id: epochs, fencing, begin and end."""

from __future__ import annotations

from kohort.protocol.messages import FindCoordinatorRequest, InitProducerIdRequest
from tests.conformance.probe import Observations, probe
from tests.conformance.probes.coordinators import TRANSACTION
from tests.conformance.session import Session, wait_for
from tests.conformance.transacting import WAYS, describe, end, fetched, new_topic, producer, settle
from tests.conformance.wire import EXPIRY_MS
from tests.support.transactor import Transactor

LARGEST_TIMEOUT_MS = 900_000
FAR = 1_000_000
"""Distance from an allocated producer id to one that is not allocated."""


@probe("3")
def find_the_coordinator_of_a_transactional_id(session: Session) -> Observations:
    """Look up a transactional id in every version with key types, and an empty one."""
    name = session.transactional_id()
    for version in range(1, 7):
        for key in (name, ""):
            request = FindCoordinatorRequest(key=key, key_type=TRANSACTION)
            if version >= 4:
                request = FindCoordinatorRequest(coordinator_keys=[key], key_type=TRANSACTION)
            yield f"version {version} {key and 'id'}", session.ask(request, version)


@probe("6.9b", "6.8a")
def transactional_producers(session: Session) -> Observations:
    """Initialize an id in every version. The first epoch is 0, each further request
    increases it.
    """
    for version in range(6):
        one = Transactor(session, session.transactional_id(f"v{version}"))
        for epoch in range(3):
            yield f"version {version} epoch {epoch}", one.init(version=version)
        yield f"version {version} described", describe(session, one.name)


@probe("6.9b", "6.8e")
def transactional_producers_that_bring_their_epoch(session: Session) -> Observations:
    """Initialize with the current and the previous epoch (KIP-360), and with others."""
    for version in (3, 4, 5):
        one = producer(session, f"v{version}")
        yield f"{version} present", one.init(keep=True, version=version)
        one.epoch -= 1
        yield f"{version} the one before", one.init(keep=True, version=version)
        yield f"{version} present again", one.init(keep=True, version=version)
        for epoch in (0, -1, 77):
            was, one.epoch = one.epoch, epoch
            yield f"{version} epoch {epoch}", one.init(keep=True, version=version)
            one.epoch = was
        one.producer_id += FAR
        yield f"{version} other id", one.init(keep=True, version=version)
        one.producer_id = -1
        yield f"{version} no id", one.init(keep=True, version=version)
        yield f"{version} fresh", one.init(version=version)
        one.epoch -= 1
        yield f"{version} the one before a fresh one", one.init(keep=True, version=version)


@probe("6.9b", "6.8e")
def strangers_that_bring_an_epoch(session: Session) -> Observations:
    """Initialize an unknown transactional id with a producer id and epoch."""
    for version in (3, 4, 5):
        one = Transactor(session, session.transactional_id(f"v{version}"))
        one.producer_id, one.epoch = FAR, 5
        yield f"version {version}", one.init(keep=True, version=version).error_code
        yield f"version {version} epoch", one.epoch
        yield f"version {version} described", describe(session, one.name)


@probe("6.9b")
def timeouts_of_transactions(session: Session) -> Observations:
    """Initialize with timeouts: more than 0, up to the broker's limit."""
    for version in (0, 5):
        one = Transactor(session, session.transactional_id(f"v{version}"))
        for timeout_ms in (0, -1, LARGEST_TIMEOUT_MS + 1, 2**31 - 1, 1, LARGEST_TIMEOUT_MS):
            yield (
                f"version {version} {timeout_ms}",
                one.init(timeout_ms=timeout_ms, version=version),
            )
        yield f"version {version} described", describe(session, one.name)
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
    yield "without an id", session.ask(request, 5).error_code


@probe("6.9b")
def partitions_are_added(session: Session) -> Observations:
    """Add partitions in every version for producers: valid, repeated, partly invalid, and none."""
    topic = new_topic(session, partitions=3)
    for version in range(4):
        one = producer(session, f"v{version}", old=True)
        yield f"{version} first", one.add((topic, 0), version=version)
        yield f"{version} again", one.add((topic, 0), (topic, 1), version=version)
        unknown = (topic, 9), ("no-such-topic", 0), (topic, -1)
        yield f"{version} unknown", one.add((topic, 2), *unknown, version=version)
        yield f"{version} invalid", one.add(("bad topic!", 0), version=version)
        yield f"{version} none", one.add(version=version)
        yield f"{version} described", describe(session, one.name)
        end(session, one, committed=False)
        yield f"{version} after the end", describe(session, one.name)


@probe("6.9b", "6.8f")
def partitions_are_added_by_the_wrong_one(session: Session) -> Observations:
    """Add partitions with an unknown transactional id, another producer id and other epochs."""
    topic = new_topic(session)
    for version in range(4):
        one = producer(session, f"v{version}", old=True)
        one.init()
        for label, other in (
            ("epoch before", {"epoch": 0}),
            ("epoch to come", {"epoch": 2}),
            ("no epoch", {"epoch": -1}),
            ("other id", {"producer_id": one.producer_id + FAR}),
            ("no id", {"producer_id": -1}),
            ("stranger", {"name": session.name("nobody")}),
            ("no name", {"name": ""}),
        ):
            wrong = Transactor(session, one.name)
            wrong.producer_id, wrong.epoch = one.producer_id, one.epoch
            vars(wrong).update(other)
            yield f"{version} {label}", wrong.add((topic, 0), version=version)


@probe("6.9b")
def brokers_ask_for_partitions(session: Session) -> Observations:
    """Verify and add partitions as a broker, with versions 4 and 5."""
    topic = new_topic(session, partitions=3)
    for version in (4, 5):
        one = producer(session, f"v{version}")
        places = (topic, 0), (topic, 1)
        yield f"{version} nothing", one.added_by_broker(*places, only=True, version=version)
        yield f"{version} added", one.added_by_broker((topic, 0), only=False, version=version)
        yield f"{version} one of two", one.added_by_broker(*places, only=True, version=version)
        yield (
            f"{version} unknown",
            one.added_by_broker(
                (topic, 9), (topic, 0), ("no-such-topic", 0), only=True, version=version
            ),
        )
        yield (
            f"{version} unknown added",
            one.added_by_broker((topic, 9), (topic, 1), only=False, version=version),
        )
        yield f"{version} none", one.added_by_broker(only=True, version=version)
        yield f"{version} none added", one.added_by_broker(only=False, version=version)
        for only in (True, False):
            for label, other in (
                ("epoch to come", {"epoch": 7}),
                ("other id", {"producer_id": one.producer_id + FAR}),
                ("stranger", {"name": session.name("nobody")}),
                ("no name", {"name": ""}),
            ):
                wrong = Transactor(session, one.name)
                wrong.producer_id, wrong.epoch = one.producer_id, one.epoch
                vars(wrong).update(other)
                answer = wrong.added_by_broker((topic, 0), only=only, version=version)
                yield f"{version} {label} {only}", answer
        yield f"{version} described", describe(session, one.name)


@probe("6.9b", "6.8f")
def offsets_are_added(session: Session) -> Observations:
    """Add groups with AddOffsetsToTxn in every version, for unknown groups and wrong producers."""
    group = session.group()
    for version in range(5):
        one = producer(session, f"v{version}", old=True)
        one.init()
        yield f"{version} first", one.add_offsets(group, version)
        yield f"{version} again", one.add_offsets(group, version)
        yield f"{version} no group", one.add_offsets("", version)
        for label, other in (
            ("epoch before", {"epoch": 0}),
            ("epoch to come", {"epoch": 2}),
            ("other id", {"producer_id": one.producer_id + FAR}),
            ("stranger", {"name": session.name("nobody")}),
            ("no name", {"name": ""}),
        ):
            wrong = Transactor(session, one.name)
            wrong.producer_id, wrong.epoch = one.producer_id, one.epoch
            vars(wrong).update(other)
            yield f"{version} {label}", wrong.add_offsets(group, version)
        state = describe(session, one.name).transaction_states[0]
        yield f"{version} state", state.transaction_state
        yield f"{version} topics", [[t.topic, len(t.partitions)] for t in state.topics]


@probe("6.9b")
def ends_of_nothing(session: Session) -> Observations:
    """End transactions in every version when none is open, for new producers and after an end."""
    topic = new_topic(session)
    for version in range(6):
        for committed in (True, False):
            old = version < 5
            one = producer(session, f"v{version} {committed}", old=old)
            yield f"{version} {committed} new", one.end(committed=committed, version=version)
            settle(session, one)
            one.init()
            one.begin(topic, b"x")
            before = one.epoch
            yield f"{version} {committed} open", one.end(committed=True, version=version)
            settle(session, one)
            yield f"{version} {committed} after", one.end(committed=committed, version=version)
            settle(session, one)
            one.epoch = before
            yield f"{version} {committed} again", one.end(committed=True, version=version)
            settle(session, one)
            one.epoch = before
            yield f"{version} {committed} other", one.end(committed=False, version=version)
            settle(session, one)
            yield f"{version} {committed} described", describe(session, one.name)


@probe("6.9b", "6.8f")
def ends_by_the_wrong_one(session: Session) -> Observations:
    """End transactions in every version with unknown ids, other producers and other epochs."""
    topic = new_topic(session)
    for version in range(6):
        one = producer(session, f"v{version}", old=version < 5)
        one.init()
        one.begin(topic, b"x")
        for label, other in (
            ("epoch before", {"epoch": one.epoch - 1}),
            ("epoch to come", {"epoch": one.epoch + 1}),
            ("no epoch", {"epoch": -1}),
            ("other id", {"producer_id": one.producer_id + FAR}),
            ("no id", {"producer_id": -1}),
            ("stranger", {"name": session.name("nobody")}),
            ("no name", {"name": ""}),
        ):
            wrong = Transactor(session, one.name)
            wrong.producer_id, wrong.epoch = one.producer_id, one.epoch
            vars(wrong).update(other)
            yield f"{version} {label}", wrong.end(committed=True, version=version)
        yield f"{version} described", describe(session, one.name)
        yield f"{version} right", one.end(committed=False, version=version)


@probe("6.9b")
def epochs_go_on(session: Session) -> Observations:
    """Read the epoch after each end: the same before transaction version 2, then the next."""
    topic = new_topic(session)
    for way, old in WAYS.items():
        one = producer(session, way, old=old)
        for number, committed in enumerate((True, False, True)):
            one.begin(topic, b"x", b"y")
            yield f"{way} {number} end", one.end(committed=committed)
            settle(session, one)
            yield f"{way} {number} state", describe(session, one.name)
        yield f"{way} brings it", one.init(keep=True)
        yield f"{way} described", describe(session, one.name)
    yield "stored", fetched(session, topic)


@probe("6.9b")
def producers_change_their_ways(session: Session) -> Observations:
    """Run transactions of one producer, alternating before and after KIP-890."""
    topic = new_topic(session)
    one = producer(session)
    for number, old in enumerate((True, False, True, True, False, False, True)):
        one.old = old
        one.begin(topic, b"%d" % number)
        yield f"{number} end", one.end(committed=number % 3 > 0)
        settle(session, one)
    one.old = True
    one.begin(topic, b"mixed")
    yield "begun before, ended after", one.end(committed=True, version=5)
    settle(session, one)
    one.old = False
    one.begin(topic, b"mixed")
    yield "begun after, ended before", one.end(committed=True, version=4)
    settle(session, one)
    yield "described", describe(session, one.name)
    yield "stored", fetched(session, topic)


@probe("6.8f", "6.9b")
def a_new_producer_fences_the_one_before(session: Session) -> Observations:
    """Initialize an id again. The old producer is fenced, and its transaction is aborted."""
    topic, group = new_topic(session), session.group()
    for way, old in WAYS.items():
        first = producer(session, way, old=old)
        first.begin(topic, b"lost")
        second = Transactor(session, first.name, old=old)
        yield f"{way} at first", second.init()
        settle(session, first)
        yield f"{way} aborted", describe(session, first.name)
        yield f"{way} then", second.init()
        for version in (3, 9, 10, 11, 12):
            yield f"{way} produce {version}", first.write(topic, b"late", version=version)
        for version in range(4):
            yield f"{way} add {version}", first.add((topic, 0), version=version)
        for version in range(5):
            yield f"{way} offsets {version}", first.add_offsets(group, version)
        for version in range(6):
            yield (
                f"{way} commit {version}",
                first.commit_offset(group, topic, 1, version=version),
            )
        for version in range(6):
            yield f"{way} end {version}", first.end(committed=True, version=version)
        for version in (3, 4, 5):
            yield f"{way} init {version}", first.init(keep=True, version=version)
        second.begin(topic, b"kept")
        yield f"{way} its end", second.end(committed=True)
        settle(session, second)
    yield "stored", fetched(session, topic)


@probe("6.8f", "6.9b")
def a_producer_fences_itself(session: Session) -> Observations:
    """Initialize with the own epoch while a transaction is open."""
    topic = new_topic(session)
    for way, old in WAYS.items():
        one = producer(session, way, old=old)
        one.begin(topic, b"lost")
        yield f"{way} open", one.init(keep=True)
        settle(session, one)
        yield f"{way} described", describe(session, one.name)
        yield f"{way} again", one.init(keep=True)
        yield f"{way} write", one.write(topic, b"x")
        yield f"{way} fresh", one.init()
        settle(session, one)
        yield f"{way} fresh again", one.init()
    yield "stored", fetched(session, topic)


@probe("6.9b", slow=True)
def transactions_take_too_long(session: Session) -> Observations:
    """Exceed the timeout of a transaction, which is aborted. Its producer is fenced."""
    every = {}
    for way, old in WAYS.items():
        one = Transactor(session, session.transactional_id(way), old=old)
        one.init(timeout_ms=EXPIRY_MS)
        topic = new_topic(session, way)
        one.begin(topic, b"slow")
        every[way] = topic, one
    for way, (topic, one) in every.items():
        _wait_for_the_end(session, one)
        yield f"{way} described", describe(session, one.name)
        yield f"{way} write", one.write(topic, b"late")
        yield f"{way} end", one.end(committed=True)
        yield f"{way} keep", one.init(keep=True)
        yield f"{way} fresh", one.init()
        yield f"{way} afterwards", describe(session, one.name)
        yield f"{way} stored", fetched(session, topic)


def _wait_for_the_end(session: Session, one: Transactor) -> None:
    """Return when the broker has ended the transaction."""

    def is_over() -> bool:
        return describe(session, one.name).transaction_states[0].transaction_state != "Ongoing"

    wait_for(is_over, f"the transaction of {one.name} is over")
    settle(session, one)
