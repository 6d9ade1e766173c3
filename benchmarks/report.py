"""The report of large plans: seconds to write it, its size, and how its graph moves in Chromium.

Residual and transformer-like graphs planned for `litert-int8`; a browser of its own for each page, the file
from disk, software rendering. `first`: from opening the file to the first painted frame. Frames are timed by
the page itself while it is dragged at each level of detail. Usage, from the repository root:
`python -m benchmarks.report [--regions 1000 50000] [--write]`; `--write` puts the table into
docs/results/report-page.md.
"""

import argparse
import gzip
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from playwright.sync_api import Page, sync_playwright

import planner
from benchmarks.topologies import TOPOLOGIES
from planner.report.resources import script, style, table_script

PAGE: Final = Path(__file__).resolve().parents[1] / "docs" / "results" / "report-page.md"
DIGITS: Final = Path(__file__).resolve().parents[1] / "examples" / "digits"
MARK: Final = "\n## Figures\n"
SHAPES: Final = ("residual", "transformer")
SIZES: Final = (1_000, 10_000, 50_000)
UNITS: Final = {"bars": 0.5, "boxes": 12.0, "names": 80.0}
FRAMES: Final = 60
TRIES: Final = 3
FLAGS: Final = ("--no-sandbox", "--disable-gpu", "--disable-background-networking")
_DRAG: Final = """([unit, frames]) => new Promise((done) => {
  const { view, scene } = main;
  [view.x, view.y, view.unit] = [scene.wide / 2, scene.high / 3, unit];
  const times = [];
  const frame = () => {
    view.y += 20 / view.unit;
    paint(main);
    times.push(view.painted);
    if (times.length < frames) requestAnimationFrame(frame);
    else done(times.sort((a, b) => a - b)[Math.floor(0.95 * frames)]);
  };
  requestAnimationFrame(frame);
})"""


def table(sizes: list[int]) -> str:
    """Measure; return the Markdown table and what the page weighs without its plan."""
    lines = [
        "| shape | kernels | written s | page MB | gz MB | first frame s | p95 ms: bars | boxes | names |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    lines.append(_row("digits", _digits()))
    for shape in SHAPES:
        lines += [_row(shape, planner.plan(TOPOLOGIES[shape](size), "litert-int8")) for size in sizes]
    bundle = len(gzip.compress((script() + table_script() + style()).encode(), 9))
    lines.append(f"\nScript and style: {bundle / 1000:.1f} kB gz.")
    return "\n".join(lines)


def _digits() -> planner.Plan:
    """The shipped example."""
    model = planner.load_model(DIGITS / "digits.onnx")
    stats = planner.calibrate(model, DIGITS / "calibration.npz")
    return planner.plan(planner.annotate(model, stats=stats), "litert-int8")


def _row(shape: str, plan: planner.Plan) -> str:
    """Figures of one plan: the median of `TRIES` first frames, each in a new browser."""
    start = time.process_time()
    text = planner.write_report(plan).encode()
    spent = time.process_time() - start
    packed = len(gzip.compress(text, 6))
    tries = [_shown(text) for _ in range(TRIES)]
    first, drags = statistics.median(first for first, _ in tries), tries[-1][1]
    told = " | ".join(f"{drags[level]:.1f}" for level in UNITS)
    return (
        f"| {shape} | {len(plan.kernels_in_order)} | {spent:.1f} | {len(text) / 1e6:.1f} "
        f"| {packed / 1e6:.2f} | {first:.2f} | {told} |"
    )


def _shown(text: bytes) -> tuple[float, dict[str, float]]:
    """Seconds to the first frame, and the slow frames of a drag at each level."""
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        path = Path(folder) / "report.html"
        path.write_bytes(text)
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.goto(path.as_uri())
        page.wait_for_function("() => window.__view && window.__view.frames > 0")
        first = float(page.evaluate("window.__view.first")) / 1000
        found = {level: _dragged(page, unit) for level, unit in UNITS.items()}
        browser.close()
    return first, found


def _dragged(page: Page, unit: float) -> float:
    return float(page.evaluate(_DRAG, [unit, FRAMES]))


def main() -> None:
    """Measure, print, and with `--write` keep the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--regions", nargs="*", type=int, default=list(SIZES))
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    found = table(options.regions)
    print(found)
    if options.write:
        command = "python -m benchmarks.report " + " ".join(sys.argv[1:])
        kept = PAGE.read_text("utf-8").partition(MARK)[0]
        PAGE.write_text(f"{kept}{MARK}{ABOUT}\n{found}\n\nMade by `{command.strip()}`.\n", "utf-8")


ABOUT: Final = """Processor seconds to write the page; the rest in Chromium without a GPU on the same machine,
pages of 1280 x 900; the first frame is the median of three browsers, then the slow frames of a drag at each
level. Wanted: digits painted within 0.2 s, 50,000 kernels within 1.5 s, 50 ms a frame, script and style under
120 kB.
"""

if __name__ == "__main__":
    main()
