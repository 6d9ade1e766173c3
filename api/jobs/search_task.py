"""The task `search` of a child: the plan of least work that is as good as asked.

What it measured lies in a file that the next child goes on with: of a server that was killed, or of a later
search with another goal. Source: design 06, "Jobs"; design 11, section 7.
"""

import json
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from api.intake.scan_zip import scan_npz
from planner.ir.graph import Graph
from planner.plan_search.search import merged_annotations, search
from planner.plan_search.told import search_json
from planner.target.records import Target

APART: Final = ("kernels", "outputs")
"""Of a trial: as long as the model, so only the whole document has them."""
NOISE: Final = "noise"
"""The phase in front of trials, in progress: runs with one kernel quantized are counted."""


def _by_percent(tell: Callable[[int, int | None], None]) -> Callable[[int, int | None], None]:
    """Tell only what changes the per cent."""
    told = -1

    def some(done: int, total: int | None) -> None:
        nonlocal told
        percent = 100 * done // total if total else done
        if percent != told:
            told = percent
            tell(done, total)

    return some


def search_model(model: Graph, target: Target, job: Mapping[str, Any]) -> dict[str, Any]:
    """Search, and write all that was found.

    Args:
      model: annotated.
      job: `samples`, a file; `goal`, `metric`, `output`, `trials` and `reference` as `search` takes them;
        `annotations` that the model has, or null; `state`, a file to go on with; `out`, for the document.

    Returns:
      The document without what is as long as the model, and the annotations that make the best plan.
    """
    tempfile.tempdir = str(Path(job["out"]).parent)
    samples = Path(job["samples"])
    scan_npz(samples)
    found = search(
        model,
        target,
        samples,
        goal=job["goal"],
        metric=job["metric"],
        output=job["output"],
        trials=job["trials"],
        reference=job["reference"],
        state=job["state"],
        progress=job["tell"],
        measuring=_by_percent(partial(job["tell"], phase=NOISE)),
    )
    document = search_json(found)
    Path(job["out"]).write_text(json.dumps(document), encoding="utf-8")
    trials = [
        {**{name: item for name, item in trial.items() if name not in APART}, "asked": len(trial["kernels"])}
        for trial in document["trials"]
    ]
    annotations = merged_annotations(job["annotations"], found.best.kernels)
    return {**document, "trials": trials, "annotations": annotations}
