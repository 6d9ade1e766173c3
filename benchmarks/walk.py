"""The walk of a person who has read nothing: from a model to a file and to the reason of the worst kernel.

Chromium on a server of its own; only what a page shows is pressed. Usage, from the repository root:
`python -m benchmarks.walk [--write] [--shots FOLDER]`; `--write` puts the steps into
docs/results/report-page.md, `--shots` keeps a picture of each screen at three widths, light and dark.
"""

import argparse
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from playwright.sync_api import Page, sync_playwright

from benchmarks.service import server

ROOT: Final = Path(__file__).resolve().parents[1]
DIGITS: Final = ROOT / "examples" / "digits"
PAGE: Final = ROOT / "docs" / "results" / "report-page.md"
BEGIN, END = "<!-- python -m benchmarks.walk --write -->", "<!-- end -->"
FLAGS: Final = ("--no-sandbox", "--disable-gpu", "--disable-background-networking")
WIDTHS: Final = (390, 768, 1440)
TARGET: Final = "k210-kpu"
"""A device that leaves several kernels of the example in float."""


class Step(NamedTuple):
    """What the person did, what the page then said, and after how many seconds."""

    did: str
    said: str
    seconds: float


def ready(page: Page) -> None:
    """Wait until the page shows what its address names."""
    page.wait_for_selector("main[data-ready]")


def walk(page: Page, url: str, seen: Callable[[str], object] = lambda _: None) -> list[Step]:
    """Walk from the first page to the file.

    Args:
      seen: gets the name of each screen once it stands.
    """
    steps: list[Step] = []

    def step(did: str, act: Callable[[], str]) -> None:
        began = time.perf_counter()
        said = act()
        steps.append(Step(did, " ".join(said.split()), time.perf_counter() - began))
        seen(f"{len(steps)}")

    step("open the server", lambda: _first(page, url))
    step("choose the model's file under 1", lambda: _model(page))
    step("choose the file of samples", lambda: _samples(page))
    step(f"press `plan` beside {TARGET}", lambda: _planned(page))
    step("press its number of kernels", lambda: _opened(page))
    step("open the first cause under `kernels in float`", lambda: _cause(page))
    step("press the first kernel, the largest", lambda: _reason(page))
    step("press `export and download`", lambda: _file(page))
    return steps


def _first(page: Page, url: str) -> str:
    page.goto(url)
    ready(page)
    return page.locator("h1").inner_text()


def _model(page: Page) -> str:
    page.get_by_role("button", name="Drop a model here").set_input_files(DIGITS / "digits.onnx")
    page.wait_for_url("**/models/sha256:*")
    ready(page)
    return page.locator("h1").inner_text()


def _samples(page: Page) -> str:
    page.get_by_role("button", name="Drop samples here").set_input_files(DIGITS / "calibration.npz")
    told = page.get_by_text("Calibrated on")
    told.wait_for()
    return told.inner_text()


def _planned(page: Page) -> str:
    row = page.locator(f"tr[data-target={TARGET}]")
    row.get_by_role("button").click()
    row.get_by_text(" dB, ").wait_for()
    return ", ".join(row.locator("td").nth(i).inner_text() for i in (1, 2))


def _opened(page: Page) -> str:
    page.locator(f"tr[data-target={TARGET}]").get_by_role("link", name=" of ").click()
    page.wait_for_url("**/plans/sha256:*")
    ready(page)
    page.frames[1].wait_for_function("() => window.__view && window.__view.frames > 0")
    return page.frames[1].locator("#view-panel h3").first.inner_text()


def _cause(page: Page) -> str:
    cause = page.frames[1].locator("#view-panel details.cause").first
    cause.locator("summary").click()
    return cause.locator("summary").inner_text()


def _reason(page: Page) -> str:
    frame = page.frames[1]
    frame.locator("#view-panel details.cause").first.get_by_role("button").first.click()
    name = frame.locator("#view-panel h3").first
    reason = frame.locator("#view-panel dt", has_text="float, because").locator(
        "xpath=following-sibling::dd[1]"
    )
    return f"{name.inner_text()}: {reason.inner_text()}"


def _file(page: Page) -> str:
    with page.expect_download() as download:
        page.get_by_role("button", name="export and download").click()
    return download.value.suggested_filename


def table(steps: list[Step]) -> str:
    """The steps as Markdown."""
    lines = ["| step | the page says | s |", "|---|---|---|"]
    lines += [f"| {did} | {said.replace('|', '/')} | {seconds:.1f} |" for did, said, seconds in steps]
    return "\n".join(lines)


def keep(begin: str, text: str) -> None:
    """Put a text into the page, behind a mark and in front of the next `END`."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(begin)
    PAGE.write_text(f"{before}{begin}\n\n{text}\n\n{END}{rest.partition(END)[2]}", encoding="utf-8")


def main() -> None:
    """Walk, print, and with `--write` keep the steps."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--shots", type=Path)
    given = parser.parse_args()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        with server(QPLAN_ACCESS_LOG="off") as (url, _):
            page = browser.new_page(viewport={"width": 1440, "height": 900})
            text = table(walk(page, url))
            for width in WIDTHS if given.shots else ():
                for scheme in ("light", "dark"):
                    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
                    name = f"{given.shots}/{width}-{scheme}"
                    walk(page, url, lambda at, page=page, name=name: page.screenshot(path=f"{name}-{at}.png"))
        browser.close()
    print(text)
    if given.write:
        keep(BEGIN, text)


if __name__ == "__main__":
    main()
