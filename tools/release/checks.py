"""Checks of the files to upload, of the bill of materials and of the workflow files."""

from __future__ import annotations

import email
import json
import re
import shutil
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from email.message import Message
from functools import partial
from pathlib import Path
from typing import Final

from tools.release.commands import (
    DIST,
    ROOT,
    WORK,
    NotTriedError,
    ProgramFailedError,
    Row,
    attempt,
    project,
    run,
    tool,
)
from tools.release.installs import collect, install, new_environment, newest
from tools.release.pythons import Interpreter

ACTIONLINT: Final = "github.com/rhysd/actionlint/cmd/actionlint@v1.7.12"
_PACKAGES: Final = {"kohort", "pyspark_kohort", "pytest_kohort"}
_RELATIVE: Final = re.compile(
    r"\]\((?!https?:|mailto:|#)[^)]*\)|^\[[^\]]+\]: (?!https?:)\S+"
    r"|(?:src|href)=\"(?!https?:)[^\"]*\"",
    re.MULTILINE,
)


def check_metadata() -> Iterator[Row]:
    """Run ``twine check`` on what would be uploaded, and compare names, version and links."""
    files = sorted(DIST.iterdir())
    yield attempt("all files", "twine check", partial(_twine, files))
    yield attempt("all files", "metadata", partial(_metadata, files))


def check_materials(python: Interpreter) -> Iterator[Row]:
    """Write the bill of materials as the hosted workflow does, and look into it."""
    yield attempt("kohort.cdx.json", "bill of materials", partial(_materials, python))


def check_workflows() -> Iterator[Row]:
    """Run actionlint and zizmor on the workflow files."""
    folder = ROOT / ".github"
    workflows = sorted((folder / "workflows").glob("*.yml"))
    zizmor = ["--offline", "--no-progress", "--min-severity=low", folder]
    yield attempt(".github", "actionlint", partial(_lint, "actionlint", ["-no-color", *workflows]))
    yield attempt(".github", "zizmor", partial(_lint, "zizmor", zizmor))


def problems(path: Path) -> list[str]:
    """Return what is wrong with the metadata or the contents of one file."""
    names, metadata = _contents(path)
    found = []
    if path.suffix == ".whl":
        stray = {name.split("/")[0] for name in names} - _PACKAGES
        stray = {name for name in stray if not name.endswith((".dist-info", ".libs"))}
        if stray:
            found.append(f"{path.name} contains {', '.join(sorted(stray))}")
    if metadata["Version"] != project()["version"]:
        found.append(f"{path.name} has version {metadata['Version']}")
    if links := _RELATIVE.findall(str(metadata.get_payload())):
        found.append(f"{path.name} has relative links: {', '.join(links)}")
    labels = {line.partition(", ")[0] for line in metadata.get_all("Project-URL", [])}
    if labels != set(project()["urls"]):
        found.append(f"{path.name} has the addresses {', '.join(sorted(labels))}")
    if not {"LICENSE", "NOTICE"} <= {name.rpartition("/")[2] for name in names}:
        found.append(f"{path.name} lacks LICENSE or NOTICE")
    return found


def _twine(files: list[Path]) -> str:
    run([sys.executable, "-m", "twine", "check", "--strict", *files])
    return f"{len(files)} files"


def _metadata(files: list[Path]) -> str:
    if wrong := [problem for path in files for problem in problems(path)]:
        raise ProgramFailedError("\n".join(wrong))
    return "version, absolute links, addresses, licenses, no stray files"


def _contents(path: Path) -> tuple[list[str], Message]:
    """Return the names of the files of a distribution, and its metadata."""
    if path.suffix == ".whl":
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
            [info] = [name for name in names if name.endswith(".dist-info/METADATA")]
            return names, email.message_from_bytes(archive.read(info))
    with tarfile.open(path) as packed:
        names = packed.getnames()
        [info] = [name for name in names if name.count("/") == 1 and name.endswith("/PKG-INFO")]
        member = packed.extractfile(info)
        assert member is not None
        return names, email.message_from_bytes(member.read())


def _materials(python: Interpreter) -> str:
    place = new_environment("materials", python)
    install(
        place, "materials", [*DIST.iterdir(), *collect(python, "materials", newest())], newest()
    )
    run([place, "-m", "pip", "uninstall", "--quiet", "--yes", "setuptools", "pip"])
    written = WORK / "kohort.cdx.json"
    command = [sys.executable, "-m", "cyclonedx_py", "environment", "--output-reproducible"]
    options = ["--pyproject", ROOT / "pyproject.toml", "--output-file", written]
    run([*command, *options, place])
    found = json.loads(written.read_text())
    names = {each["name"] for each in found["components"]}
    about = found["metadata"]["component"]
    if (about["name"], about["version"]) != ("kohort", project()["version"]):
        raise ProgramFailedError(f"the bill is one of {about['name']} {about.get('version')}")
    wanted = {re.split(r"[<>=]", each)[0] for each in newest()}
    if not wanted <= names or names & {"pip", "setuptools"}:
        raise ProgramFailedError(f"the bill lists {', '.join(sorted(names))}")
    return f"{found['bomFormat']} {found['specVersion']}: kohort with {', '.join(sorted(names))}"


def _lint(name: str, arguments: list[object]) -> str:
    path = tool(name)
    if path is None and name == "actionlint" and shutil.which("go"):
        run(["go", "install", ACTIONLINT], env={"GOBIN": str(WORK / "tools")})
        path = tool(name)
    if path is None:
        raise NotTriedError(f"{name} is not installed")
    run([path, *arguments])
    return f"nothing found by {name}"
