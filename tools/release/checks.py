"""Checks of the files to upload and of the workflow files, by the tools of others."""

from __future__ import annotations

import email
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

from tools.release.commands import DIST, ROOT, ProgramFailedError, Row, project, run, tool


def check_metadata() -> Iterator[Row]:
    """Run ``twine check`` on what would be uploaded, and compare name, version and links."""
    files = sorted(DIST.iterdir())
    twine = tool("twine")
    if twine is None:
        yield Row("all files", "twine check", None, "twine is not installed")
    else:
        try:
            run([twine, "check", "--strict", *files])
            yield Row("all files", "twine check", True, f"{len(files)} files")
        except ProgramFailedError as error:
            yield Row("all files", "twine check", False, str(error))
    wrong = [problem for path in files for problem in _problems(path)]
    yield Row(
        "all files", "metadata", not wrong, "; ".join(wrong) or "version, links, no stray files"
    )


def _problems(path: Path) -> Iterator[str]:
    if path.suffix == ".whl":
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
            text = archive.read(next(name for name in names if name.endswith("/METADATA"))).decode()
        stray = {name.split("/")[0] for name in names}
        stray -= {"kohort", "pyspark_kohort", "pytest_kohort"}
        stray = {name for name in stray if not name.endswith((".dist-info", ".libs"))}
        if stray:
            yield f"{path.name} contains {', '.join(sorted(stray))}"
    else:
        with tarfile.open(path) as packed:
            [info] = [
                name for name in packed.getnames() if name.count("/") == 1 and "PKG-INFO" in name
            ]
            member = packed.extractfile(info)
            assert member is not None
            text = member.read().decode()
    metadata = email.message_from_string(text)
    if metadata["Version"] != project()["version"]:
        yield f"{path.name} has version {metadata['Version']}"
    if "](docs/" in str(metadata.get_payload()):
        yield f"{path.name} has relative links"


def check_workflows() -> Iterator[Row]:
    """Run actionlint and zizmor on the workflow files, where they are installed."""
    folder = ROOT / ".github"
    workflows = sorted((folder / "workflows").glob("*.yml"))
    commands = {
        "actionlint": ["-no-color", *workflows],
        "zizmor": ["--offline", "--no-progress", "--min-severity=low", folder],
    }
    for name, arguments in commands.items():
        path = tool(name)
        if path is None:
            yield Row(".github", name, None, f"{name} is not installed")
            continue
        try:
            run([path, *arguments])
            yield Row(".github", name, True, f"{len(workflows)} workflows")
        except ProgramFailedError as error:
            yield Row(".github", name, False, str(error))
