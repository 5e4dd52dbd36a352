"""Checks of the compiled modules of a wheel: their number, names, and the C library they need."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any, Final

from tools.release.commands import ProgramFailedError

COMPILED: Final = (
    "kohort/records/_capsule_c",
    "kohort/records/_columns_c",
    "kohort/records/_iteration_c",
    "kohort/records/_record_decoder_c",
    "kohort/transport/_poller_c",
)
"""Compiled modules of a wheel for Linux."""


def check_plain(wheel: Path) -> None:
    """Raise ProgramFailedError if a wheel has compiled modules, or a name that says so."""
    if found := _modules(wheel):
        raise ProgramFailedError(f"{wheel.name} has compiled modules: {', '.join(found)}")
    if not wheel.name.endswith("-py3-none-any.whl"):
        raise ProgramFailedError(f"{wheel.name} is not named as a plain wheel")


def check_compiled(wheel: Path, *, musl: bool) -> None:
    """Raise ProgramFailedError unless a wheel has each compiled module, for its C library alone."""
    found = _modules(wheel)
    if absent := sorted(set(COMPILED) - {name.partition(".")[0] for name in found}):
        raise ProgramFailedError(f"{wheel.name} has no compiled module {', '.join(absent)}")
    suffix = "-musl.so" if musl else "-gnu.so"
    for name, content in found.items():
        if not name.endswith(suffix):
            raise ProgramFailedError(f"{wheel.name}: {name} does not end with {suffix}")
        if needs_glibc(content) is musl:
            raise ProgramFailedError(
                f"{wheel.name}: {name} is not for {'musl' if musl else 'glibc'}"
            )


def needed(content: bytes) -> list[str]:
    """Return the names of the libraries that a compiled module needs."""
    from elftools.elf.elffile import ELFFile

    section: Any = ELFFile(io.BytesIO(content)).get_section_by_name(".dynamic")
    return [tag.needed for tag in section.iter_tags("DT_NEEDED")]


def needs_glibc(content: bytes) -> bool:
    """True if a module needs the library of glibc, or a versioned symbol, which musl has not."""
    from elftools.elf.elffile import ELFFile

    versions = ELFFile(io.BytesIO(content)).get_section_by_name(".gnu.version_r")
    return versions is not None or "libc.so.6" in needed(content)


def _modules(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if name.endswith((".so", ".pyd"))]
        return {name: archive.read(name) for name in names}
