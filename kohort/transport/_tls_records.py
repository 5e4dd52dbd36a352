"""Records of TLS, read in C: as many as are there in one call, without the interpreter's lock.

SSLSocket.read() returns one record of 16 KiB at most. It gives the lock away each time, and a busy
thread of the program keeps it for up to 5 ms. The compiled module calls the functions of the
OpenSSL library that Python's ssl module has loaded, on the same connection. So the SSLSocket stays
in charge of everything but data: handshake, verification, errors and the end.
"""

from __future__ import annotations

import ssl
import struct
import sys
from typing import Any

from kohort.records import compiled_module
from kohort.transport._poller import SOURCES

VERSIONS = range(11, 15)
"""Minor versions of CPython 3 whose SSL objects are known: see _is_known()."""
_READ, _SEND = ssl.SSLSocket.read, ssl.SSLSocket.send


def records_of(sock: ssl.SSLSocket) -> Any:
    """Return the compiled module's ``Records`` of a connected, non-blocking SSLSocket.

    None where the module is not built, or the SSLSocket is not known to the last detail.
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
    """Return the object of Python's that owns OpenSSL's."""
    return sock._sslobj  # type: ignore[attr-defined]


def _is_known(sock: ssl.SSLSocket) -> bool:
    """True if the SSLSocket is Python's own, with an OpenSSL whose functions are known.

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
        # An exception in this function is raised by the SSLSocket's next call alone.
        and getattr(sock.context, "_msg_callback", None) is None
    )
