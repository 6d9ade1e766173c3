"""The served pages: first paint, bytes and requests of each, as a browser without a cache opens it.

Chromium on a server of its own, with the digits example planned by the walk (`benchmarks.walk`).
Bytes are those that crossed the wire, compressed. Usage, from the repository root:
`python -m benchmarks.served_pages [--write]`; `--write` puts the table into docs/results/report-page.md.
"""

import argparse
import shutil
import statistics
from typing import Final, NamedTuple

from playwright.sync_api import Browser, sync_playwright

from benchmarks.service import server
from benchmarks.walk import FLAGS, keep, ready, walk

BEGIN = "<!-- python -m benchmarks.served_pages --write -->"
TRIES: Final = 5
_LOADED: Final = """() => {
  const [page] = performance.getEntriesByType("navigation");
  const loaded = [page, ...performance.getEntriesByType("resource")];
  const [paint] = performance.getEntriesByName("first-contentful-paint");
  const size = loaded.reduce((sum, one) => sum + one.transferSize, 0);
  return [paint.startTime, page.domContentLoadedEventEnd, loaded.length, size];
}"""


class Opened(NamedTuple):
    """One opening of a page: milliseconds, requests, and bytes over the wire."""

    first_paint: float
    content: float
    requests: int
    size: int


def addresses(browser: Browser, url: str) -> dict[str, str]:
    """Walk to a plan; the pages of the server, by what they are."""
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    seen: list[str] = []
    walk(page, url, lambda _: seen.append(page.url))
    page.close()
    model = next(address for address in seen if "/models/" in address)
    plan = next(address for address in seen if "/plans/" in address)
    return {"home": f"{url}/", "a model": model, "a plan": plan, "targets": f"{url}/targets"}


def opened(browser: Browser, address: str) -> Opened:
    """Open a page with an empty cache."""
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    page = context.new_page()
    page.goto(address)
    ready(page)
    page.wait_for_load_state("networkidle")
    found = Opened(*page.evaluate(_LOADED))
    context.close()
    return found


def table() -> str:
    """Measure each page; return the Markdown table, with the medians of the tries."""
    lines = ["| page | first paint ms | content loaded ms | requests | kB |", "|---|---|---|---|---|"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        with server(QPLAN_ACCESS_LOG="off") as (url, _):
            for name, address in addresses(browser, url).items():
                tries = [opened(browser, address) for _ in range(TRIES)]
                paint, content, requests, size = (statistics.median(one) for one in zip(*tries, strict=True))
                lines.append(f"| {name} | {paint:.0f} | {content:.0f} | {requests:.0f} | {size / 1000:.1f} |")
        browser.close()
    return "\n".join(lines)


def main() -> None:
    """Measure, print, and with `--write` keep the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    text = table()
    print(text)
    if given.write:
        keep(BEGIN, text)


if __name__ == "__main__":
    main()
