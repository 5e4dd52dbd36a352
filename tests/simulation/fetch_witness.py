"""Observation of the fetches of distant members, inside their fetchers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from kohort.fetcher import Fetcher
from kohort.fetcher.requests._planning import PlannedFetch
from kohort.fetcher.requests._sending import FetchSender
from tests.simulation.events import EventLog, FetchEnded, FetchSent, Throttled, now


@contextmanager
def watching_fetches(log: EventLog) -> Iterator[None]:
    """Log each fetch within the block: when it is planned, throttled and over."""
    start: Callable[..., Any] = Fetcher._start
    send: Callable[..., Any] = FetchSender.send
    note: Callable[..., bool] = FetchSender._note_response

    def started(fetcher: Any, tasks: Any, fetches: Iterable[PlannedFetch], own: Any) -> Any:
        assigned = fetcher._subscription.assigned()
        for fetch in fetches:
            requests = fetch.connection.session.requests
            log.add(
                FetchSent(
                    at=now(),
                    who=fetcher._cluster._config.client_id,
                    node=fetch.connection.node,
                    connection=fetch.connection.purpose,
                    requests=frozenset((tp, one.epoch) for tp, one in requests.items()),
                    unassigned=frozenset(requests.keys() - assigned),
                )
            )
        return start(fetcher, tasks, fetches, own)

    async def sent(sender: Any, fetch: PlannedFetch) -> bool:
        try:
            ready: bool = await send(sender, fetch)
        finally:
            node, purpose = fetch.connection.node, fetch.connection.purpose
            who = sender._cluster._config.client_id
            log.add(FetchEnded(at=now(), who=who, node=node, connection=purpose))
        return ready

    def noted(sender: Any, connection: Any, received: Any) -> bool:
        response = received.response
        if response is not None and response.throttle_time_ms and not response.error_code:
            seconds, who = response.throttle_time_ms / 1000, sender._cluster._config.client_id
            log.add(Throttled(at=now(), who=who, node=connection.node, seconds=seconds))
        return note(sender, connection, received)

    with (
        patch.object(Fetcher, "_start", started),
        patch.object(FetchSender, "send", sent),
        patch.object(FetchSender, "_note_response", noted),
    ):
        yield
