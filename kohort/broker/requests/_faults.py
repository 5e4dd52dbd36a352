"""Rules that intercept requests. Every request passes through :meth:`Faults.apply`.

A rule has a handler, which sees the call before the broker does. The handler returns a response,
drops the connection, waits for the broker's response and changes it, or passes the call on.
``fail``, ``delay`` and the other methods of :mod:`kohort.testing._fault_control` only add handlers.
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

from kohort.broker.apis import CloseConnection, Context
from kohort.broker.requests._failures import error_response
from kohort.errors import ErrorCode, InvalidOptionError
from kohort.protocol import APIS, Request, Response


class Action(Enum):
    """Results that a handler may return instead of a response."""

    DROP = "drop"
    """Close the connection without a response."""


Outcome = Response | Action | None
FaultHandler = Callable[["Call"], Outcome | Awaitable[Outcome]]
ServeRequest = Callable[[Context, Any], Awaitable[Response | None]]


@dataclass(frozen=True, slots=True)
class SendRate:
    """Size of pieces, 1 to ``piece`` bytes at random, and their rate; 0 is no limit."""

    piece: int = 1024
    bytes_per_second: float = 0.0


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
        self.message: Any = message
        """The decoded request, with the fields of its API."""
        self.pace: SendRate | None = None
        """Rate of sending the response, None for no limit."""
        self._ctx = ctx
        self._rules = rules
        self._serve = serve
        self._proceeded: tuple[Response | None] | None = None

    @property
    def node_id(self) -> int:
        """Id of the broker that received the request."""
        return self._ctx.broker.node.id

    @property
    def version(self) -> int:
        """Version of the API that the request has."""
        return self._ctx.version

    @property
    def client_id(self) -> str:
        """The client's ``client.id``, empty if it has none."""
        return self._ctx.client_id

    @property
    def client_host(self) -> str:
        """Address of the client in Kafka's format: ``/127.0.0.1``."""
        return self._ctx.client_host

    @property
    def principal(self) -> str:
        """User of the connection, such as ``User:alice``."""
        return self._ctx.principal

    @property
    def login_steps(self) -> int:
        """Number of tokens that the client has sent in the current login."""
        login = self._ctx.login
        return 0 if login is None else login.steps

    async def proceed(self) -> Any | None:
        """Return the response of the later handlers and the broker, None if there is none."""
        response = await self._apply_rules()
        self._proceeded = (response,)
        return response

    def error(self, error: ErrorCode) -> Response:
        """Return a response with this error code in all of its parts."""
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
                raise CloseConnection(f"an injected fault dropped {self.api}")
            if isinstance(outcome, Response):
                return outcome
            if outcome is not None or self._proceeded is None:
                raise TypeError(
                    f"a handler for {self.api} returned {outcome!r}. Return a response, such as "
                    "call.error(code), or Action.DROP, or None to pass"
                )
            return self._proceeded[0]
        return await self._serve(self._ctx, self.message)


@dataclass(eq=False, slots=True)
class Rule:
    """A handler with the requests that it selects.

    ``keys`` None selects every API. ``remaining`` is the number of calls that it still handles.
    With ``holds_responses`` responses wait until the rule is stopped, also those of earlier
    requests.
    """

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
        """Count a call as handled; return False if none remain."""
        if self.remaining < 1 or self.stopped.is_set():
            return False
        self.remaining -= 1
        self.hits += 1
        return True

    def release(self) -> None:
        """Take back a :meth:`claim`, because the handler passed the call on."""
        self.remaining += 1
        self.hits -= 1


class Faults:
    """The rules of a cluster, applied in the order of their creation."""

    def __init__(self, seed: int) -> None:
        self.rng: random.Random = random.Random(f"faults {seed}")
        self._rules: list[Rule] = []

    def add(self, rule: Rule) -> Rule:
        self._rules.append(rule)
        return rule

    def stop(self, rule: Rule) -> None:
        """Remove a rule, and release the requests that it delays."""
        rule.stopped.set()
        if rule in self._rules:
            self._rules.remove(rule)

    def stop_all(self) -> None:
        for rule in tuple(self._rules):
            self.stop(rule)

    async def apply(
        self, ctx: Context, api: str, message: Request[Any], serve: ServeRequest
    ) -> tuple[Response | None, SendRate | None]:
        """Return the response to a request and the rate of sending it."""
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
    """Return the key of an API by name or key, None for all; InvalidOptionError if unknown."""
    if api is None:
        return None
    for key, known in APIS.items():
        name = known.request.__name__.removesuffix("Request")
        if api == key or (isinstance(api, str) and api.lower() == name.lower()):
            return frozenset([int(key)])
    raise InvalidOptionError(f"api={api!r}: no such Kafka API. Use a name such as 'JoinGroup'")
