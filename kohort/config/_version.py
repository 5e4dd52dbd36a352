"""The version, for who must not pay for importlib.metadata: a tenth of the time of an import."""

from __future__ import annotations

VERSION = "0.1.0"
