"""Waits for Java processes, with a deadline for slow machines."""

from __future__ import annotations

from functools import partial

from tests.interop import waiting

DEADLINE_S = 300

wait_until = partial(waiting.wait_until, deadline_s=DEADLINE_S)
