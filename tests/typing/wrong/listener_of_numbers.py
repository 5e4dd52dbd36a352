"""A listener takes partitions."""

from __future__ import annotations

from kohort import RebalanceListener


class Listener:
    def on_partitions_revoked(self, revoked: list[int]) -> None: ...
    def on_partitions_assigned(self, assigned: list[int]) -> None: ...


# expect: mypy assignment | pyright reportAssignmentType
listener: RebalanceListener = Listener()
