"""The cluster of the broker's tests, for the tests of this folder."""

from __future__ import annotations

from tests.broker.conftest import cluster, raw

__all__ = ["cluster", "raw"]
