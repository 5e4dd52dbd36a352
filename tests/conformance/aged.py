"""Topics that have seen their broker end and come back, so that their leader has a later epoch."""

from __future__ import annotations

from tests.conformance.session import Session, Target, batch

LABEL = "aged"
WRITTEN, QUIET, EMPTY = "written", "quiet", "empty"
"""With records of both epochs, of the first one alone, and with none."""
FIRST, PRESENT = 0, 2
"""Between them, in epoch 1, there was no leader."""


def aged_topic(session: Session, kind: str) -> str:
    """The name of one of them, the same for every probe: they are only read."""
    return f"{LABEL}.{session.target.token}.{kind}"


def before_the_restart(target: Target) -> None:
    session = Session(target, LABEL)
    for kind in (WRITTEN, QUIET, EMPTY):
        topic = session.topic(kind)
        if kind != EMPTY:
            session.produce(topic, batch(b"0", b"1"))
    session.close()


def after_the_restart(target: Target) -> None:
    session = Session(target, LABEL)
    for kind in (WRITTEN, QUIET, EMPTY):
        # A broker that comes back reads in its log that it leads still, and only then that it
        # was taken for dead and has been given the leadership anew.
        session.wait_for_leaders(aged_topic(session, kind), 1, PRESENT)
    session.produce(aged_topic(session, WRITTEN), batch(b"2"), batch(b"3", b"4"))
    session.close()
