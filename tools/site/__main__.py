"""Builder of the documentation site: ``python -m tools.site build`` or ``serve``."""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Final

from browser.bundle import BundleError, write_bundle
from tools.site.llms import write_texts
from tools.site.search import arrange_index
from tools.site.staging import BROWSER, OUTPUT, ROOT, pages_of, read_configuration, stage

RESTAGE_S: Final = 1.0
"""Time between two looks for changed pages while the site is shown."""


def build(output: Path = OUTPUT) -> int:
    """Build the site strictly. Return 1 if the generator reports a fault, which is printed."""
    configuration = stage(output)
    pages = pages_of(read_configuration()["nav"])
    done = _zensical("build", "--strict", "--clean", "--config-file", str(configuration))
    if done.returncode != 0:
        # A Python traceback of the tool follows its own report of the warnings.
        print(done.stdout.partition("Traceback (most recent call last)")[0])
        return 1
    write_texts(pages, output / "pages", output / "site")
    arrange_index(output / "site")
    print(f"{len(pages)} pages: {output / 'site'}")
    return 0


def serve(address: str, output: Path = OUTPUT) -> int:
    """Show the site, and show changed pages as they are saved. Ctrl-C ends it."""
    configuration = stage(output)
    stopped = threading.Event()
    watch = threading.Thread(target=_restage, args=(output, stopped), daemon=True)
    watch.start()
    command = [sys.executable, "-m", "zensical", "serve"]
    try:
        return subprocess.call(
            [*command, "--config-file", str(configuration), "--dev-addr", address], cwd=ROOT
        )
    except KeyboardInterrupt:
        return 0
    finally:
        stopped.set()


def _restage(output: Path, stopped: threading.Event) -> None:
    seen = _newest()
    while not stopped.wait(RESTAGE_S):
        now = _newest()
        if now != seen:
            seen = now
            stage(output)


def _newest() -> float:
    paths = [ROOT / "mkdocs.yml", *(ROOT / "docs").rglob("*"), *(ROOT / "browser").rglob("*")]
    return max(path.stat().st_mtime for path in paths)


def _zensical(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "zensical", *arguments],
        cwd=ROOT,  # tools.site.docstrings is imported from here
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


def _bundle(output: Path, *, is_wanted: bool) -> None:
    """Write the files of the cluster in the browser, or remove them."""
    if is_wanted:
        write_bundle(output / BROWSER)
    else:
        shutil.rmtree(output / BROWSER, ignore_errors=True)


def main(arguments: list[str]) -> int:
    """Run a command and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.site", description=__doc__)
    parser.add_argument("command", choices=["build", "serve"])
    parser.add_argument("--output", type=Path, default=OUTPUT, help="folder that is written")
    parser.add_argument("--address", default="localhost:8000", help="address to show the site at")
    parser.add_argument(
        "--without-browser", action="store_true", help="leave out the cluster in the browser"
    )
    args = parser.parse_args(arguments)
    output = args.output.resolve()
    try:
        _bundle(output, is_wanted=not args.without_browser)
    except BundleError as error:
        print(error)
        return 1
    return build(output) if args.command == "build" else serve(args.address, output)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
