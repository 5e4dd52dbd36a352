"""Look at the built site in Chromium: ``python -m browser.site_check``, after ``make docs``.

It opens each page from a local server at two widths, light and dark. It reports messages of the
console, requests to other hosts and pages wider than the window. With ``axe.min.js`` of the npm
package ``axe-core`` it reports serious faults of accessibility. At both widths it also searches for
a name and follows the first result. It needs the extra ``browser`` and the program ``chromium`` or
``chromium-headless-shell``.
"""

from __future__ import annotations

import argparse
import functools
import http.server
import shutil
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright
from playwright.sync_api import Error as PlaywrightError

ROOT: Final = Path(__file__).parents[1]
SITE: Final = ROOT / "build" / "docs" / "site"
PICTURES: Final = ROOT / "build" / "docs" / "pictures"
WIDTHS: Final = (400, 1400)
HEIGHT: Final = 900
SCHEMES: Final = ("light", "dark")
SERIOUS: Final = ("serious", "critical")
AXE_LOOKS: Final = ((400, "light"), (1400, "dark"))
"""Looks in which axe runs. It takes seconds on a page, and these have each width and scheme."""
AXE_RUN: Final = "axe.run({resultTypes: ['violations'], preload: false}).then(r => r.violations)"
OPENS_SEARCH: Final = "[for=__search], .md-search__button"
"""Icon of the search on a narrow window, and its field on a wide one."""
SEARCHED: Final = "max_poll_interval_ms"
"""Words to search for. The page of the first result contains them."""
QUERIES: Final = {
    "kicked out of the group": "troubleshooting/#poll-was-not-called",
    "max_poll_interval_ms": "reference/options/#max_poll_interval_ms",
    "session_timeout_ms": "reference/options/#session_timeout_ms",
    "group_id": "reference/options/#group_id",
    "wrong password": "troubleshooting/#the-login-fails",
    "dead letter": "poison/",
    "dlq": "poison/",
    "keeps leaving the group": "troubleshooting/#poll-was-not-called",
    "kicked out all the time": "troubleshooting/#poll-was-not-called",
    "seek": "reference/api/kohort/#kohort.KafkaConsumer.seek",
}
"""Words of readers, and the start of an address that is among the first results."""
FIRST_RESULTS: Final = 3
ASKS_WORKER: Final = """
async ([script, queries]) => {
  const index = await (await fetch("search.json")).json();
  const worker = new Worker(script);
  const ask = (message) => new Promise((resolve, reject) => {
    worker.onmessage = ({data}) => data.type === 4 ? reject("it failed") : resolve(data.data);
    worker.postMessage(message);
  });
  await ask({type: 0, data: index});
  const found = {};
  for (const input of queries) {
    const {items} = await ask({type: 2, data: {input}});
    found[input] = items.map(({id}) => index.items[id].location);
  }
  return found;
}
"""
"""Script that sends queries to the web worker of the search, as the page of the site does."""
SEARCH_MS: Final = 10_000
"""Time in which a search has to show a result, and the result its page."""
BROWSERS: Final = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")


class _Handler(http.server.SimpleHTTPRequestHandler):
    """Handler that logs nothing."""

    def log_message(self, format: str, *args: Any) -> None:
        """Print no line for a request."""


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve a folder on a loopback port. Yield the address."""
    handler = functools.partial(_Handler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/"
        server.shutdown()


def paths_of(site: Path) -> list[str]:
    """Return the path of each page of a built site."""
    return sorted(
        path.parent.relative_to(site).as_posix().removeprefix(".")
        for path in site.rglob("index.html")
    )


class SiteCheck:
    """Look at pages of a served site. ``faults`` has one line for each thing that is wrong."""

    def __init__(self, browser: Browser, address: str, axe: str, pictures: Path | None) -> None:
        """Take the text of ``axe.min.js``, or "" for no check of accessibility."""
        self.faults: list[str] = []
        self._browser = browser
        self._address = address
        self._axe = axe
        self._pictures = pictures

    def look(self, path: str, width: int, scheme: str) -> None:
        """Open one page and note what is wrong."""
        where = f"/{path} at {width} px, {scheme}"
        context, page = self._open(path, width, scheme, where)
        wide = page.evaluate("document.documentElement.scrollWidth")
        if wide > width:
            self.faults.append(f"{where}: the page is {wide} px wide")
        if self._axe and (width, scheme) in AXE_LOOKS:
            self._accessibility(where, page)
        name = path.strip("/").replace("/", ".") or "start"
        self._picture(page, f"{name}-{width}-{scheme}.png")
        context.close()

    def search(self, width: int) -> None:
        """Search from the start page by the keyboard, and follow the first result."""
        where = f"search at {width} px"
        context, page = self._open("", width, SCHEMES[0], where)
        try:
            page.locator(OPENS_SEARCH).locator("visible=true").first.click(timeout=SEARCH_MS)
            page.keyboard.type(SEARCHED)
            result = page.locator(f"a[href]:has-text('{SEARCHED}')").locator("visible=true").first
            result.wait_for(timeout=SEARCH_MS)
            self._picture(page, f"search-{width}.png")
            result.click()
            page.wait_for_url(lambda url: urlsplit(url).path != "/", timeout=SEARCH_MS)
            if SEARCHED not in page.locator("main").inner_text():
                self.faults.append(f"{where}: {page.url} does not contain {SEARCHED}")
        except PlaywrightError as error:
            self.faults.append(f"{where}: {error.message.partition(chr(10))[0]}")
        context.close()

    def ranks(self, script: str) -> None:
        """Send each query to the worker of the search, and compare its first results."""
        context, page = self._open("", WIDTHS[-1], SCHEMES[0], "search")
        found = page.evaluate(ASKS_WORKER, [script, list(QUERIES)])
        for query, expected in QUERIES.items():
            first = found[query][:FIRST_RESULTS]
            if not any(each.startswith(expected) for each in first):
                self.faults.append(f"search for {query!r}: {first}, without {expected}")
        context.close()

    def _open(self, path: str, width: int, scheme: str, where: str) -> tuple[BrowserContext, Page]:
        context = self._browser.new_context(
            viewport={"width": width, "height": HEIGHT},
            color_scheme="dark" if scheme == "dark" else "light",
        )
        page = context.new_page()
        page.on("console", lambda message: self._console(where, message.type, message.text))
        page.on("pageerror", lambda error: self.faults.append(f"{where}: {error}"))
        page.on("request", lambda request: self._request(where, request.url))
        page.goto(f"{self._address}{path}", wait_until="networkidle")
        return context, page

    def _picture(self, page: Page, name: str) -> None:
        if self._pictures is not None:
            page.screenshot(path=self._pictures / name)

    def _console(self, where: str, kind: str, text: str) -> None:
        if kind in ("error", "warning"):
            self.faults.append(f"{where}: console {kind}: {text}")

    def _request(self, where: str, url: str) -> None:
        if not url.startswith((self._address, "data:", "blob:")):
            self.faults.append(f"{where}: request to {url}")

    def _accessibility(self, where: str, page: Page) -> None:
        page.evaluate(self._axe)
        for found in page.evaluate(AXE_RUN):
            if found["impact"] in SERIOUS:
                nodes = "; ".join(node["html"][:100] for node in found["nodes"][:2])
                count = len(found["nodes"])
                self.faults.append(f"{where}: {found['id']} at {count} places: {nodes}")


class Visit(NamedTuple):
    """The served site, and the browser that opens it."""

    browser: Browser
    address: str
    """Address of the served site, which ends with a slash."""
    axe: str
    """Text of ``axe.min.js``, or "" for no check of accessibility."""
    pictures: Path | None
    """Folder for pictures, which exists."""


def options(prog: str, description: str | None) -> argparse.ArgumentParser:
    """Return a parser with the options that :func:`visit` reads."""
    parser = argparse.ArgumentParser(prog=prog, description=description)
    parser.add_argument("--axe", type=Path, help="path of axe.min.js")
    parser.add_argument("--pictures", action="store_true", help=f"write pictures to {PICTURES}")
    return parser


@contextmanager
def visit(args: argparse.Namespace) -> Iterator[Visit]:
    """Serve the built site and start Chromium. Exit with an error if there is no Chromium."""
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None:
        sys.exit("Chromium is missing; on Debian: apt-get install chromium-headless-shell")
    axe = args.axe.read_text(encoding="utf-8") if args.axe else ""
    pictures = PICTURES if args.pictures else None
    if pictures is not None:
        pictures.mkdir(parents=True, exist_ok=True)
    with served(SITE) as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield Visit(browser, address, axe, pictures)
        browser.close()


def main(arguments: list[str]) -> int:
    """Look at all pages, or at those given. Return 1 if something is wrong."""
    parser = options("python -m browser.site_check", __doc__)
    parser.add_argument("pages", nargs="*", help="paths such as spark/; default: all pages")
    args = parser.parse_args(arguments)
    with visit(args) as site:
        check = SiteCheck(*site)
        pages = args.pages or paths_of(SITE)
        for width in WIDTHS:
            check.search(width)
        [worker] = SITE.glob("assets/javascripts/workers/search.*.js")
        check.ranks(worker.relative_to(SITE).as_posix())
        for path in pages:
            for width in WIDTHS:
                for scheme in SCHEMES:
                    check.look(path, width, scheme)
            print(f"/{path}", flush=True)
    print("\n".join([*check.faults, f"{len(pages)} pages, {len(check.faults)} faults"]))
    return 1 if check.faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
