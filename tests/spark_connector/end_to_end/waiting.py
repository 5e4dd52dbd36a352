"""Waits for Java processes, with a deadline for slow machines."""

from __future__ import annotations

import time
from functools import partial

from tests.interop import waiting

DEADLINE_S = 300
LOOK_AGAIN_LATER_S = 0.25

wait_until = partial(waiting.wait_until, deadline_s=DEADLINE_S)


def look_again_later() -> None:
    """Pause between two checks that take much of the machine."""
    time.sleep(LOOK_AGAIN_LATER_S)
