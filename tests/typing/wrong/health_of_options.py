"""The server of the probes gets a dictionary in place of a consumer."""

from __future__ import annotations

from kohort.health import serve

# expect: mypy arg-type | pyright reportArgumentType
serve({"group_id": "billing"})
