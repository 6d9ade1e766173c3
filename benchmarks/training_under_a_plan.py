"""Training under a plan: the digits example at 8 to 2 bits, after calibration, trained, and planned again.

`python -m benchmarks.training_under_a_plan --write` writes docs/results/training-under-a-plan.md; it needs
`make .oracles/torch/.made`, and minutes. `--keep FILE` keeps finished runs, and goes on from there.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
PAGE: Final = ROOT / "docs" / "results" / "training-under-a-plan.md"
PYTHON: Final = ROOT / ".oracles" / "torch" / "bin" / "python"
WIDTHS: Final = {"finn-fpga": (8, 4, 3, 2), "hls4ml-fpga": (8, 4, 3, 2), "litert-int8": (8,)}
SEEDS: Final = (0, 1, 2)
EPOCHS: Final = 10
HEADS: Final = (
    *("bits", "after calibration", "trained, in torch", "planned again"),
    *("rescales", "price", "largest difference"),
)
APART: Final = "finn-fpga"
APART_WIDTHS: Final = (4, 2)


def run(target: str, bits: int, seed: int, how: str) -> dict[str, Any]:
    """One training in PyTorch's environment, with the packages of this one behind it."""
    places = [str(ROOT), *(place for place in sys.path if Path(place).name == "site-packages")]
    line = [str(PYTHON), "-P", "benchmarks/training_side.py", target, *map(str, (bits, seed, EPOCHS)), how]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(places), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(line, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr[-2000:])
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def spread(numbers: list[float]) -> str:
    """Mean and standard deviation."""
    return f"{statistics.mean(numbers):.1f} ± {statistics.pstdev(numbers):.1f}"


def change(runs: list[dict[str, Any]], figure: str) -> str:
    """A figure of the plan before and after training."""
    before = {run["before"][figure] for run in runs}
    after = sorted({run["after"][figure] for run in runs})
    return f"{', '.join(f'{n:g}' for n in sorted(before))} → {', '.join(f'{n:g}' for n in after)}"


def row(head: str, runs: list[dict[str, Any]]) -> str:
    """A line of a table: accuracies, rescales, price, difference."""
    calibrated = runs[0]["calibrated"]
    return (
        f"| {head} | {calibrated:.1f} | {spread([one['trained'] for one in runs])} | "
        f"{spread([one['again'] for one in runs])} | {change(runs, 'rescales')} | {change(runs, 'price')} | "
        f"{max(one['difference'] for one in runs):.1g} |\n"
    )


def page(known: dict[str, list[dict[str, Any]]]) -> str:
    """The page of finished runs."""
    heads = " | ".join(HEADS)
    text = f"""# Training under a plan
Made by `python -m benchmarks.training_under_a_plan --write`: the digits example (a residual convnet with a
concat and a softmax), its weights and the results of its convolutions at 8 to 2 bits, trained for {EPOCHS}
epochs on the 1,347 images that are not in the test file; accuracy in percent of its 450 images, mean and
standard deviation of {len(SEEDS)} seeds. Biases were corrected before; training starts with
`fit_weights`. Price: all rescales and casts. Largest
difference: a probability in torch beside the same in `planner.evaluate` of the plan made again. The float
model: 99.8 %.
"""
    for target, widths in WIDTHS.items():
        text += f"\n## {target}\n| {heads} |\n|---|---|---|---|---|---|---|\n"
        text += "".join(row(str(bits), known[f"{target} {bits} tied"]) for bits in widths)
    text += f"""
## A scale for each tensor
As quantization-aware training usually has it: the same, on {APART}, with a scale of its own for every tensor.
Planning again then needs rescales where scales that the device shares were learned apart.

| {heads} |
|---|---|---|---|---|---|---|
"""
    text += "".join(row(str(bits), known[f"{APART} {bits} apart"]) for bits in APART_WIDTHS)
    seconds = [one["seconds"] for runs in known.values() for one in runs]
    return text + f"\nA training takes {min(seconds):.0f} to {max(seconds):.0f} s of one core.\n"


def main() -> None:
    """Run what is missing, then print or write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--keep", type=Path)
    given = parser.parse_args()
    known: dict[str, list[dict[str, Any]]] = {}
    if given.keep is not None and given.keep.exists():
        known = json.loads(given.keep.read_text(encoding="utf-8"))
    jobs = [(target, bits, "tied") for target, widths in WIDTHS.items() for bits in widths]
    jobs += [(APART, bits, "apart") for bits in APART_WIDTHS]
    for target, bits, how in jobs:
        runs = known.setdefault(f"{target} {bits} {how}", [])
        for seed in SEEDS[len(runs) :]:
            runs.append(run(target, bits, seed, how))
            print(target, bits, how, seed, json.dumps(runs[-1]), flush=True)
            if given.keep is not None:
                given.keep.write_text(json.dumps(known), encoding="utf-8")
    if given.write:
        PAGE.write_text(page(known), encoding="utf-8")
    else:
        print(page(known))


if __name__ == "__main__":
    main()
