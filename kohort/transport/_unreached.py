"""Error of a client that did not reach the cluster within ``bootstrap_timeout_ms``."""

from __future__ import annotations

import anyio

from kohort.config import ClientConfig
from kohort.errors import CredentialsUnavailableError, KafkaError, NoBrokersAvailable
from kohort.transport._nodes import Nodes
from kohort.transport._printable import reason


def unreached(nodes: Nodes, config: ClientConfig) -> KafkaError:
    """Return NoBrokersAvailable with the failed step of each bootstrap server.

    If all of them wait for credentials, return a CredentialsUnavailableError. Then the brokers are
    up, and the source of the credentials is not.
    """
    missing = nodes.credentials_obstacle(anyio.current_time())
    errors = {node.peer: node.error or missing for node in nodes.bootstrap.values()}
    texts = [
        f"{peer}: no response" if error is None else reason(error) for peer, error in errors.items()
    ]
    time = f" for {config.bootstrap_timeout_ms} ms" if config.bootstrap_timeout_ms else ""
    waits = [each for each in errors.values() if isinstance(each, CredentialsUnavailableError)]
    if waits and len(waits) == len(errors):
        causes = dict.fromkeys(
            _without_peer(peer, text) for peer, text in zip(errors, texts, strict=True)
        )
        found: KafkaError = _kind(waits)(
            f"no login at {', '.join(errors)}{time}: {'; '.join(causes)}"
        )
    else:
        found = NoBrokersAvailable(
            f"no bootstrap server could be reached{time}: {'; '.join(texts)}. "
            "Check bootstrap_servers and that the brokers are up"
        )
    found.__cause__ = waits[0] if waits else None
    return found


def _without_peer(peer: str, text: str) -> str:
    return text.removeprefix(f"{peer}: ")


def _kind(errors: list[CredentialsUnavailableError]) -> type[CredentialsUnavailableError]:
    """Return the class of the errors if all have the same one."""
    kinds = {type(error) for error in errors}
    return kinds.pop() if len(kinds) == 1 else CredentialsUnavailableError
