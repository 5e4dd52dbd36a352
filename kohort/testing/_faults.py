"""What a test does to requests: the one place that every request passes, and its rules.

A rule has a handler, which sees the call before the broker does and answers it, drops its
connection, lets the rest go on and takes the answer into its hands, or passes. ``fail``, ``delay``
and the others of :mod:`kohort.testing._fault_control` are handlers, no more.
"""

from __future__ import annotations

import inspect
import math
import random
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import anyio

from kohort.errors import ErrorCode, InvalidOptionError
from kohort.protocol import APIS, Request, Response
from kohort.testing._failures import error_response
from kohort.testing._send_rate import SendRate
from kohort.testing.apis import CloseConnection, Context


class Action(Enum):
    """What a handler may return instead of an answer."""

    DROP = "drop"
    """End the connection without an answer."""


Outcome = Response | Action | None
FaultHandler = Callable[["Call"], Outcome | Awaitable[Outcome]]
ServeRequest = Callable[[Context, Any], Awaitable[Response | None]]


class Call:
    """A request on its way to a broker, as a handler sees it."""

    def __init__(
        self,
        ctx: Context,
        api: str,
        message: Request[Any],
        rules: Iterator[Rule],
        serve: ServeRequest,
    ) -> None:
        self.api = api
        """Kafka's name, such as "JoinGroup"."""
        self.message = message
        """The request, decoded."""
        self.pace: SendRate | None = None
        """How its answer is sent, if not all at once."""
        self._ctx = ctx
        self._rules = rules
        self._serve = serve
        self._proceeded: tuple[Response | None] | None = None

    @property
    def node_id(self) -> int:
        """The broker that it came to."""
        return self._ctx.broker.node.id

    @property
    def version(self) -> int:
        """The version of the API that it is in."""
        return self._ctx.version

    @property
    def client_id(self) -> str:
        """The client's ``client.id``, empty if it has none."""
        return self._ctx.client_id

    @property
    def client_host(self) -> str:
        """Where it comes from, as Kafka writes it: ``/127.0.0.1``."""
        return self._ctx.client_host

    @property
    def principal(self) -> str:
        """User of the connection, such as ``User:alice``."""
        return self._ctx.principal

    @property
    def login_steps(self) -> int:
        """Tokens of the client that the broker has taken in the current login."""
        login = self._ctx.login
        return 0 if login is None else login.steps

    async def proceed(self) -> Response | None:
        """Let it be answered as if this handler were not there; None if it has no answer."""
        response = await self._apply_rules()
        self._proceeded = (response,)
        return response

    def error(self, error: ErrorCode) -> Response:
        """An answer that says this error wherever this API tells one."""
        return error_response(self._ctx, self.message, error)

    async def _apply_rules(self) -> Response | None:
        for rule in self._rules:
            if not rule.claim():
                continue
            self._proceeded = None
            outcome = rule.handler(self)
            if inspect.isawaitable(outcome):
                outcome = await outcome
            if outcome is None and self._proceeded is None:
                rule.release()
                continue
            if outcome is Action.DROP:
                raise CloseConnection(f"a fault that was asked for, on {self.api}")
            if isinstance(outcome, Response):
                return outcome
            if outcome is not None or self._proceeded is None:
                raise TypeError(
                    f"a handler for {self.api} returned {outcome!r}; it may return a response, "
                    "such as call.error(code), Action.DROP, or None to pass"
                )
            return self._proceeded[0]
        return await self._serve(self._ctx, self.message)


@dataclass(eq=False, slots=True)
class Rule:
    """``keys`` None is any API. ``left``: how many more calls it takes. ``holds_answers``: also
    what is answered while it stands waits for its end."""

    handler: FaultHandler
    keys: frozenset[int] | None = None
    node: int | None = None
    client_id: str | None = None
    chance: float = 1.0
    remaining: float = math.inf
    holds_responses: bool = False
    hits: int = 0
    stopped: anyio.Event = field(default_factory=anyio.Event)

    def matches(self, key: int, ctx: Context) -> bool:
        return (
            (self.keys is None or key in self.keys)
            and (self.node is None or ctx.broker.node.id == self.node)
            and (self.client_id is None or ctx.client_id == self.client_id)
        )

    def claim(self) -> bool:
        """One of its calls, if there are any left."""
        if self.remaining < 1 or self.stopped.is_set():
            return False
        self.remaining -= 1
        self.hits += 1
        return True

    def release(self) -> None:
        """It passed: that does not count."""
        self.remaining += 1
        self.hits -= 1


class Faults:
    """The rules of a cluster, asked in the order in which they were made."""

    def __init__(self, seed: int) -> None:
        self.rng: random.Random = random.Random(f"faults {seed}")
        self._rules: list[Rule] = []

    def add(self, rule: Rule) -> Rule:
        self._rules.append(rule)
        return rule

    def stop(self, rule: Rule) -> None:
        """It acts no more; what it holds goes on."""
        rule.stopped.set()
        if rule in self._rules:
            self._rules.remove(rule)

    def stop_all(self) -> None:
        for rule in tuple(self._rules):
            self.stop(rule)

    async def apply(
        self, ctx: Context, api: str, message: Request[Any], serve: ServeRequest
    ) -> tuple[Response | None, SendRate | None]:
        """Every request is answered here."""
        if not self._rules:
            response = await serve(ctx, message)
            if self._rules:
                await self._wait_for_holds(ctx, message)
            return response, None
        self._rules = [rule for rule in self._rules if rule.remaining >= 1]
        key = message.api_key
        rules = [rule for rule in self._rules if rule.matches(key, ctx)]
        rules = [rule for rule in rules if rule.chance >= 1 or self.rng.random() < rule.chance]
        call = Call(ctx, api, message, iter(rules), serve)
        response = await call._apply_rules()
        await self._wait_for_holds(ctx, message)
        return response, call.pace

    async def _wait_for_holds(self, ctx: Context, message: Request[Any]) -> None:
        for rule in tuple(self._rules):
            if rule.holds_responses and rule.matches(message.api_key, ctx):
                await rule.stopped.wait()


def api_keys(api: str | int | None) -> frozenset[int] | None:
    """An API by its name or key, None for all; InvalidOptionError for one that is not."""
    if api is None:
        return None
    for key, known in APIS.items():
        name = known.request.__name__.removesuffix("Request")
        if api == key or (isinstance(api, str) and api.lower() == name.lower()):
            return frozenset([int(key)])
    raise InvalidOptionError(f"{api!r} is not a Kafka API; names are as in 'JoinGroup'")
