"""A cluster that runs in the foreground, for a shell."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

from kohort.broker.configs._given_configs import RESERVED, effective_configs
from kohort.broker.security import PLAINTEXT_ONLY, Security
from kohort.config.properties import read_properties
from kohort.errors import InvalidOptionError
from kohort.testing._cluster import Cluster
from kohort.testing._secured_properties import security_of
from kohort.testing.signals import stop_event


def serve(
    *,
    host: str = "127.0.0.1",
    port: int = 9092,
    brokers: int = 1,
    topics: Mapping[str, int | None] | None = None,
    default_partitions: int = 1,
    advertised_host: str | None = None,
    auto_create_topics: bool = True,
    configs: Mapping[str, str] | None = None,
    properties: str | os.PathLike[str] | None = None,
    users: str | os.PathLike[str] | None = None,
    seed: int | None = None,
    schema_registry: bool | int = False,
    print_json: bool = False,
    prepare: Callable[[Cluster], object] = lambda _: None,
) -> int:
    """Run a cluster until Ctrl-C or SIGTERM; return the exit status, 0.

    The first broker listens on ``port``, the others on the next ports; 0 chooses free ports.
    ``prepare`` is called with the cluster before the addresses are printed on standard output. Call
    it in the main thread, because Python runs signal handlers there.

    ``properties`` is a file like Kafka's ``server.properties``; ``configs`` override it.
    InvalidOptionError for an unreadable file and for values that :class:`Cluster` does not accept.
    Settings of the file that a parameter of this function decides, such as ``listeners``, are
    omitted. A line on standard error lists them, and another one the settings without effect.

    If ``listeners`` of the file names a listener with TLS or SASL, all listeners are used with
    their ports and settings. ``users`` is a file of ``name=password`` lines for PLAIN and SCRAM.
    ``authorizer.class.name`` gives the cluster ACLs.

    ``schema_registry`` is True for a schema registry on a free port, or its port.

    With ``print_json`` the addresses are one line of JSON. Its keys are ``bootstrap_servers``,
    ``pid``, ``listeners`` with the addresses by listener, and ``ssl_cafile`` and
    ``schema_registry`` if there are such.
    """
    read = {} if properties is None else read_properties(_text("properties", properties))
    passwords = {} if users is None else _passwords(users)
    with ExitStack() as ending:
        # Keys that are not in PEM files are stored here while the cluster runs.
        folder = ending.enter_context(TemporaryDirectory(prefix="kohort-broker-"))
        secured = security_of(read, passwords, Path(folder))
        security = secured.security or PLAINTEXT_ONLY
        if users is not None and not any(each.uses_sasl for each in security.all_listeners):
            raise InvalidOptionError(
                "users: no listener of the properties uses SASL. Add one, or omit users"
            )
        known = read.keys() - secured.used - secured.ignored
        found = _without_reserved({name: read[name] for name in read if name in known}, properties)
        given = {**found, **(configs or {})}
        _print_note("without effect here", secured.ignored)
        _print_note(
            "shown by DescribeConfigs and without effect here", given.keys() - effective_configs()
        )
        stop = ending.enter_context(stop_event())
        cluster = ending.enter_context(
            Cluster(
                brokers,
                topics,
                host=host,
                ports=port or None,
                default_partitions=default_partitions,
                advertised_host=advertised_host,
                auto_create_topics=auto_create_topics,
                configs=given,
                security=security,
                seed=seed,
                schema_registry=schema_registry,
            )
        )
        prepare(cluster)
        registry = None if schema_registry is False else cluster.schema_registry_url
        if print_json:
            print(json.dumps(_addresses(cluster, security, registry)), flush=True)
        else:
            print(f"listening on {cluster.bootstrap_servers}", flush=True)
            if registry is not None:
                print(f"schema registry: {registry}", flush=True)
            if secured.security is not None:
                _print_addresses(cluster, security)
        stop.wait()
    return 0


def _passwords(path: str | os.PathLike[str]) -> dict[str, str]:
    """Return the users of a file; passwords have no escapes."""
    found = {}
    for number, line in enumerate(_text("users", path).splitlines(), 1):
        name, equals, password = line.strip().partition("=")
        if not name or name.startswith("#"):
            continue
        if not equals or not password:
            raise InvalidOptionError(f"users: line {number} of {path} is not NAME=PASSWORD")
        found[name.strip()] = password.strip()
    return found


def _text(option: str, path: str | os.PathLike[str]) -> str:
    """Return the content of a file. InvalidOptionError if it cannot be read."""
    try:
        return Path(path).read_text()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise InvalidOptionError(f"{option} {path} cannot be read: {reason}") from error


def _without_reserved(
    found: Mapping[str, str], path: str | os.PathLike[str] | None
) -> dict[str, str]:
    """Return the configs of a file without those that the cluster sets."""
    _print_note(
        f"left out of {path}, as the cluster sets them itself", found.keys() & RESERVED.keys()
    )
    return {name: value for name, value in found.items() if name not in RESERVED}


def _addresses(cluster: Cluster, security: Security, registry: str | None) -> dict[str, object]:
    names = [listener.name for listener in security.all_listeners]
    found: dict[str, object] = {
        "bootstrap_servers": cluster.bootstrap_servers,
        "pid": os.getpid(),
        "listeners": {name: cluster.bootstrap_servers_of(name) for name in names},
    }
    if any(listener.uses_tls for listener in security.all_listeners):
        found["ssl_cafile"] = cluster.ssl_cafile
    if registry is not None:
        found["schema_registry"] = registry
    return found


def _print_addresses(cluster: Cluster, security: Security) -> None:
    for listener in security.all_listeners:
        print(f"{listener.name}: {cluster.bootstrap_servers_of(listener.name)}", flush=True)
    if any(listener.uses_tls for listener in security.all_listeners):
        print(f"ssl_cafile: {cluster.ssl_cafile}", flush=True)


def _print_note(what: str, names: Iterable[str]) -> None:
    if listed := ", ".join(sorted(names)):
        print(f"{what}: {listed}", file=sys.stderr, flush=True)
