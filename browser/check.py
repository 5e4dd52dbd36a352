"""Use the cluster in the browser, in Chromium: ``python -m browser.check``.

It needs a site by ``make docs``. It starts the cluster from a local server, adds two members, kills
one and closes another. Then it runs each example with "Run". A request to another host, a message
of the console and a serious fault of accessibility are faults. It prints the time to the first
record.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any, Final

from playwright.sync_api import Browser, Page
from playwright.sync_api import Error as BrowserError

from browser.site_check import AXE_RUN, HEIGHT, SERIOUS, SITE, options, visit

PAGE: Final = "browser/"
SYNC_PAGE: Final = "install/"
"""Page with one example, which uses the sync API."""
FIRST_RECORD_MS: Final = 30_000
"""Most time from the click on Start to the first record. A machine without other work needs 5 s."""
TIMEOUT_MS: Final = 60_000
OWNERS: Final = "[...document.querySelectorAll('tr[data-owner]')].map(row => row.dataset.owner)"
SHARED: Final = f"{OWNERS}.filter(owner => owner === name).length"
LOOKS: Final = ((1400, "light"), (400, "dark"))


class BrowserCheck:
    """A reader of one page. ``faults`` has one line for each thing that is wrong."""

    def __init__(self, browser: Browser, address: str, axe: str, width: int, scheme: str) -> None:
        """Open a window. ``axe`` is the text of ``axe.min.js``, or "" for no such check."""
        self.faults: list[str] = []
        self._where = f"at {width} px, {scheme}"
        self._address = address
        self._axe = axe
        self._expected = ""
        self._context = browser.new_context(
            viewport={"width": width, "height": HEIGHT},
            color_scheme="dark" if scheme == "dark" else "light",
        )
        self._context.route(
            re.compile(rf"^(?!{re.escape(address)}|data:|blob:)"), lambda route: self._refuse(route)
        )
        self.page: Page = self._context.new_page()
        self.page.set_default_timeout(TIMEOUT_MS)
        self.page.on("console", lambda message: self._console(message.type, message.text))
        self.page.on("pageerror", lambda error: self.fault(str(error)))

    def fault(self, text: str) -> None:
        """Note what is wrong."""
        self.faults.append(f"{self._where}: {text}")

    def open(self, path: str) -> None:
        """Open a page of the site."""
        self.page.goto(f"{self._address}{path}", wait_until="networkidle")

    def close(self) -> None:
        """Close the window."""
        self._context.close()

    def start(self) -> int:
        """Start the cluster. Return the milliseconds until the first record."""
        self._press("Start the cluster")
        place = self.page.locator(".live-cluster[data-first-record-ms]")
        place.wait_for()
        return int(place.get_attribute("data-first-record-ms") or 0)

    def change_members(self) -> None:
        """Add two members, kill one and close another. Wait for the owners after each."""
        self._press("Add a member")
        self._press("Add a member")
        self._owners({"A": 2, "B": 2, "C": 2})
        self._press("Kill member B")
        self._press("Produce 60 records")
        self._owners({"A": 3, "B": 0, "C": 3})
        self._press("Close member C")
        self._owners({"A": 6, "B": 0, "C": 0})
        self.page.wait_for_function(
            "[...document.querySelectorAll('tr[data-owner]')].every("
            "row => row.children[2].textContent === row.children[3].textContent)"
        )
        bars = self.page.locator(".live-timeline rect[class^=live-owner]").count()
        if bars < 10:
            self.fault(f"the timeline has {bars} bars of owners, expected at least 10")

    def run_examples(self) -> int:
        """Run each example and compare its output with the shown one. Return their number."""
        places = self.page.locator(".live-run")
        count: int = places.count()
        for number in range(count):
            places.nth(number).get_by_role("button", name="Run", exact=True).click()
            status = self.page.locator(".live-run ~ div .live-status").nth(number)
            status.filter(has_text="Ended").wait_for()
            if "error" in status.inner_text():
                output = self.page.locator(".live-output").nth(number).inner_text()
                self.fault(f"example {number + 1} of {self.page.url} failed: {output}")
        return count

    def run_edited(self) -> None:
        """Run edited text, text that raises, and text that does not end."""
        place = self.page.locator(".live-run").first
        place.get_by_role("button", name="Edit").click()
        editor = self.page.locator(".live-editor").first
        for code, expected in (
            ("print(6 * 7)", "42"),
            ("1 / 0", "ZeroDivisionError: division by zero"),
        ):
            editor.fill(code)
            place.get_by_role("button", name="Run", exact=True).click()
            self.page.locator(".live-output", has_text=expected).first.wait_for()
        editor.fill("import asyncio\nprint('begins')\nawait asyncio.sleep(3600)")
        place.get_by_role("button", name="Run", exact=True).click()
        self.page.locator(".live-output", has_text="begins").first.wait_for()
        place.get_by_role("button", name="Stop").click()
        place.get_by_role("button", name="Run", exact=True).wait_for()

    def run_without_blocking(self) -> None:
        """Run examples in a browser that cannot block: an async one, then one that says so."""

        def without(route: Any) -> None:
            text = route.fetch().text()
            taken = "delete WebAssembly.Suspending; delete WebAssembly.promising;"
            route.fulfill(body=f"{taken}\n{text}", content_type="text/javascript")

        self.page.route("**/worker.js", without)
        self.open(PAGE)
        self.page.get_by_role("button", name="Run", exact=True).click()
        self.page.locator(".live-output", has_text="b'bread'").wait_for()
        self.open(SYNC_PAGE)
        self.page.get_by_role("button", name="Run", exact=True).click()
        self.page.locator(".live-output", has_text="Use Chrome or Edge 137").wait_for()

    def start_without_files(self) -> None:
        """Start a cluster where the files of Python are missing. The page says so."""
        self._expected = "404"
        self.page.route("**/bundle.json", lambda route: route.fulfill(status=404))
        self.open(PAGE)
        self._press("Start the cluster")
        self.page.locator(".live-failed", has_text="Python cannot be loaded").wait_for()

    def look(self, picture: Path | None) -> None:
        """Check the width of the page and its accessibility, and take a picture."""
        wide = self.page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
        if wide > 0:
            self.fault(f"the page is {wide} px wider than the window")
        if self._axe:
            self.page.evaluate(self._axe)
            for found in self.page.evaluate(AXE_RUN):
                if found["impact"] in SERIOUS:
                    nodes = "; ".join(node["html"][:120] for node in found["nodes"][:3])
                    self.fault(f"{found['id']} at {len(found['nodes'])} places: {nodes}")
        if picture is not None:
            self.page.screenshot(path=picture, full_page=True)

    def _press(self, name: str) -> None:
        self.page.get_by_role("button", name=name).click()

    def _owners(self, expected: dict[str, int]) -> None:
        """Wait until each member owns a number of partitions."""
        self.page.wait_for_function(
            f"expected => Object.entries(expected).every(([name, count]) => {SHARED} === count)",
            arg=expected,
        )

    def _console(self, kind: str, text: str) -> None:
        # ``_expected`` is a part of the one message that the present step causes.
        if kind in ("error", "warning") and not (self._expected and self._expected in text):
            self.fault(f"console {kind}: {text}")

    def _refuse(self, route: Any) -> None:
        self.fault(f"request to {route.request.url}")
        route.abort()


def check(browser: Browser, address: str, axe: str, pictures: Path | None) -> list[str]:
    """Use the page in each look, and the examples of all pages. Return the faults."""
    faults = []
    for width, scheme in LOOKS:
        reader = BrowserCheck(browser, address, axe, width, scheme)
        try:
            reader.open(PAGE)
            ms = reader.start()
            print(f"first record {ms} ms after Start, at {width} px, {scheme}", flush=True)
            if ms > FIRST_RECORD_MS:
                reader.fault(f"the first record took {ms} ms, more than {FIRST_RECORD_MS}")
            reader.change_members()
            reader.look(pictures and pictures / f"cluster-{width}-{scheme}.png")
        except BrowserError as error:
            reader.fault(str(error))
        faults += reader.faults
        reader.close()
    reader = BrowserCheck(browser, address, "", *LOOKS[0])
    try:
        for path in pages_with_examples(SITE):
            reader.open(path)
            print(f"/{path}: {reader.run_examples()} examples run", flush=True)
        reader.run_edited()
        reader.run_without_blocking()
        reader.start_without_files()
    except BrowserError as error:
        reader.fault(str(error))
    reader.close()
    return [*faults, *reader.faults]


def pages_with_examples(site: Path) -> list[str]:
    """Return the paths of the pages that have a block with "Run"."""
    found = [
        path.parent.relative_to(site).as_posix().removeprefix(".")
        for path in sorted(site.rglob("index.html"))
        if 'class="live-run"' in path.read_text(encoding="utf-8")
    ]
    return [f"{path}/" if path else "" for path in found]


def main(arguments: list[str]) -> int:
    """Run the check. Return 1 if something is wrong."""
    args = options("python -m browser.check", __doc__).parse_args(arguments)
    with visit(args) as site:
        faults = check(*site)
    print("\n".join([*faults, f"cluster in the browser: {len(faults)} faults"]))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
