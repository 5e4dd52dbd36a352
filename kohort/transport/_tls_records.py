"""TLS records read in C, all available ones in one call, without the interpreter's lock.

SSLSocket.read() returns one record of at most 16 KiB. It releases the lock each time, and a busy
thread of the program keeps it for up to 5 ms. The compiled module calls functions of the OpenSSL
library that Python's ssl module has loaded, on the same connection. The SSLSocket remains
responsible for the handshake, verification, errors and the end.
"""

from __future__ import annotations

import ssl
import struct
import sys
from typing import Any

from kohort.records import compiled_module
from kohort.transport._poller import SOURCES

VERSIONS = range(11, 15)
"""Minor versions of CPython 3 with known SSL objects, as in _is_known()."""
_READ, _SEND = ssl.SSLSocket.read, ssl.SSLSocket.send


def records_of(sock: ssl.SSLSocket) -> Any:
    """Return the compiled module's ``Records`` of a connected, non-blocking SSLSocket.

    Return None if the module is not built, or if the layout of the SSLSocket is not known.
    """
    if sys.platform != "linux" or not _is_known(sock):
        return None
    compiled = compiled_module("_poller_c", "kohort.transport", SOURCES)
    try:
        if compiled is None or not compiled.load_openssl(sys.modules["_ssl"].__file__):
            return None
        return compiled.Records(sock, _owner(sock), object.__basicsize__)
    except (AttributeError, ValueError):  # a Python with _ssl built in, or with other objects
        return None


def _owner(sock: ssl.SSLSocket) -> Any:
    """Return Python's object that owns OpenSSL's object."""
    return sock._sslobj  # type: ignore[attr-defined]


def _is_known(sock: ssl.SSLSocket) -> bool:
    """Return True for Python's SSLSocket with an OpenSSL whose functions are known.

    Its ``_sslobj`` begins with a weak reference to the SSLSocket, OpenSSL's object, and the
    context, in CPython 3.11 to 3.14. ``Records`` compares the first and the third of them.
    """
    kind, owner = type(sock), _owner(sock)
    return (
        sys.implementation.name == "cpython"
        and sys.version_info[0] == 3
        and sys.version_info[1] in VERSIONS
        and ssl.OPENSSL_VERSION.startswith("OpenSSL ")
        and ssl.OPENSSL_VERSION_INFO[0] >= 3
        and kind.read is _READ
        and kind.send is _SEND
        and type(owner).__module__ == "_ssl"
        and type(owner).__name__ == "_SSLSocket"
        and type(owner).__basicsize__ >= object.__basicsize__ + 3 * struct.calcsize("P")
        and sock.gettimeout() == 0
        # Only the SSLSocket's next call raises an exception of this function.
        and getattr(sock.context, "_msg_callback", None) is None
    )
