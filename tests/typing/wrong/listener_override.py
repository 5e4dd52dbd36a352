"""An overriding method takes the same arguments."""

from __future__ import annotations

from kohort import ConsumerRebalanceListener


class Listener(ConsumerRebalanceListener):
    # expect: mypy override | pyright reportIncompatibleMethodOverride
    def on_partitions_revoked(self) -> None: ...
