"""Token endpoint on loopback, which misbehaves on demand."""

from __future__ import annotations

import base64
import http.server
import json
import ssl
import threading
import urllib.parse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from tests.support.tokens import unsecured

CLIENT_ID, CLIENT_SECRET = "app", "app-secret"


class Idp:
    """Behaviour of the endpoint, and the requests that it got."""

    def __init__(self, port: int, scheme: str) -> None:
        self.mode = "ok"
        self.life = 300.0
        self.make: Callable[[float], str] = partial(unsecured, "app")
        """Function that returns a token with a lifetime in seconds."""
        self.failures = 0
        """Number of further requests that get status 503."""
        self.forms: list[dict[str, str]] = []
        self.headers: list[dict[str, str]] = []
        self.targets: list[str] = []
        """Paths with their queries of the requests without a form."""
        self.url = f"{scheme}://127.0.0.1:{port}/token"
        self.reply: tuple[int, Any, dict[str, str]] | None = None
        """Status, body and headers of every response, in place of those of ``mode``."""
        self.released = threading.Event()

    def answer(self, form: dict[str, str], authorization: str) -> tuple[int, Any, dict[str, str]]:
        """Return status, body and headers of the response."""
        if self.reply is not None:
            return self.reply
        if self.failures:
            self.failures -= 1
            return 503, {"error": "temporarily_unavailable"}, {}
        if self.targets and self.targets[-1].endswith("?recursive=true"):
            return 200, {"email": "app@project.example", "scopes": []}, {}
        if form.get("grant_type") == "client_credentials":
            pair = base64.b64decode(authorization.removeprefix("Basic ")).decode()
            if urllib.parse.unquote_plus(pair) != f"{CLIENT_ID}:{CLIENT_SECRET}":
                return 401, {"error": "invalid_client", "error_description": f"not {pair}"}, {}
        token: dict[str, Any] = {
            "access_token": self.make(self.life),
            "token_type": "Bearer",
            "expires_in": int(self.life),
        }
        odd: dict[str, tuple[int, Any, dict[str, str]]] = {
            "401": (401, {"error": "invalid_client", "error_description": "no\nsuch " * 99}, {}),
            "429": (429, {}, {}),
            "500": (500, {"error": "server_error"}, {}),
            "html": (200, b"<html>maintenance</html>", {"Content-Type": "text/html"}),
            "html error": (403, b"<html>" + b"x" * 9000, {"Content-Type": "text/html"}),
            "huge": (200, b'{"access_token":"' + b"A" * (1 << 20) + b'"}', {}),
            "redirect": (302, {}, {"Location": "http://127.0.0.1:1/token"}),
            "list": (200, [token], {}),
            "deep": (200, b"[" * 60_000, {}),
            "no token": (200, {"token_type": "Bearer"}, {}),
            "number": (200, token | {"access_token": 1}, {}),
            "control": (200, token | {"access_token": "a\x01auth=b"}, {}),
            "space": (200, token | {"access_token": "planted token"}, {}),
            "empty": (200, token | {"access_token": ""}, {}),
            "long": (200, token | {"access_token": "A" * 20_000}, {}),
            "mac": (200, token | {"token_type": "mac"}, {}),
            "expired": (200, token | {"access_token": unsecured("app", -60)}, {}),
            "no exp": (200, {"access_token": unsecured("app", exp=None)}, {}),
            "opaque": (200, {"access_token": "opaque", "expires_in": "600"}, {}),
        }
        return odd.get(self.mode, (200, token, {}))


def _handler(idp: Idp) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: Any) -> None:
            pass

        def do_GET(self) -> None:
            idp.targets.append(self.path)
            self._answer({})

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            self._answer(dict(urllib.parse.parse_qsl(body)))

        def _answer(self, form: dict[str, str]) -> None:
            idp.forms.append(form)
            idp.headers.append(dict(self.headers.items()))
            if idp.mode == "hang":
                idp.released.wait(20)
                self.close_connection = True
                return
            status, content, headers = idp.answer(form, self.headers.get("Authorization", ""))
            data = content if isinstance(content, bytes) else json.dumps(content).encode()
            self.send_response(status)
            for name, value in ({"Content-Type": "application/json"} | headers).items():
                self.send_header(name, value)
            if "Content-Length" not in headers:
                self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            try:
                if idp.mode == "drip":
                    for index in range(len(data)):
                        if idp.released.wait(0.2):
                            return
                        self.wfile.write(data[index : index + 1])
                else:
                    self.wfile.write(data)
            except OSError:
                self.close_connection = True

    return Handler


@contextmanager
def serving(context: ssl.SSLContext | None = None) -> Iterator[Idp]:
    """Run the endpoint, with TLS if there is a context."""
    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), http.server.BaseHTTPRequestHandler, bind_and_activate=True
    )
    server.daemon_threads = True
    server.handle_error = lambda *_: None  # type: ignore[method-assign]
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    idp = Idp(server.server_address[1], "http" if context is None else "https")
    server.RequestHandlerClass = _handler(idp)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield idp
    finally:
        idp.released.set()
        server.shutdown()
        thread.join()
        server.server_close()
