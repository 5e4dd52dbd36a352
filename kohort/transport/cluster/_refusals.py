"""Permanent refusals of this client by brokers.

A refusal is an error that the same settings cause again, such as an unknown CA, a wrong password
or a wrong listener. It is reported once for each cause, for all brokers and connections.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable

from kohort.errors import KafkaError, SecurityError

MAX_REFUSALS = 1000
_NUMBERS = re.compile(r"\d+")


def is_refusal(error: BaseException) -> bool:
    """Return True if the same settings fail again."""
    return isinstance(error, SecurityError) and not error.retriable


def copy_of(error: KafkaError) -> KafkaError:
    """Return a new instance, because raising one adds to its traceback."""
    copied = type(error)(*error.args)
    copied.__cause__ = error.__cause__
    return copied


class BrokerRefusals:
    """The latest refusal of each node."""

    def __init__(self) -> None:
        self.on_new: Callable[[KafkaError], None] = _ignore
        """Callback with the error of a new cause, except before the first contact."""
        self.on_over: Callable[[KafkaError], None] = _ignore
        """Callback with an error whose cause no longer applies."""
        self._by_node: dict[int, KafkaError] = {}
        self._causes: dict[int, str] = {}
        self._reported: dict[str, KafkaError] = {}

    def __bool__(self) -> bool:
        return bool(self._by_node)

    def texts(self) -> list[str]:
        """Return the texts of the refusals, one for each cause."""
        by_cause = {self._causes[node]: error for node, error in self._by_node.items()}
        return [f"{type(error).__name__}: {error}" for error in by_cause.values()]

    def add(self, node: int, peer: str, error: KafkaError) -> bool:
        """Add the refusal of a node. Return True if its cause is new."""
        text = str(error).replace(peer, "").replace(f"Broker {node} ", "")
        # Another number, such as the seconds left of a token, is not another cause.
        cause = f"{type(error).__name__} {_NUMBERS.sub('0', text)}"
        former = self._causes.get(node)
        self._by_node[node], self._causes[node] = error, cause
        if former is not None and former != cause:
            self._end(former)
        if cause in self._reported or len(self._reported) >= MAX_REFUSALS:
            return False
        self._reported[cause] = error
        return True

    def remove(self, node: int) -> None:
        """Remove the refusal of a node that accepts this client or was removed."""
        if self._by_node.pop(node, None) is not None:
            self._end(self._causes.pop(node))

    def keep(self, nodes: Collection[int]) -> None:
        """Remove the refusals of all other nodes."""
        for node in [node for node in self._by_node if node not in nodes]:
            self.remove(node)

    def _end(self, cause: str) -> None:
        if cause not in self._causes.values():
            error = self._reported.pop(cause, None)
            if error is not None:
                self.on_over(error)

    def of_all(self, nodes: Iterable[int]) -> KafkaError | None:
        """Return one error if all of the nodes refuse this client, or None.

        It lists all refusals, and has their class if that is the same.
        """
        wanted = list(nodes)
        errors = [self._by_node[node] for node in wanted if node in self._by_node]
        if not errors or len(errors) < len(wanted):
            return None
        texts = list(dict.fromkeys(map(str, errors)))
        kinds = {type(error) for error in errors}
        if len(texts) == 1:
            return errors[0]
        kind = type(errors[0]) if len(kinds) == 1 else SecurityError
        text = "every bootstrap server refuses this client: " + "; ".join(texts)
        joined = kind(text)
        joined.__cause__ = errors[0]
        return joined


def _ignore(error: KafkaError) -> None:
    pass
