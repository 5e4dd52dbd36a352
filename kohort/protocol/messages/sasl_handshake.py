"""SaslHandshake, API key 17: choose a SASL mechanism.

No version is flexible.
"""

from __future__ import annotations

from kohort.protocol._struct import Request, Response, field
from kohort.protocol._types import Int16, String


class SaslHandshakeResponse(Response, api_key=17, versions="0-1"):
    """Response to :class:`SaslHandshakeRequest`."""

    error_code: Int16 = field(default=0)
    mechanisms: list[String] = field(default_factory=list)


class SaslHandshakeRequest(Request[SaslHandshakeResponse], api_key=17, versions="0-1"):
    """Request to choose a SASL mechanism."""

    mechanism: String = field(default="")
