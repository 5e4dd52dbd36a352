"""Default timeout of close(), which is an argument and not an option."""

from __future__ import annotations

from typing import Final

CLOSE_TIMEOUT: Final = 5.0
"""Most seconds that closing takes, with leaving the group, unless the caller gives a timeout."""
