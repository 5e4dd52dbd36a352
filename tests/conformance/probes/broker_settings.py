"""Configs of brokers: all of them, and those that change at run time."""

from __future__ import annotations

import time
from collections.abc import Mapping

from kohort.protocol.messages import DescribeConfigsResponse
from tests.conformance.probe import Observations, probe
from tests.conformance.probes.settings import (
    APPEND,
    BROKER,
    DELETE,
    SET,
    SUBTRACT,
    alter,
    change,
    describe,
)
from tests.conformance.session import READY_S, Session

OF_THE_PROCESS = frozenset(
    {
        "controller.quorum.voters",
        "listener.security.protocol.map",
        "listeners",
        "log.dirs",
        "log.initial.task.delay.ms",
    }
)
"""Configs that a broker in a separate process sets to other values."""
KNOWN_TO_BOTH = sorted(OF_THE_PROCESS - {"log.initial.task.delay.ms"})
NODE = "1"
BYTES, POLICY, MIN_ISR = "log.retention.bytes", "log.cleanup.policy", "min.insync.replicas"


def _without_places(answer: DescribeConfigsResponse, port: int) -> DescribeConfigsResponse:
    for config in answer.results[0].configs:
        if config.value:
            config.value = config.value.replace(str(port), "<port>")
        for synonym in config.synonyms:
            if synonym.value:
                synonym.value = synonym.value.replace(str(port), "<port>")
    return answer


@probe("3")
def all_settings_of_a_broker(session: Session) -> Observations:
    """Describe every config of the broker, with types, sources and synonyms."""
    for version in (1, 4):
        for synonyms in (False, True):
            answer = describe(session, NODE, None, BROKER, version, include_synonyms=synonyms)
            configs = answer.results[0].configs
            answer.results[0].configs = [c for c in configs if c.name not in OF_THE_PROCESS]
            label = f"version {version}, synonyms {synonyms}"
            yield label, _without_places(answer, session.target.port)
            shown = {c.name: (c.read_only, c.is_sensitive, int(c.config_type)) for c in configs}
            yield f"{label}, types", [(name, shown[name]) for name in KNOWN_TO_BOTH]


@probe("3")
def settings_of_all_brokers(session: Session) -> Observations:
    """Describe configs that requests have changed for all brokers, without a broker's id."""
    for version in (1, 4):
        for keys in (None, [MIN_ISR], ["num.partitions"], []):
            answer = describe(session, "", keys, BROKER, version, include_synonyms=True)
            yield f"version {version}, {keys}", answer


def _changed(
    session: Session, name: str, wanted: Mapping[str, str | None], *gone: str
) -> DescribeConfigsResponse:
    """Return the configs of one broker or all, once a change has taken effect."""
    deadline = time.monotonic() + READY_S
    while True:
        answer = describe(session, name, [*wanted, *gone], BROKER, include_synonyms=True)
        values = {config.name: config.value for config in answer.results[0].configs}
        if values == wanted or time.monotonic() > deadline:
            return answer
        time.sleep(0.01)


@probe("3")
def change_settings_of_brokers(session: Session) -> Observations:
    """Set and delete a config of all brokers and of one."""
    size = str(1 << 40)
    yield "for all", change(session, "", (SET, BYTES, size), kind=BROKER)
    yield "shown by one", _changed(session, NODE, {BYTES: size})
    yield "shown by all", _changed(session, "", {BYTES: size})
    topic = session.topic()
    yield "shown by a topic", describe(session, topic, ["retention.bytes"], include_synonyms=True)
    yield "for one", change(session, NODE, (SET, BYTES, "-1"), kind=BROKER)
    yield "shown by one again", _changed(session, NODE, {BYTES: "-1"})
    yield "not for one", change(session, NODE, (DELETE, BYTES, None), kind=BROKER)
    yield "appended", change(session, "", (APPEND, POLICY, "compact"), kind=BROKER)
    yield "both", _changed(session, NODE, {POLICY: "delete,compact"})
    yield "taken away", change(session, "", (SUBTRACT, POLICY, "compact"), kind=BROKER)
    yield "one left", _changed(session, NODE, {POLICY: "delete"})
    yield (
        "not for all",
        change(session, "", (DELETE, BYTES, None), (DELETE, POLICY, None), kind=BROKER),
    )
    yield "as before", _changed(session, NODE, {BYTES: "-1", POLICY: "delete"})


@probe("3")
def replace_settings_of_brokers(session: Session) -> Observations:
    """Replace changed configs with AlterConfigs, which keeps the cluster's in-sync replicas."""
    quota = "leader.replication.throttled.rate"
    yield "for one", alter(session, NODE, {quota: "1000000"}, BROKER)
    yield "shown by one", _changed(session, NODE, {quota: "1000000"})
    yield "nothing for one", alter(session, NODE, {}, BROKER)
    yield "not shown", _changed(session, NODE, {}, quota)
    yield "without replicas", alter(session, "", {BYTES: "-1"}, BROKER)
    yield "with replicas", alter(session, "", {BYTES: "-1", MIN_ISR: "1"}, BROKER)
    yield "shown by all", _changed(session, "", {BYTES: "-1", MIN_ISR: "1"})
    yield "the replicas alone", alter(session, "", {MIN_ISR: "1"}, BROKER)
    yield "left", _changed(session, "", {MIN_ISR: "1"}, BYTES)


@probe("3")
def settings_of_brokers_that_cannot_be(session: Session) -> Observations:
    """Alter read-only and unknown configs, wrong values, and configs of other brokers."""
    for label, name, one in (
        ("read-only for all", "", (SET, "num.partitions", "3")),
        ("read-only for one", NODE, (SET, "num.partitions", "3")),
        ("a word for a number", "", (SET, "log.retention.ms", "soon")),
        ("too small", NODE, (SET, "log.segment.bytes", "1")),
        ("of one listener", "", (SET, "ssl.keystore.location", "/x")),
        ("of one listener for one", NODE, (SET, "ssl.keystore.password", "x")),
        ("of one broker", "", (SET, "ssl.protocol", "TLSv1.3")),
        ("another broker", "99", (SET, BYTES, "5")),
        ("no number", "one", (SET, BYTES, "5")),
        ("null", "", (SET, BYTES, None)),
        ("no list", "", (APPEND, BYTES, "1")),
        ("replicas of one", NODE, (SET, MIN_ISR, "1")),
        ("no replicas", "", (DELETE, MIN_ISR, None)),
        ("not set", "", (DELETE, "compression.type", None)),
    ):
        yield label, change(session, name, one, kind=BROKER)
        yield f"{label}, all", alter(session, name, {one[1]: one[2]}, BROKER)
    yield "only checked", change(session, "", (SET, BYTES, "7"), kind=BROKER, validate_only=True)
    yield "unknown", change(session, "", (SET, "no.such.thing", "1"), kind=BROKER)
    yield "shown", _changed(session, "", {"no.such.thing": None})
    yield "gone", change(session, "", (DELETE, "no.such.thing", None), kind=BROKER)
    yield "left", _changed(session, "", {MIN_ISR: "1"}, BYTES, "no.such.thing")
