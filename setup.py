"""The optional extension, README.md with absolute links, and a reproducible source distribution.

The extension is modules of ``records`` compiled again, and the selector of ``transport``. The
module ``_record_decoder`` is compiled as ``_record_decoder_c``.

All else is in pyproject.toml. Their types are in ``_record_decoder_c.pxd``, ``_columns_c.pxd``,
``_iteration_c.pxd`` and ``_message_c.pxd``; ``_capsule_c``, ``_record_type_c``, ``_poller_c`` and
``_lz4_c`` are C alone. The last one includes LZ4's own source.
``KOHORT_PURE=1`` skips the build; ``KOHORT_REQUIRE_EXTENSIONS=1`` makes a failed build an error;
``KOHORT_LINES=1`` lets debuggers and profilers see the lines of the source.
"""

from __future__ import annotations

import gzip
import io
import os
import re
import sys
import tarfile
import tomllib
import warnings
import zlib
from pathlib import Path
from typing import Any

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.sdist import sdist

RECORDS = Path("kohort", "records")
MODULES = {
    "_record_decoder_c": "_record_decoder.py",
    "_columns_c": "_columns.py",
    "_capsule_c": "_capsule_c.pyx",
    "_record_type_c": "_record_type_c.pyx",
    "_iteration_c": "_iteration.py",
    "_message_c": "_message.py",
}
SOURCES = (
    "_record.py",
    "_record_decoder.py",
    "_record_decoder_c.pxd",
    "_columns.py",
    "_columns_c.pxd",
    "_capsule_c.pyx",
    "_capsule.h",
    "_iteration.py",
    "_iteration_c.pxd",
    "_message.py",
    "_message_c.pxd",
    "_step.h",
    "_record.h",
    "_record_type.h",
    "_record_type_c.pxd",
    "_record_type_c.pyx",
    "_native.h",
    "_native.pxd",
    "_unpack.h",
)
NETWORK = Path("kohort", "transport", "network")
POLLER = ("_poller_c.pyx",)
CODECS = RECORDS / "codecs"
LZ4 = ("_lz4_c.pyx", "lz4.c", "lz4.h")
TRANSLATED = Path("build", "cython")
PURE = os.environ.get("KOHORT_PURE") == "1"
REQUIRED = os.environ.get("KOHORT_REQUIRE_EXTENSIONS") == "1"
LINES = os.environ.get("KOHORT_LINES") == "1"
# Debugging information has the path of the folder of the build, so that no two builds are the same.
COMPILE_ARGS = [] if LINES or sys.platform == "win32" else ["-g0"]


RELATIVE_LINK = re.compile(r"(!?\[[^\]]*\])\((?!https?:|mailto:|#)([^)\s]+)\)")


def absolute_links(text: str, repository: str, version: str) -> str:
    """Return the text with addresses in the repository instead of relative links."""

    def absolute(link: re.Match[str]) -> str:
        kind = "raw" if link[1].startswith("!") else "blob"
        return f"{link[1]}({repository}/{kind}/v{version}/{link[2]})"

    return RELATIVE_LINK.sub(absolute, text)


def readme() -> str:
    """Return README.md for the metadata, which package indexes show."""
    project = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["project"]
    text = Path("README.md").read_text(encoding="utf-8")
    return absolute_links(text, project["urls"]["Repository"], project["version"])


def source_state(folder: Path, sources: tuple[str, ...]) -> int:
    """Return the state of the source, as ``kohort/records/_compiled.py`` computes it."""
    state = 0
    for name in sources:
        state = zlib.crc32((folder / name).read_bytes(), state)
    return state


def extension(folder: Path, name: str, source: str, sources: tuple[str, ...]) -> Extension:
    """One compiled module of the package in ``folder``."""
    return Extension(
        ".".join([*folder.parts, name]),
        [str(folder / source)],
        include_dirs=[str(folder)],
        define_macros=[("KOHORT_SOURCE_STATE", f"{source_state(folder, sources)}u")],
        depends=[str(folder / each) for each in sources],
        extra_compile_args=COMPILE_ARGS,
    )


def is_stale(folder: Path, sources: tuple[str, ...]) -> bool:
    """Return True if Cython translated a module before the latest change of a source.

    Cython itself does not look at the ``_c.pxd`` of a Python module.
    """
    changed = max((folder / name).stat().st_mtime for name in sources)
    return any(each.stat().st_mtime < changed for each in TRANSLATED.joinpath(folder).glob("*.c"))


def extensions() -> list[Extension]:
    """The extension, if it is wanted and can be translated here."""
    if PURE:
        return []
    try:
        from Cython.Build import cythonize

        modules: list[Extension] = cythonize(
            [
                *(extension(RECORDS, name, source, SOURCES) for name, source in MODULES.items()),
                extension(CODECS, "_lz4_c", LZ4[0], LZ4),
                # epoll is Linux's.
                *(
                    [extension(NETWORK, "_poller_c", POLLER[0], POLLER)]
                    if sys.platform == "linux"
                    else []
                ),
            ],
            build_dir=str(TRANSLATED),
            force=is_stale(RECORDS, SOURCES),
            emit_linenums=LINES,
            compiler_directives={
                "language_level": 3,
                "annotation_typing": False,
                "boundscheck": True,  # what turns reading past the end into IndexError
                "wraparound": False,
                "initializedcheck": False,
                "freethreading_compatible": True,
            },
        )
    except Exception as error:
        if REQUIRED:
            raise
        warnings.warn(f"kohort is installed without its compiled module: {error}", stacklevel=1)
        return []
    for module in modules:
        module.optional = not REQUIRED  # cythonize() drops the flag it was given
    return modules


class ParallelBuild(build_ext):
    """Compiles one module on each CPU."""

    def finalize_options(self) -> None:
        """Set what no option has set."""
        super().finalize_options()
        self.parallel = self.parallel or os.cpu_count()


class StableSdist(sdist):
    """Builds the source distribution with the times that SOURCE_DATE_EPOCH names, and no owners.

    Two builds of one commit are then the same to the byte, as wheels already are.
    """

    def make_archive(self, *arguments: Any, **options: Any) -> str:
        """Return the path of the archive."""
        path = super().make_archive(*arguments, **options)
        epoch = os.environ.get("SOURCE_DATE_EPOCH")
        if epoch is not None and path.endswith(".tar.gz"):
            stabilize(Path(path), int(epoch))
        return path


def stabilize(path: Path, epoch: int) -> None:
    """Write an archive again, with one time for all of its files, in seconds since 1970."""
    content = io.BytesIO()
    with (
        tarfile.open(path) as old,
        gzip.GzipFile("", "wb", fileobj=content, mtime=epoch) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as new,
    ):
        for member in sorted(old.getmembers(), key=lambda each: each.name):
            stable = tarfile.TarInfo(member.name)
            stable.type, stable.size, stable.mtime = member.type, member.size, epoch
            stable.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            new.addfile(stable, old.extractfile(member) if member.isfile() else None)
    path.write_bytes(content.getvalue())


setup(
    cmdclass={"build_ext": ParallelBuild, "sdist": StableSdist},
    ext_modules=extensions(),
    long_description=readme(),
    long_description_content_type="text/markdown",
)
