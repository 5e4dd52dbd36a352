"""Waiting for what Java does: the same with a deadline for machines on which it takes its time."""

from __future__ import annotations

from functools import partial

from tests.interop import waiting

DEADLINE_S = 120

wait_until = partial(waiting.wait_until, deadline_s=DEADLINE_S)
