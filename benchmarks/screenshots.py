"""Pictures of the page of a plan and of the server's for the documentation: digits in Chromium, as PNG files.

Writes docs/images, at most 500 kB. Usage, from the repository root: `python -m benchmarks.screenshots`.
Measures nothing.
"""

import io
import re
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final, Literal, NamedTuple

from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

import planner
from benchmarks.service import server

ROOT: Final = Path(__file__).resolve().parents[1]
DIGITS: Final = ROOT / "examples" / "digits"
IMAGES: Final = ROOT / "docs" / "images"
FLAGS: Final = ("--no-sandbox", "--disable-gpu", "--disable-background-networking")
MOST: Final = 500_000
"""Bytes of all pictures."""
WIDER: Final = {"values": {"stem/relu_out": "!quant.uniform<i8:f32, 0.02795201912522316:-61>"}}


class Shot(NamedTuple):
    """A picture: its name, the page, the dress, what is done before."""

    name: str
    page: str
    scheme: Literal["light", "dark"]
    act: Callable[[Page], object]


def _what_if(page: Page) -> None:
    page.evaluate("planPage.select('skip/pool')")
    page.locator("#view-panel .ports button").first.click()
    page.evaluate("planPage.edit({of: 'kernel', at: 'head/gemm', value: 'float'})")


def shots() -> list[Shot]:
    """All pictures."""
    model = planner.load_model(DIGITS / "digits.onnx")
    samples = DIGITS / "calibration.npz"
    stats = planner.calibrate(model, samples)
    ready = planner.annotate(model, stats=stats)
    plan = planner.plan(ready, "litert-int8")
    quality = planner.compare(model, planner.export(ready, plan, "onnx-qdq"), samples)
    report = planner.write_report(plan, {"onnx-qdq": quality}, losses=planner.losses(ready, plan, samples))
    two = planner.write_report(planner.replan(plan, WIDER), before=plan)
    return [
        Shot("report", report, "light", lambda page: page.evaluate("planPage.select('join/concat')")),
        Shot("before-after", two, "light", lambda page: page.evaluate("fitAll()")),
        Shot("what-if", report, "dark", _what_if),
    ]


def main() -> None:
    """Write them.

    Raises:
      SystemExit: they are larger than `MOST` together.
    """
    IMAGES.mkdir(exist_ok=True)
    total = 0
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        taken = {shot.name: _taken(browser, shot, Path(folder)) for shot in shots()}
        for name, data in (taken | _of_server(browser)).items():
            small = _small(data)
            (IMAGES / f"{name}.png").write_bytes(small)
            total += len(small)
        browser.close()
    print(f"docs/images: {total / 1000:.0f} kB")
    if total > MOST:
        raise SystemExit(f"larger than {MOST / 1000:.0f} kB")


def _small(data: bytes) -> bytes:
    """Return a picture with 256 colours, those that stand out first: orange is what people look for."""
    file = io.BytesIO()
    picture = Image.open(io.BytesIO(data)).convert("RGB")
    picture.quantize(256, method=Image.Quantize.MAXCOVERAGE).save(file, "PNG", optimize=True)
    return file.getvalue()


def _taken(browser: Browser, shot: Shot, folder: Path) -> bytes:
    path = folder / "report.html"
    path.write_text(shot.page, encoding="utf-8")
    page = browser.new_page(viewport={"width": 1040, "height": 720}, color_scheme=shot.scheme)
    page.goto(path.as_uri())
    page.wait_for_function("() => window.__view && window.__view.frames > 0")
    page.locator("#view-canvas").focus()
    shot.act(page)
    page.evaluate("scrollTo(0, 0)")  # a chosen kernel scrolls to the graph: keep the title in the picture
    page.wait_for_timeout(300)
    data = page.screenshot()
    page.close()
    return data


def _of_server(browser: Browser) -> dict[str, bytes]:
    """The server's page: one model on some targets, a plan with its quality, the editor of a target."""
    with server(QPLAN_ACCESS_LOG="off") as (url, _):
        page = browser.new_page(viewport={"width": 1040, "height": 700}, color_scheme="light")
        page.goto(url)
        page.set_input_files("#model-file", DIGITS / "digits.onnx")
        page.wait_for_url("**/models/sha256:*")
        page.set_input_files("#samples-file", DIGITS / "calibration.npz")
        page.get_by_text("Calibrated on").wait_for()
        for target in ("ethos-u55", "finn-fpga", "hls4ml-fpga", "litert-int8"):
            row = page.locator(f"tr[data-target={target}]")
            row.get_by_role("button").click()
            row.locator("td", has_text=re.compile("dB|not measured")).first.wait_for(timeout=120_000)
        page.evaluate("document.querySelectorAll('main h2')[1].scrollIntoView()")
        found = {"server-targets": page.screenshot()}
        page.locator("tr[data-target=litert-int8]").get_by_role("link", name=" of ").click()
        page.wait_for_url("**/plans/sha256:*")
        page.wait_for_selector("main[data-ready]")
        page.frames[1].wait_for_function("() => window.__view && window.__view.frames > 0")
        page.wait_for_timeout(300)
        found["server-plan"] = page.screenshot()
        page.close()
    return found


if __name__ == "__main__":
    main()
