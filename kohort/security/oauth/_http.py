"""One HTTPS request to a token endpoint: no redirects, no proxies, limits on time and size."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
from collections.abc import Callable, Mapping
from typing import Any

import anyio

from kohort.config import Url
from kohort.errors import OAuthTokenError, OAuthTokenUnavailableError
from kohort.security._calls import in_thread
from kohort.security._secrets import mask, printable

CONNECT_SECONDS = 5.0
TOTAL_SECONDS = 10.0
MAX_BODY = 65_536
PIECE = 8_192
RETRIED = (408, 429)
"""Status codes below 500 that mean a failure for now."""


class HttpCall:
    """A POST, or a GET without a body. It runs in a worker thread; abort() ends it from another.

    ``body`` and ``headers`` are called where their values are used, so that no local variable of a
    frame holds a secret.
    """

    def __init__(
        self,
        url: Url,
        body: Callable[[], bytes] | None,
        headers: Callable[[], Mapping[str, str]],
        context: Callable[[], ssl.SSLContext],
        redact: Callable[[str], str] = mask,
    ) -> None:
        self._url = url
        self._body = body
        self._headers = headers
        self._context = context
        self._redact = redact
        self._connection: http.client.HTTPConnection | None = None
        self._connected = False
        self._aborted = False
        self._content = b""  # an attribute, because frames that raise show their local variables
        self.where = str(url)

    def run(self) -> Mapping[str, Any]:
        """Return the JSON object of the server's response. Raises OAuthTokenError."""
        where = self.where
        fault = ""
        connection = self._connection = self._make()
        try:
            self._connect(connection)
            if self._body is None:
                connection.request("GET", self._url.target, None, self._headers())
            else:
                connection.request("POST", self._url.target, self._body(), self._headers())
            response = connection.getresponse()
            self._content = self._read(response)
        except OAuthTokenError:
            raise
        except ssl.SSLCertVerificationError as error:
            raise OAuthTokenError(
                f"the certificate of the token endpoint {where} is not accepted: "
                f"{printable(error.verify_message)}. Set sasl_oauthbearer_https_cafile"
            ) from error.with_traceback(None)
        except TimeoutError as error:
            seconds = TOTAL_SECONDS if self._connected else CONNECT_SECONDS
            raise OAuthTokenUnavailableError(
                f"the token endpoint {where} did not respond within {seconds:g} s"
            ) from error.with_traceback(None)
        except OSError as error:
            raise OAuthTokenUnavailableError(
                f"the token endpoint {where} cannot be reached: "
                f"{printable(error.strerror or str(error) or type(error).__name__)}"
            ) from error.with_traceback(None)
        except http.client.HTTPException as error:
            fault = self._shown(str(error) or type(error).__name__)
        finally:
            connection.close()
        if fault:
            # Without the cause: IncompleteRead has the body, which may hold tokens.
            raise OAuthTokenUnavailableError(
                f"the token endpoint {where} cannot be reached: {fault}"
            )
        return self._result(response.status, response.headers.get_content_type())

    def _make(self) -> http.client.HTTPConnection:
        host, port = self._url.host, self._url.port
        if self._url.scheme == "http":
            return http.client.HTTPConnection(host, port, timeout=CONNECT_SECONDS)
        return http.client.HTTPSConnection(
            host, port, timeout=CONNECT_SECONDS, context=self._context()
        )

    def _connect(self, connection: http.client.HTTPConnection) -> None:
        connection.connect()
        if self._aborted:
            raise OSError("given up")
        self._connected = True
        connection.sock.settimeout(TOTAL_SECONDS)

    def _read(self, response: http.client.HTTPResponse) -> bytes:
        content = bytearray()
        while piece := response.read(PIECE):
            content += piece
            if len(content) > MAX_BODY:
                del content, piece  # they may hold tokens
                raise OAuthTokenError(
                    f"the token endpoint {self.where} responded with more than {MAX_BODY} bytes"
                )
        if response.length:  # read() with a size does not say so
            del content, piece
            raise http.client.IncompleteRead(b"", response.length)
        return bytes(content)

    def _result(self, status: int, content_type: str) -> Mapping[str, Any]:
        where = self.where
        is_json = content_type == "application/json" or content_type.endswith("+json")
        fields = _json_object(self._content) if is_json else None
        self._content = b""
        if status == 200:
            if fields is not None:
                return fields
            raise OAuthTokenError(
                f"the token endpoint {where} responded with {self._shown(content_type)} without a "
                "JSON object: check sasl_oauthbearer_token_endpoint_url"
            )
        why = self._shown(_error_text(fields or {}))
        del fields  # they may repeat the secret, or hold tokens
        if 300 <= status < 400:
            raise OAuthTokenError(
                f"the token endpoint {where} responded with {status}, a redirect, which is not "
                "followed: check sasl_oauthbearer_token_endpoint_url"
            )
        text = f"the token endpoint {where} responded with {status}" + (f": {why}" if why else "")
        if status >= 500 or status in RETRIED:
            raise OAuthTokenUnavailableError(text)
        raise OAuthTokenError(text)

    def _shown(self, text: str) -> str:
        """Return a text of the server without secrets, escaped and cut in this order."""
        return printable(self._redact(text))

    def abort(self) -> None:
        """End run(), which then fails. Safe from another thread."""
        self._aborted = True
        connection = self._connection
        sock = None if connection is None else connection.sock
        if sock is not None:
            try:
                # SSLSocket.shutdown() would touch the TLS state that the other thread uses.
                socket.socket.shutdown(sock, socket.SHUT_RDWR)
            except OSError:
                pass


def _json_object(content: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _error_text(fields: Mapping[str, Any]) -> str:
    """Return ``error`` and ``error_description`` of an answer."""
    parts = (fields.get("error"), fields.get("error_description"))
    return ": ".join(each for each in parts if isinstance(each, str))


async def post(call: HttpCall) -> Mapping[str, Any]:
    """Run a call in a worker thread within the time limit. OAuthTokenError."""
    try:
        with anyio.fail_after(TOTAL_SECONDS):
            return await in_thread(call.run)
    except OAuthTokenError:
        raise  # some are a TimeoutError, too
    except TimeoutError as error:
        raise OAuthTokenUnavailableError(
            f"the token endpoint {call.where} did not respond within {TOTAL_SECONDS:g} s"
        ) from error
    finally:
        call.abort()
