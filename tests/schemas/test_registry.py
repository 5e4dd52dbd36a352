"""The client of a registry: its calls, cache, back-off and errors."""

from __future__ import annotations

import base64
import socketserver
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from typing import Any
from uuid import UUID

import pytest
import trustme

import kohort.schemas._registry as registry_module
from kohort.errors import InvalidOptionError
from kohort.schemas import (
    RegistryRefusedError,
    RegistryUnavailableError,
    Schema,
    SchemaNotPreparedError,
    SchemaRegistry,
    UnknownSchemaError,
)
from kohort.schemas._http import MAX_BODY, RegistryHttp

GUID = UUID("89791762-2336-4186-9674-299b90a802e2")
Answer = tuple[int, bytes] | tuple[int, bytes, dict[str, str]]
GOOD: Answer = (200, b'{"schema": "\\"string\\""}')


class Scripted:
    """A server with a list of responses, and the requests that it got."""

    def __init__(self, answers: list[Answer], context: ssl.SSLContext | None = None) -> None:
        self.requests: list[tuple[str, dict[str, str]]] = []
        script = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                script.requests.append((self.path, dict(self.headers)))
                status, body, *headers = answers.pop(0) if answers else (500, b"")
                self.send_response(status)
                for name, value in (headers[0] if headers else {}).items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *arguments: object) -> None:
                pass

        class Server(socketserver.ThreadingTCPServer):
            daemon_threads = True

            def handle_error(self, request: Any, client_address: Any) -> None:
                pass  # a client that refuses the certificate

        self.server = Server(("127.0.0.1", 0), Handler)
        if context is not None:
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        scheme = "http" if context is None else "https"
        self.url = f"{scheme}://127.0.0.1:{self.server.server_address[1]}"


@contextmanager
def serving(answers: list[Answer], context: ssl.SSLContext | None = None) -> Iterator[Scripted]:
    found = Scripted(answers, context)
    thread = threading.Thread(target=found.server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield found
    finally:
        found.server.shutdown()
        thread.join()
        found.server.server_close()


class Time:
    """A clock that only sleeps move."""

    def __init__(self) -> None:
        self.now = 0.0
        self.pauses: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds


def http(url: str, time: Time, timeout: float = 10.0) -> RegistryHttp:
    return RegistryHttp(
        [url],
        login=None,
        ssl_context=None,
        timeout=timeout,
        clock=lambda: time.now,
        sleep=time.sleep,
        jitter=lambda: 1.0,
    )


def test_schema_is_loaded_once() -> None:
    with serving([GOOD, GOOD]) as server:
        registry = SchemaRegistry(server.url)
        with pytest.raises(SchemaNotPreparedError, match=r"prepare\(\[7\]\)"):
            registry.schema(7)
        assert server.requests == []
        registry.prepare([7, 7])
        registry.prepare([7])
        registry.prepare([GUID])
    assert registry.schema(7) == registry.schema(GUID) == Schema('"string"')
    assert [path for path, _ in server.requests] == ["/schemas/ids/7", f"/schemas/guids/{GUID}"]


@pytest.mark.anyio
async def test_prepare_async_loads_and_raises() -> None:
    with serving([GOOD, (404, b'{"message": "Schema 8 not found"}')]) as server:
        registry = SchemaRegistry(server.url)
        await registry.prepare_async([7])
        assert registry.schema(7).kind == "AVRO"
        with pytest.raises(UnknownSchemaError, match="Schema 8 not found"):
            await registry.prepare_async([7, 8])


def test_unknown_schema_is_not_looked_up_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(registry_module, "clock", lambda: now)
    with serving([(404, b""), GOOD, GOOD]) as server:
        registry = SchemaRegistry(server.url)
        for _ in range(2):
            with pytest.raises(UnknownSchemaError):
                registry.prepare([1, 2])
        assert registry.schema(2)
        with pytest.raises(UnknownSchemaError):
            registry.schema(1)
        assert len(server.requests) == 2
        now = registry_module.UNKNOWN_SECONDS
        registry.prepare([1])
    assert registry.schema(1)


def test_unknown_schemas_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(registry_module, "clock", lambda: now)
    monkeypatch.setattr(registry_module, "MANY_UNKNOWN", 2)
    with serving([(404, b"")] * 3) as server:
        registry = SchemaRegistry(server.url)
        for schema_id in range(3):
            now += registry_module.UNKNOWN_SECONDS / 2
            with pytest.raises(UnknownSchemaError):
                registry.prepare([schema_id])
    assert list(registry._unknown) == [1, 2]


def test_failures_for_now_are_repeated_with_growing_delays() -> None:
    time = Time()
    answers: list[Answer] = [(500, b""), (429, b"", {"Retry-After": "3"}), (503, b""), GOOD]
    with serving(answers) as server:
        assert http(server.url, time).call("/x", "it") == {"schema": '"string"'}
    assert time.pauses == [0.1, 3.0, 0.4]


def test_time_limit_ends_the_attempts() -> None:
    time = Time()
    with serving([(503, b"")] * 9) as server:
        with pytest.raises(RegistryUnavailableError, match="within 1 s: it responded with 503"):
            http(server.url, time, 1.0).call("/x", "it")
    assert time.pauses == [0.1, 0.2, 0.4]


def test_registry_that_is_away_is_unavailable() -> None:
    with serving([]) as server:
        url = server.url
    with pytest.raises(RegistryUnavailableError, match="cannot be reached") as caught:
        http(url, Time()).call("/x", "it")
    assert caught.value.retriable


def test_next_address_is_tried_when_one_fails() -> None:
    with serving([(503, b"")]) as bad, serving([GOOD]) as good:
        registry = SchemaRegistry(bad.url, good.url)
        registry.prepare([1])
    assert len(bad.requests) == len(good.requests) == 1


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ((401, b'{"message": "no"}'), "401 to the call for the schema 1: no. Check the login"),
        ((403, b"<html>"), "it gives no reason. Check the login and its permissions"),
        ((302, b"", {"Location": "/"}), "302"),
        ((200, b"<html>"), "did not respond with JSON"),
        ((200, b'{"a": 1}'), "which is no schema"),
        ((200, b"[]"), "which is no schema"),
        ((200, bytes(MAX_BODY + 1)), "more than"),
    ],
)
@pytest.mark.cases
def test_other_responses_are_refusals(answer: Answer, text: str) -> None:
    with serving([answer]) as server:
        with pytest.raises(RegistryRefusedError, match=text):
            SchemaRegistry(server.url).prepare([1])
    assert len(server.requests) == 1


def test_login_is_sent_and_never_shown() -> None:
    basic = "Basic " + base64.b64encode(b"ann:s3:cret").decode()
    with serving([GOOD] * 3 + [(401, b"")]) as server:
        address = server.url.removeprefix("http://")
        tokens = iter(["first", "second"])
        for registry in (
            SchemaRegistry(server.url, login=("ann", "s3:cret")),
            SchemaRegistry(f"http://ann:s3%3Acret@{address}/"),
            SchemaRegistry(server.url, login=lambda: next(tokens), headers={"X-Cluster": "lsrc-1"}),
        ):
            registry.prepare([1])
            assert "s3" not in repr(registry)
        with pytest.raises(RegistryRefusedError) as caught:
            SchemaRegistry(f"http://ann:s3cret@{address}").prepare([1])
    assert "s3cret" not in str(caught.value)
    sent = [headers["Authorization"] for _, headers in server.requests]
    assert sent[:3] == [basic, basic, "Bearer first"]
    assert server.requests[2][1]["X-Cluster"] == "lsrc-1"


@pytest.mark.parametrize("url", ["localhost:8081", "ftp://host", "http://", "http://ann:pw@host:x"])
def test_wrong_address_raises_at_once(url: str) -> None:
    with pytest.raises(InvalidOptionError, match="must be http://HOST") as caught:
        SchemaRegistry(url)
    assert "pw" not in str(caught.value)
    with pytest.raises(InvalidOptionError, match="needs an address"):
        SchemaRegistry()


def test_tls_needs_a_trusted_certificate() -> None:
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    with serving([GOOD], context) as server:
        trusting = ssl.create_default_context()
        authority.configure_trust(trusting)
        SchemaRegistry(server.url, ssl_context=trusting).prepare([1])
        with pytest.raises(RegistryRefusedError, match="Pass an ssl_context"):
            SchemaRegistry(server.url).prepare([1])


def test_references_are_loaded_with_the_schema() -> None:
    top = b'{"schema": "1", "references": [{"name": "A", "subject": "a/b", "version": 2}]}'
    with serving([(200, top), GOOD, (200, top)]) as server:
        registry = SchemaRegistry(server.url)
        registry.prepare([1])
        registry.prepare([2])  # the version is in the cache
    assert registry.schema(1).references == {"A": Schema('"string"')}
    assert [path for path, _ in server.requests] == [
        "/schemas/ids/1",
        "/subjects/a%2Fb/versions/2?deleted=true",
        "/schemas/ids/2",
    ]


def test_circular_reference_is_refused() -> None:
    top = b'{"schema": "1", "references": [{"name": "A", "subject": "a", "version": 1}]}'
    with serving([(200, top)] * 9) as server:
        with pytest.raises(RegistryRefusedError, match="refers to itself"):
            SchemaRegistry(server.url).prepare([1])
    assert len(server.requests) == 2
