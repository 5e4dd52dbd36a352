"""Sites of several versions side by side: a folder for each, and the list that the theme reads.

The layout is that of the tool ``mike``: ``<folder>/<version>/``, ``<folder>/versions.json`` and an
``index.html`` that leads to the newest version.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any, Final

SELECTOR: Final[dict[str, Any]] = {"version": {"provider": "mike"}}
"""Setting ``extra`` of a site that shows the selector of versions. It requests the list."""

_VERSION: Final = re.compile(r"dev|\d+(\.\d+)*")
_INDEX: Final = """\
<!DOCTYPE html>
<html lang="en">
<meta charset="utf-8">
<title>kohort</title>
<meta http-equiv="refresh" content="0; url={version}/">
<a href="{version}/">kohort {version}</a>
</html>
"""


def add_version(site: Path, folder: Path, version: str) -> None:
    """Put a built site into the folder of all versions, in place of an older build of it.

    The newest release comes first, and the unreleased version ``dev`` last. Raises ValueError if
    ``version`` is neither ``dev`` nor digits with dots, such as ``0.2``.
    """
    if not _VERSION.fullmatch(version):
        raise ValueError(
            f"version {version!r} is neither 'dev' nor digits with dots. Give one such as 0.2"
        )
    shutil.rmtree(folder / version, ignore_errors=True)
    shutil.copytree(site, folder / version)
    found = [path.name for path in folder.iterdir() if _VERSION.fullmatch(path.name)]
    found.sort(key=_order, reverse=True)
    listed = [{"version": name, "title": name, "aliases": []} for name in found]
    (folder / "versions.json").write_text(json.dumps(listed, indent=2) + "\n", encoding="utf-8")
    (folder / "index.html").write_text(_INDEX.format(version=found[0]), encoding="utf-8")


def _order(version: str) -> list[int]:
    return [] if version == "dev" else [int(part) for part in version.split(".")]
