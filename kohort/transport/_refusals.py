"""Brokers that refuse this client for good: which, and why.

A refusal is an error that the same settings meet again: an unknown CA, a wrong password, the wrong
listener. It is reported once for each cause, however many brokers and connections meet it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable

from kohort.errors import KafkaError, SecurityError

MAX_REFUSALS = 1000
_NUMBERS = re.compile(r"\d+")


def is_refusal(error: BaseException) -> bool:
    """True if the same settings fail again."""
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
        """Called with the error of a new cause, if no bootstrap is under way."""
        self.on_over: Callable[[KafkaError], None] = _ignore
        """Called with an error whose cause is over."""
        self._by_node: dict[int, KafkaError] = {}
        self._causes: dict[int, str] = {}
        self._reported: dict[str, KafkaError] = {}

    def __bool__(self) -> bool:
        return bool(self._by_node)

    def texts(self) -> list[str]:
        """Return what the brokers refuse, one text for each cause."""
        by_cause = {self._causes[node]: error for node, error in self._by_node.items()}
        return [f"{type(error).__name__}: {error}" for error in by_cause.values()]

    def add(self, node: int, peer: str, error: KafkaError) -> bool:
        """Take the refusal of a node. True if its cause is new."""
        text = str(error).replace(peer, "").replace(f"Broker {node} ", "")
        # The seconds that a token has left are no other cause.
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
        """The node accepts this client, or is no more."""
        if self._by_node.pop(node, None) is not None:
            self._end(self._causes.pop(node))

    def keep(self, nodes: Collection[int]) -> None:
        """Forget all nodes but these."""
        for node in [node for node in self._by_node if node not in nodes]:
            self.remove(node)

    def _end(self, cause: str) -> None:
        if cause not in self._causes.values():
            error = self._reported.pop(cause, None)
            if error is not None:
                self.on_over(error)

    def of_all(self, nodes: Iterable[int]) -> KafkaError | None:
        """Return one error if each of the nodes refuses this client; else None.

        It has the class of the refusals if they are alike, and lists all of them.
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
