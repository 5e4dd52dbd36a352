"""Topics whose broker was restarted, so that their leader has a later epoch."""

from __future__ import annotations

from tests.conformance.session import Session, Target, batch

LABEL = "aged"
WRITTEN, QUIET, EMPTY = "written", "quiet", "empty"
"""Topics with records of both epochs, of the first epoch only, and without records."""
FIRST, PRESENT = 0, 2
"""First and present epoch of the leaders. In epoch 1 there was no leader."""


def aged_topic(session: Session, kind: str) -> str:
    """Return the name of one of the topics. All probes share them, because they only read."""
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
        # 1. A restarted broker reads in its log that it still leads. 2. It learns that it was
        # fenced and elected again. A later epoch shows the second step.
        session.wait_for_leaders(aged_topic(session, kind), 1, PRESENT)
    session.produce(aged_topic(session, WRITTEN), batch(b"2"), batch(b"3", b"4"))
    session.close()
