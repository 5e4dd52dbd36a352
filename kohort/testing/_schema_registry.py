"""A schema registry for tests, with the calls that serializers and deserializers make.

It has the paths and errors of Confluent's registry. It stores schemas in memory, gives equal ones
the same id, and accepts every new version. It has no login, no TLS and no deletion.
"""

from __future__ import annotations

import json
import socketserver
import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import md5
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import unquote, urlsplit

from kohort.logs import get_logger

logger = get_logger("kohort.testing")

KINDS = ("AVRO", "JSON", "PROTOBUF")
REQUEST_SECONDS = 10.0
"""Longest wait for the request of a client that has connected."""
MAX_BODY = 16 << 20


class RegistryError(Exception):
    """Error response: the HTTP status, and a code of the registry."""

    def __init__(self, status: int, code: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


@dataclass(frozen=True)
class StoredSchema:
    """A schema with its id."""

    schema_id: int
    guid: str
    kind: str
    text: str
    references: str
    """The references as JSON, so that schemas can be compared."""

    def as_json(self) -> dict[str, Any]:
        """Return the fields of a response. Avro is the default kind, as in the registry."""
        found: dict[str, Any] = {"id": self.schema_id, "guid": self.guid, "schema": self.text}
        if self.kind != "AVRO":
            found["schemaType"] = self.kind
        if references := json.loads(self.references):
            found["references"] = references
        return found


class RegistryState:
    """The schemas by id, and the versions of each subject."""

    def __init__(self) -> None:
        self._schemas: list[StoredSchema] = []
        self._subjects: dict[str, list[StoredSchema]] = {}
        self._lock = threading.Lock()

    def respond(self, method: str, path: str, body: Any) -> Any:
        """Return the JSON for a request. Raises RegistryError."""
        parts = [unquote(part) for part in urlsplit(path).path.strip("/").split("/")]
        with self._lock:
            match method, parts:
                case "GET", ["schemas", "types"]:
                    return list(KINDS)
                case "GET", ["schemas", "ids", text]:
                    return self._schema(text).as_json()
                case "GET", ["schemas", "ids", text, "schema"]:
                    return self._schema(text).text
                case "GET", ["schemas", "ids", text, "subjects"]:
                    return list(dict.fromkeys(each["subject"] for each in self._uses(text)))
                case "GET", ["schemas", "ids", text, "versions"]:
                    return self._uses(text)
                case "GET", ["schemas", "guids", text]:
                    return self._schema_by_guid(text).as_json()
                case "GET", ["subjects"]:
                    return sorted(self._subjects)
                case "GET", ["subjects", subject, "versions"]:
                    return list(range(1, len(self._versions(subject)) + 1))
                case "GET", ["subjects", subject, "versions", version]:
                    return self._version(subject, version)
                case "GET", ["subjects", subject, "versions", version, "schema"]:
                    return self._version(subject, version)["schema"]
                case "POST", ["subjects", subject, "versions"]:
                    return self._register(subject, body)
                case "POST", ["subjects", subject]:
                    return self._look_up(subject, body)
                case "GET", ["config", *_]:
                    return {"compatibilityLevel": "NONE"}
                case "GET", ["mode", *_]:
                    return {"mode": "READWRITE"}
        raise RegistryError(404, 404, f"this registry does not serve {method} {path}")

    def _schema(self, text: str) -> StoredSchema:
        number = int(text) if text.isdecimal() else 0
        if not 1 <= number <= len(self._schemas):
            raise RegistryError(404, 40403, f"Schema {text} not found")
        return self._schemas[number - 1]

    def _schema_by_guid(self, guid: str) -> StoredSchema:
        for each in self._schemas:
            if each.guid == guid.lower():
                return each
        raise RegistryError(404, 40403, f"Schema {guid} not found")

    def _uses(self, text: str) -> list[dict[str, Any]]:
        schema = self._schema(text)
        return [
            {"subject": subject, "version": number}
            for subject, versions in self._subjects.items()
            for number, each in enumerate(versions, 1)
            if each is schema
        ]

    def _versions(self, subject: str) -> list[StoredSchema]:
        if subject not in self._subjects:
            raise RegistryError(404, 40401, f"Subject '{subject}' not found.")
        return self._subjects[subject]

    def _version(self, subject: str, text: str) -> dict[str, Any]:
        versions = self._versions(subject)
        number = len(versions) if text in ("latest", "-1") else int(text) if text.isdecimal() else 0
        if not 1 <= number <= len(versions):
            raise RegistryError(404, 40402, f"Version {text} not found.")
        return {"subject": subject, "version": number, **versions[number - 1].as_json()}

    def _register(self, subject: str, body: Any) -> dict[str, Any]:
        given = _given(body)
        for each in json.loads(given[2]):
            self._version(each["subject"], str(each["version"]))
        schema = self._stored(given)
        if schema is None:
            guid = str(
                uuid.UUID(bytes=md5("\0".join(given).encode(), usedforsecurity=False).digest())
            )
            schema = StoredSchema(len(self._schemas) + 1, guid, *given)
            self._schemas.append(schema)
        versions = self._subjects.setdefault(subject, [])
        if schema not in versions:
            versions.append(schema)
        return self._version(subject, str(versions.index(schema) + 1))

    def _look_up(self, subject: str, body: Any) -> dict[str, Any]:
        versions = self._versions(subject)
        schema = self._stored(_given(body))
        if schema is None or schema not in versions:
            raise RegistryError(404, 40403, "Schema not found")
        return self._version(subject, str(versions.index(schema) + 1))

    def _stored(self, given: tuple[str, str, str]) -> StoredSchema | None:
        for each in self._schemas:
            if (each.kind, each.text, each.references) == given:
                return each
        return None


def _given(body: Any) -> tuple[str, str, str]:
    """Return kind, text and references of a request. Raises RegistryError."""
    try:
        kind, text = body.get("schemaType") or "AVRO", body["schema"]
        references = [
            {"name": each["name"], "subject": each["subject"], "version": int(each["version"])}
            for each in body.get("references") or ()
        ]
        if kind not in KINDS or not isinstance(text, str):
            raise ValueError
        if kind != "PROTOBUF":
            json.loads(text)
    except (AttributeError, KeyError, TypeError, ValueError):
        raise RegistryError(422, 42201, "Invalid schema") from None
    return kind, text, json.dumps(references)


class RegistryServer:
    """The registry's HTTP server, in a daemon thread, until :meth:`close`."""

    def __init__(self, host: str, port: int) -> None:
        self._server = _Server((host, port), _Handler)
        self._server.respond = RegistryState().respond
        self._thread = threading.Thread(
            target=self._server.serve_forever,
            kwargs={"poll_interval": 0.05},
            name="kohort-schema-registry",
            daemon=True,
        )
        self._thread.start()

    @property
    def port(self) -> int:
        """The port that the server listens on."""
        port: int = self._server.server_address[1]
        return port

    def close(self) -> None:
        """Stop the server and close its port."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    respond: Callable[[str, str, Any], Any]

    def handle_error(self, request: Any, client_address: Any) -> None:
        logger.debug("a request of %s failed", client_address, exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    server_version = "kohort"
    sys_version = ""
    timeout = REQUEST_SECONDS

    def do_GET(self) -> None:
        self._respond(None)

    def do_POST(self) -> None:
        length = self.headers.get("Content-Length", "0")
        size = min(int(length) if length.isdecimal() else 0, MAX_BODY)
        try:
            body = json.loads(self.rfile.read(size))
        except ValueError:
            body = None
        self._respond(body)

    def _respond(self, body: Any) -> None:
        status, answer = 200, None
        try:
            answer = self.server.respond(self.command, self.path, body)
        except RegistryError as error:
            status, answer = error.status, {"error_code": error.code, "message": str(error)}
        content = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        logger.debug(format, *args)
