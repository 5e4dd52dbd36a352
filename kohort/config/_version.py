"""Version of kohort. Importing importlib.metadata takes a tenth of the time of an import."""

from __future__ import annotations

VERSION = "0.2.0"
