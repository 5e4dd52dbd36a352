"""``kohort spark-compile``: compiled modules for the archive of PySpark, ``pyspark.zip``."""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import os
import shutil
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator
from importlib._bootstrap_external import _code_to_hash_pyc  # type: ignore[attr-defined]
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]

ARCHIVE = Path("python", "lib", "pyspark.zip")
LEFT_OUT = "/tests/"
DESCRIPTION = """\
Add compiled modules to pyspark.zip. Spark puts this archive first on the path of its Python
processes. It contains source code only, so each new process compiles the PySpark modules that it
imports. With compiled modules a streaming query starts about a second earlier.

The archive keeps its source files. Another version of Python ignores the compiled modules, and so
does Python if the source file beside one has changed. An update of PySpark replaces the archive:
run the command again.
"""


class ArchiveError(Exception):
    """A reason why the archive cannot be changed."""


def add_to(commands: Commands) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "spark-compile",
        help="add compiled modules to pyspark.zip, so that streaming queries start earlier",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--archive",
        type=Path,
        metavar="FILE",
        help="the archive (SPARK_HOME/python/lib/pyspark.zip, or that of the installed PySpark)",
    )
    parser.add_argument(
        "--output", type=Path, metavar="FILE", help="write a new archive and leave the old one"
    )
    parser.add_argument("--undo", action="store_true", help="remove the compiled modules again")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Compile the archive, or undo it. Return the exit status."""
    try:
        archive = options.archive or find_archive()
        output = options.output or archive
        began = time.monotonic()
        if options.undo:
            count = remove_compiled(archive, output)
            print(f"{output}: {count} compiled modules removed")
        else:
            count = add_compiled(archive, output)
            seconds = time.monotonic() - began
            version = "{}.{}".format(*sys.version_info)
            print(f"{output}: {count} modules compiled for Python {version} in {seconds:.0f} s")
    except (ArchiveError, OSError, zipfile.BadZipFile) as error:
        print(f"kohort spark-compile: {error}", file=sys.stderr)
        return 1
    return 0


def find_archive() -> Path:
    """Return the archive in SPARK_HOME. If it is not set, return that of the installed PySpark."""
    if home := os.environ.get("SPARK_HOME"):
        archive = Path(home) / ARCHIVE
    else:
        found = importlib.util.find_spec("pyspark")
        if found is None or found.origin is None:
            raise ArchiveError("PySpark is not installed. Install it, set SPARK_HOME or --archive")
        archive = Path(found.origin).parent / ARCHIVE
    if not archive.is_file():
        raise ArchiveError(f"{archive} does not exist. Name the archive by --archive")
    return archive


def add_compiled(archive: Path, output: Path) -> int:
    """Write ``output``: the archive and a compiled module for each source file.

    Compiled modules of an earlier call are replaced. Return the number of modules.
    """
    with _replacing(output) as copy:
        _copy_sources(archive, copy)
        with zipfile.ZipFile(copy, "a", zipfile.ZIP_DEFLATED) as target:
            sources = [each for each in target.infolist() if _is_compiled(each.filename)]
            for source in sources:
                data = target.read(source)
                target.writestr(_entry(source), _compiled(data, output / source.filename))
    return len(sources)


def remove_compiled(archive: Path, output: Path) -> int:
    """Write ``output``: the archive without compiled modules. Return their number."""
    with _replacing(output) as copy:
        return _copy_sources(archive, copy)


def _is_compiled(name: str) -> bool:
    return name.endswith(".py") and LEFT_OUT not in name


def _entry(source: zipfile.ZipInfo) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(source.filename + "c", source.date_time)
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.external_attr = source.external_attr
    return entry


def _compiled(source: bytes, path: Path) -> bytes:
    """Return the content of a .pyc file that Python checks by the hash of the source (PEP 552).

    A time stamp would depend on the time zone: archives store local time.
    """
    code = compile(source, str(path), "exec", dont_inherit=True, optimize=0)
    return bytes(_code_to_hash_pyc(code, importlib.util.source_hash(source), True))


@contextlib.contextmanager
def _replacing(path: Path) -> Iterator[Path]:
    """Yield a new file beside ``path``, and replace ``path`` by it when the block succeeds.

    Source files keep their place in the archive, so processes that have the old one open go on.
    """
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=".pyspark-")
    except OSError as error:
        raise ArchiveError(
            f"{path.parent} cannot be written: {error.strerror}. Run the command as the owner of "
            f"the folder, or write another archive by --output"
        ) from error
    os.close(handle)
    copy = Path(name)
    try:
        yield copy
        copy.chmod(path.stat().st_mode if path.exists() else 0o644)
        copy.replace(path)
    finally:
        copy.unlink(missing_ok=True)


def _copy_sources(archive: Path, copy: Path) -> int:
    """Copy the archive without compiled modules. Return their number."""
    with zipfile.ZipFile(archive) as old:
        names = {each.filename for each in old.infolist()}
        compiled = {name for name in names if name.endswith(".pyc") and name[:-1] in names}
        if not compiled:
            shutil.copyfile(archive, copy)
            return 0
        with zipfile.ZipFile(copy, "w", zipfile.ZIP_DEFLATED) as new:
            for each in old.infolist():
                if each.filename not in compiled:
                    new.writestr(each, old.read(each))
    return len(compiled)
