"""Search for a planted secret in texts, in clear and in the forms in which it may be copied."""

from __future__ import annotations

import base64
import traceback
from urllib.parse import quote, quote_plus

KOHORT = "/kohort/"


def forms(secret: str | bytes) -> set[str]:
    """Return the secret in clear, in hexadecimal digits, in base64 and URL-encoded.

    Base64 depends on the bytes before, so the list has the three parts that do not.
    """
    data = secret if isinstance(secret, bytes) else secret.encode()
    if isinstance(secret, bytes):
        secret = secret.decode("latin-1")
    found = {repr(data)[2:-1], secret, data.hex(), data.hex().upper(), quote(secret, safe="")}
    found |= {quote(secret), quote_plus(secret), repr(secret)[1:-1]}
    for shift in range(3):
        text = base64.b64encode(b"\0" * shift + data).decode()
        inner = text[-(-shift * 8 // 6) : (shift + len(data)) * 8 // 6]
        found |= {inner, inner.translate(str.maketrans("+/", "-_"))}
    return {each for each in found if len(each) >= 6}


def leaked(secret: str | bytes, *texts: str) -> list[str]:
    """Return an excerpt of each text that shows the secret."""
    shown = []
    for text in texts:
        for form in forms(secret):
            at = text.find(form)
            if at >= 0:
                shown.append(text[max(0, at - 80) : at + len(form) + 20])
    return shown


def error_text(error: BaseException, *, inside: str = KOHORT) -> str:
    """Return all text of an error: message, arguments, causes and contexts, with locals.

    Frames of tests have the planted secret in their locals, so only files below ``inside`` count.
    """
    parts: list[str] = []
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        each = waiting.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        waiting += [each.__cause__, each.__context__]
        if isinstance(each, BaseExceptionGroup):
            waiting += each.exceptions
        parts += [repr(each), str(each), repr(each.args), repr(vars(each))]
        # A decoding error keeps the whole text.
        parts += [repr(getattr(each, name, "")) for name in ("object", "doc", "filename")]
        summary = traceback.TracebackException.from_exception(each, capture_locals=True)
        for frame in summary.stack:
            if inside in frame.filename and "/tests/" not in frame.filename:
                parts.append(f"{frame.filename}:{frame.lineno} {frame.locals!r}")
    return "\n".join(parts)
