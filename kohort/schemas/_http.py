"""Bounded requests to the registry: one at a time, in the thread that calls.

The standard library's client is enough for a few small GETs in the life of a program. So schemas
need no HTTP library. Every request has these limits:

1. ``timeout`` seconds for all attempts together, and at most ``ATTEMPT_SECONDS`` for one of them.
2. ``MAX_BODY`` bytes of response.
3. Attempts after 408, 429, 5xx and failures of the network only. The delay doubles, and
   ``Retry-After`` may lengthen it. A delay that would pass the time limit ends the attempts.
4. No redirects and no proxies.
"""

from __future__ import annotations

import base64
import http.client
import json
import random
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit

from kohort.errors import InvalidOptionError
from kohort.schemas._errors import (
    RegistryRefusedError,
    RegistryUnavailableError,
    UnknownSchemaError,
)

ATTEMPT_SECONDS = 5.0
MAX_BODY = 16 << 20
PIECE = 64 << 10
FIRST_DELAY, LONGEST_DELAY = 0.1, 2.0
RETRIED = (408, 429)
"""Status codes below 500 that mean a failure for now."""
ACCEPT = "application/vnd.schemaregistry.v1+json, application/json"

Login = tuple[str, str] | str | Callable[[], str] | None
"""User and password, a bearer token, or a function that returns a token."""


class RegistryHttp:
    """The addresses of a registry and the login. A call goes to one address after the other."""

    def __init__(
        self,
        urls: Sequence[str],
        *,
        login: Login,
        ssl_context: ssl.SSLContext | None,
        timeout: float,
        headers: Mapping[str, str] | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        if not urls:
            raise InvalidOptionError("a registry needs an address, such as http://localhost:8081")
        self._urls = [_checked(url) for url in urls]
        self._login = login
        self._ssl_context = ssl_context
        self._timeout = timeout
        self._given_headers = dict(headers or {})
        self._clock = clock
        self._sleep = sleep
        self._jitter = jitter

    @property
    def where(self) -> str:
        """The addresses without logins, for messages."""
        return ", ".join(f"{url.scheme}://{_host(url)}{url.path}" for url in self._urls)

    def call(self, path: str, what: str, body: object = None) -> Any:
        """Return the JSON of a GET, or of a POST of ``body``. Raises the errors of a registry.

        ``what`` names the wanted thing in messages.
        """
        deadline = self._clock() + self._timeout
        delay = FIRST_DELAY
        while True:
            for url in self._urls:
                left = deadline - self._clock()
                status, content, retry_after = self._attempt(
                    url, path, body, min(left, ATTEMPT_SECONDS)
                )
                if 200 <= status < 300:
                    return _json(content, self.where)
                if 0 < status < 500 and status not in RETRIED:
                    raise self._refusal(status, content, what)
            pause = max(delay * (0.5 + self._jitter() / 2), retry_after)
            if self._clock() + pause >= deadline:
                said = f"responded with {status}" if status else content.decode()
                raise RegistryUnavailableError(
                    f"the registry {self.where} did not return {what} within {self._timeout:g} s: "
                    f"it {said}. Check its address and state, and call again"
                )
            self._sleep(pause)
            delay = min(2 * delay, LONGEST_DELAY)

    def _attempt(
        self, url: SplitResult, path: str, body: object, seconds: float
    ) -> tuple[int, bytes, float]:
        """Return status, content and seconds to wait. Status 0: the content is the failure."""
        connection = self._connection(url, max(seconds, 0.001))
        try:
            data = None if body is None else json.dumps(body).encode()
            method = "GET" if data is None else "POST"
            connection.request(method, url.path + path, data, self._headers(url))
            response = connection.getresponse()
            until = self._clock() + seconds
            content = bytearray()
            while piece := response.read(PIECE):
                content += piece
                if len(content) > MAX_BODY:
                    raise RegistryRefusedError(
                        f"the registry {self.where} responded with more than {MAX_BODY} bytes. "
                        "Check its address"
                    )
                if self._clock() > until:
                    raise TimeoutError
            return response.status, bytes(content), _seconds(response.headers.get("Retry-After"))
        except ssl.SSLCertVerificationError as error:
            raise RegistryRefusedError(
                f"the certificate of the registry {self.where} is not accepted: "
                f"{error.verify_message}. Pass an ssl_context that trusts its issuer"
            ) from error
        except TimeoutError:
            return 0, b"did not respond in time", 0.0
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            return 0, f"cannot be reached: {reason}".encode(), 0.0
        finally:
            connection.close()

    def _connection(self, url: SplitResult, seconds: float) -> http.client.HTTPConnection:
        host, port = url.hostname or "", url.port
        if url.scheme == "http":
            return http.client.HTTPConnection(host, port, timeout=seconds)
        context = self._ssl_context or ssl.create_default_context()
        return http.client.HTTPSConnection(host, port, timeout=seconds, context=context)

    def _headers(self, url: SplitResult) -> dict[str, str]:
        headers = {"Accept": ACCEPT, "Content-Type": "application/vnd.schemaregistry.v1+json"}
        login = self._login
        if login is None and url.username is not None:
            login = unquote(url.username), unquote(url.password or "")
        if isinstance(login, tuple):
            text = base64.b64encode(":".join(login).encode()).decode()
            headers["Authorization"] = f"Basic {text}"
        elif login is not None:
            headers["Authorization"] = f"Bearer {login() if callable(login) else login}"
        return headers | self._given_headers

    def _refusal(self, status: int, content: bytes, what: str) -> Exception:
        try:
            reason = str(json.loads(content)["message"])[:500]
        except (ValueError, KeyError, TypeError):
            reason = "it gives no reason"
        if status == 404:
            return UnknownSchemaError(
                f"the registry {self.where} does not have {what}: {reason}. Check that the address "
                "is that of the producer's registry"
            )
        advice = {401: "Check the login", 403: "Check the login and its permissions"}
        return RegistryRefusedError(
            f"the registry {self.where} responded with {status} to the call for {what}: {reason}. "
            f"{advice.get(status, 'Check its address')}"
        )


def _checked(url: str) -> SplitResult:
    found = urlsplit(url.rstrip("/"))
    try:
        is_valid = found.scheme in ("http", "https") and found.hostname and found.port != 0
    except ValueError:
        is_valid = False
    if not is_valid:
        # The value may have a password.
        raise InvalidOptionError("the address of a registry must be http://HOST or https://HOST")
    return found


def _host(url: SplitResult) -> str:
    return url.netloc.rpartition("@")[2]


def _json(content: bytes, where: str) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise RegistryRefusedError(
            f"the registry {where} did not respond with JSON. Check its address"
        ) from error


def _seconds(text: str | None) -> float:
    """Return the seconds of a Retry-After header. A date, which is rare, counts as none."""
    return float(text) if text is not None and text.isdecimal() else 0.0
