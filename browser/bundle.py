"""Files that a page needs to run Python: Pyodide, wheels and the programs of ``live``.

``make docs`` puts them into the site, which then needs no other host. Pyodide comes from its npm
package, whose version is in package.json. The wheels have the versions of constraints/pins.txt.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
CACHE: Final = ROOT / ".cache" / "browser"
PYODIDE: Final = CACHE / "node_modules" / "pyodide"
PINS: Final = ROOT / "constraints" / "pins.txt"
PLACE: Final = "assets/browser/files"
"""Folder of the files on the site."""
IMPORTED: Final = ("pyodide.mjs", "pyodide.asm.mjs")
FETCHED: Final = ("pyodide.asm.wasm", "pyodide-lock.json", "python_stdlib.zip")
PACKAGES: Final = "packages.zip"
"""Archive of all Python packages. It has compiled modules, and few sources."""
PLACE_OF_PACKAGES: Final = "/lib/packages.zip"
"""Path of the archive in the file system of Pyodide."""
COMPILE: Final = Path(__file__).with_name("compile.mjs")
NEEDED: Final = ("anyio", "typing_extensions")
"""Packages that kohort's plain modules and the cluster import. All have plain wheels."""
LEFT_OUT: Final = (
    "anyio._backends._trio",
    "anyio.pytest_plugin",
    "kohort.__main__",
    "kohort.cli",
    "kohort.compat",
    "kohort.spark_connector",
    "pyspark_kohort",
    "pytest_kohort",
)
"""Modules and packages of the wheels that a page has no use for."""


class BundleError(Exception):
    """A file of the bundle cannot be had. The message says what to do."""


def write_bundle(target: Path) -> None:
    """Write all files and their list, ``bundle.json``. Raises BundleError."""
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    if not PYODIDE.is_dir():
        raise BundleError(
            f"Pyodide is missing in {PYODIDE.parent.parent.relative_to(ROOT)}. Build the site with "
            "'make docs', which needs npm, or without the cluster in the browser: "
            "make docs ARGS=--without-browser"
        )
    for name in (*IMPORTED, *FETCHED):
        shutil.copyfile(PYODIDE / name, target / name)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        archive = folder / "merged.zip"
        _merge(archive, [_kohort(folder), *(_wheel(each) for each in NEEDED)])
        _run(["node", str(COMPILE), str(PYODIDE), str(archive), str(target / PACKAGES)])
    # The page shows the progress by these sizes. The browser imports the other files.
    size = sum((target / name).stat().st_size for name in (*FETCHED, PACKAGES))
    listed = {"bytes": size, "packages": PACKAGES, "place": PLACE_OF_PACKAGES}
    (target / "bundle.json").write_text(json.dumps(listed) + "\n", encoding="utf-8")


def is_left_out(path: str) -> bool:
    """Return True if the page does not get this file of a wheel."""
    module = path.removesuffix(".py").replace("/", ".")
    if any(module == name or module.startswith(f"{name}.") for name in LEFT_OUT):
        return True
    # Licenses stay. The list of the files of a wheel would be wrong.
    return not path.endswith(".py") and (".dist-info/" not in path or path.endswith("/RECORD"))


def _kohort(folder: Path) -> Path:
    """Build the wheel of the plain modules. Nothing is written into the source."""
    command = [sys.executable, "setup.py", "--quiet", "egg_info", "--egg-base", str(folder)]
    command += ["build", "--build-base", f"{folder}/build", "bdist_wheel"]
    command += ["--dist-dir", f"{folder}/dist", "--bdist-dir", f"{folder}/wheel"]
    _run(command, KOHORT_PURE="1")
    [wheel] = folder.glob("dist/*-none-any.whl")
    return wheel


def _wheel(name: str) -> Path:
    """Return the pinned wheel of a package, which is downloaded once."""
    pinned = re.search(rf"^{name}==(\S+)$", PINS.read_text(encoding="utf-8"), re.MULTILINE)
    if pinned is None:
        raise BundleError(f"{name} is not in {PINS.relative_to(ROOT)}. Add it with its version")
    wheels = CACHE / "wheels"
    wheel = wheels / f"{name}-{pinned[1]}-py3-none-any.whl"
    if not wheel.exists():
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        command += ["--disable-pip-version-check", "--only-binary", ":all:", "--dest", str(wheels)]
        _run([*command, f"{name}=={pinned[1]}"])
    return wheel


def _merge(path: Path, wheels: list[Path]) -> None:
    """Write one archive of the wheels and of the programs of the worker."""
    here = Path(__file__).parent
    sources = [here / "__init__.py", *here.glob("live/*.py")]
    with zipfile.ZipFile(path, "w") as merged:
        for wheel in wheels:
            with zipfile.ZipFile(wheel) as archive:
                for name in archive.namelist():
                    if not is_left_out(name):
                        merged.writestr(name, archive.read(name))
        for source in sorted(sources):
            merged.write(source, source.relative_to(ROOT).as_posix())


def _run(command: list[str], **environment: str) -> None:
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise BundleError(f"{' '.join(command[1:4])} failed:\n{done.stdout}")
