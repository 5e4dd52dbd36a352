"""Health of a consumer for the probes of a platform, by HTTP or as an ASGI app."""

from __future__ import annotations

from kohort.health._app import app
from kohort.health._server import HealthServer, serve

__all__ = ["HealthServer", "app", "serve"]
