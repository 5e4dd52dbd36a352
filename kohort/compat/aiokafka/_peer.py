"""Access to aiokafka's own modules, which may not be installed."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def peer_name(module: str, name: str) -> Any:
    """Return a name of one of aiokafka's modules, or None if it is not there."""
    try:
        return getattr(import_module(module), name, None)
    except ImportError:
        return None


PEER_CONSUMER: Any = peer_name("aiokafka.consumer.consumer", "AIOKafkaConsumer")
"""aiokafka's own consumer, or None."""
