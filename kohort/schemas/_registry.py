"""The client of a schema registry, and its cache.

A schema never changes, so whatever was loaded stays in the cache. An id that the registry does not
have stays unknown for ``UNKNOWN_SECONDS``. So a topic with such records does not load the registry.
"""

from __future__ import annotations

import json
import ssl
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote
from uuid import UUID

import anyio.to_thread

from kohort.schemas._errors import (
    RegistryRefusedError,
    SchemaNotPreparedError,
    UnknownSchemaError,
)
from kohort.schemas._framing import SchemaId
from kohort.schemas._http import Login, RegistryHttp

UNKNOWN_SECONDS = 30.0
MANY_UNKNOWN = 1000
"""Unknown ids in the cache, above which those whose time is over are removed."""
MAX_REFERENCES = 1000
clock = time.monotonic


@dataclass(frozen=True)
class Schema:
    """A schema of the registry with all schemas that it refers to."""

    text: str
    """The definition. For Protobuf it is the file's serialized descriptor in base64."""
    kind: str = "AVRO"
    """``AVRO``, ``JSON`` or ``PROTOBUF``."""
    references: Mapping[str, Schema] = field(default_factory=dict, hash=False)
    """Name -> schema, as far as the definition uses it directly."""


class SchemaRegistry:
    """A client of a schema registry with the REST API of Confluent's.

    ``SchemaRegistry("http://localhost:8081")``. Several addresses are tried one after the other.
    The constructor does no I/O. Threads and event loops may share a registry.

    ``login`` is a pair of user and password, a bearer token, or a function that returns a token. An
    address may also have the user and the password. ``ssl_context`` has the certificates for
    ``https``, by default those of the system. ``headers`` are sent with each request, for example
    ``{"target-sr-cluster": "lsrc-1"}`` for a token of Confluent Cloud. ``timeout_ms`` limits a call
    with all its attempts.
    """

    def __init__(
        self,
        *urls: str,
        login: Login = None,
        ssl_context: ssl.SSLContext | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_ms: int = 10_000,
    ) -> None:
        self._http = RegistryHttp(
            urls,
            login=login,
            ssl_context=ssl_context,
            headers=headers,
            timeout=timeout_ms / 1000,
        )
        self._schemas: dict[SchemaId, Schema] = {}
        self._versions: dict[tuple[str, int], Schema] = {}
        self._unknown: dict[SchemaId, tuple[float, UnknownSchemaError]] = {}
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"<SchemaRegistry {self._http.where}>"

    def schema(self, schema_id: SchemaId) -> Schema:
        """Return a schema that was prepared. It does no I/O.

        Raises SchemaNotPreparedError, or UnknownSchemaError if the registry did not have it.
        """
        found = self._schemas.get(schema_id)
        if found is not None:
            return found
        if error := self._unknown_error(schema_id):
            raise error.with_traceback(None)
        raise SchemaNotPreparedError(
            f"the schema {schema_id} is not loaded. Call prepare([{schema_id!r}]) of the registry "
            "before the record is decoded",
            prepare=lambda: self._prepare_record(schema_id),
        )

    def prepare(self, ids: Iterable[SchemaId]) -> None:
        """Load the schemas of these ids and all that they refer to, as far as not loaded.

        It blocks. Raises UnknownSchemaError after it has loaded all others,
        RegistryUnavailableError and RegistryRefusedError.
        """
        missing = [each for each in dict.fromkeys(ids) if each not in self._schemas]
        if not missing:
            return
        unknown: UnknownSchemaError | None = None
        with self._lock:  # so that threads load a schema once
            for each in missing:
                if each in self._schemas:
                    continue
                error = self._unknown_error(each)
                if error is None:
                    try:
                        self._schemas[each] = self._load(each)
                    except UnknownSchemaError as raised:
                        error = raised
                        self._note_unknown(each, raised)
                unknown = unknown or error
        if unknown is not None:
            raise unknown.with_traceback(None)

    async def prepare_async(self, ids: Iterable[SchemaId]) -> None:
        """Do what :meth:`prepare` does, in a worker thread. It works on asyncio and on trio."""
        missing = [each for each in dict.fromkeys(ids) if each not in self._schemas]
        if missing:
            await anyio.to_thread.run_sync(self.prepare, missing, abandon_on_cancel=True)

    def register(self, subject: str, schema: Schema | str) -> int:
        """Register a schema under a subject, such as ``orders-value``, and return its id.

        Text is Avro. It blocks.
        """
        given = Schema(schema) if isinstance(schema, str) else schema
        if given.references:
            raise ValueError("register() takes no schema with references")
        path = f"/subjects/{quote(subject, safe='')}/versions"
        found = self._http.call(
            path, f"an id for {subject}", {"schema": given.text, "schemaType": given.kind}
        )
        return int(found["id"])

    def _prepare_record(self, schema_id: SchemaId) -> None:
        """Load the schema of a record. An unknown one is an error of the record, not of a poll."""
        try:
            self.prepare([schema_id])
        except UnknownSchemaError:
            pass

    def _note_unknown(self, schema_id: SchemaId, error: UnknownSchemaError) -> None:
        now = clock()
        if len(self._unknown) >= MANY_UNKNOWN:  # bytes without a schema may look like any id
            self._unknown = {key: each for key, each in self._unknown.items() if each[0] > now}
        self._unknown[schema_id] = now + UNKNOWN_SECONDS, error

    def _unknown_error(self, schema_id: SchemaId) -> UnknownSchemaError | None:
        until, error = self._unknown.get(schema_id, (0.0, None))
        if error is not None and clock() >= until:
            self._unknown.pop(schema_id, None)
            return None
        return error

    def _load(self, schema_id: SchemaId) -> Schema:
        kind = "guids" if isinstance(schema_id, UUID) else "ids"
        path, what = f"/schemas/{kind}/{schema_id}", f"the schema {schema_id}"
        found = self._http.call(path, what)
        if isinstance(found, dict) and found.get("schemaType") == "PROTOBUF":
            found = self._http.call(f"{path}?format=serialized", what)
        return self._parsed(found, [])

    def _version(
        self, subject: str, version: int, path: list[tuple[str, int]], *, is_protobuf: bool
    ) -> Schema:
        place = subject, version
        if place in path or len(path) > MAX_REFERENCES:
            raise RegistryRefusedError(
                f"version {version} of the subject {subject} refers to itself. Correct the schema"
            )
        found = self._versions.get(place)
        if found is None:
            form = "&format=serialized" if is_protobuf else ""
            answer = self._http.call(
                f"/subjects/{quote(subject, safe='')}/versions/{version}?deleted=true{form}",
                f"version {version} of the subject {subject}",
            )
            found = self._versions[place] = self._parsed(answer, [*path, place])
        return found

    def _parsed(self, answer: Any, path: list[tuple[str, int]]) -> Schema:
        try:
            kind = answer.get("schemaType") or "AVRO"
            references = {
                str(each["name"]): self._version(
                    str(each["subject"]), int(each["version"]), path, is_protobuf=kind == "PROTOBUF"
                )
                for each in answer.get("references") or ()
            }
            return Schema(str(answer["schema"]), kind, references)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise RegistryRefusedError(
                f"the registry {self._http.where} responded with {json.dumps(answer)[:200]}, which "
                "is no schema. Check its address"
            ) from error
