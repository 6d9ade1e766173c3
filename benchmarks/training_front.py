"""The front of a search before and after training: which kernels of the digits example get weights of 4 bits.

`python -m benchmarks.training_front --write` writes docs/results/training-front.md; it needs
`make .oracles/torch/.made`, and a minute. The search asks for fewer and fewer bits a number in constants;
each plan that it finds is trained under, from its annotations, and planned again.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import numpy as np

import planner

ROOT: Final = Path(__file__).resolve().parents[1]
PAGE: Final = ROOT / "docs" / "results" / "training-front.md"
DIGITS: Final = ROOT / "examples" / "digits"
TARGET: Final = "qnn-htp"
BITS: Final = (8.2, 7, 6, 5, 4.2)
EPOCHS: Final = 6
HEADS: Final = ("bits a number", "kernels at 4 bits", "SQNR", "work", "after search", "trained", "work then")


def searched() -> list[dict[str, Any]]:
    """The best plan at each number of bits, as annotations, with its figures."""
    stats = planner.calibrate(planner.load_model(DIGITS / "digits.onnx"), DIGITS / "calibration.npz")
    ready = planner.annotate(planner.load_model(DIGITS / "digits.onnx"), stats=stats)
    with np.load(DIGITS / "calibration.npz") as archive:
        samples = {name: archive[name][:8] for name in archive.files}
    found = [planner.search(ready, TARGET, samples, goal=f"weight_bits={bits}", trials=12) for bits in BITS]
    known = {one.best.weight_bits: one for one in found if one.best is not None}
    return [
        {
            "bits": bits,
            "sqnr": one.best.sqnr,
            "annotations": one.annotations,
            "narrow": sum("i4" in str(kernel) for kernel in one.annotations["kernels"].values()),
        }
        for bits, one in sorted(known.items(), reverse=True)
        if one.best is not None
    ]


def trained(found: list[dict[str, Any]]) -> None:
    """Train under each plan, in PyTorch's environment; prints a line of JSON for each."""
    import torch

    from benchmarks.training_side import SCORES, train, training_data

    torch.set_num_threads(1)
    test = np.load(DIGITS / "test.npz")
    model = planner.load_model(DIGITS / "digits.onnx")
    stats = planner.calibrate(model, DIGITS / "calibration.npz")

    def figures(graph: Any) -> tuple[Any, float, float]:
        plan = planner.plan(graph, TARGET)
        scores = planner.evaluate(graph, plan, {"image": test["image"]}).outputs["probabilities"]
        return plan, 100 * float(np.mean(scores.argmax(1) == test["label"])), plan.work.total

    for one in found:
        torch.manual_seed(0)
        ready = planner.annotate(model, stats=stats, annotations=one["annotations"])
        plan, before, work = figures(ready)
        module = planner.torch.fake_quantized(ready, plan, outputs=[SCORES, *ready.outputs])
        train(module, *training_data(test), EPOCHS)
        _, after, work_after = figures(planner.with_learned(ready, module))
        print(json.dumps({"before": before, "work": work, "after": after, "work after": work_after}))


def page(found: list[dict[str, Any]]) -> str:
    """The table."""
    lines = [
        f"| {one['bits']:.1f} | {one['narrow']} of 8 | {one['sqnr']:.1f} dB | {one['work']:.0f} | "
        f"{one['before']:.1f} | {one['after']:.1f} | {one['work after']:.0f} |\n"
        for one in found
    ]
    return f"""# The front of a search, before and after training
Made by `python -m benchmarks.training_front --write`: the digits example on {TARGET}. `search` with the goal
`weight_bits` says which kernels get weights of 4 bits; its annotations make the plan, under which
{EPOCHS} epochs train. Accuracy in percent of 450 images; the float model has 99.8. SQNR is before training.

| {" | ".join(HEADS)} |
{"|---" * len(HEADS)}|
{"".join(lines)}"""


def main() -> None:
    """Search here, train in PyTorch's environment, print or write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--train", type=json.loads, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.train is not None:
        trained(given.train)
        return
    found = searched()
    places = [str(ROOT), *(place for place in sys.path if Path(place).name == "site-packages")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(places), "OMP_NUM_THREADS": "1"}
    python = ROOT / ".oracles" / "torch" / "bin" / "python"
    line = [str(python), "-P", "-m", "benchmarks.training_front", "--train", json.dumps(found)]
    done = subprocess.run(line, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr[-2000:])
    answers = [json.loads(text) for text in done.stdout.splitlines() if text.startswith("{")]
    text = page([one | answer for one, answer in zip(found, answers, strict=True)])
    if given.write:
        PAGE.write_text(text, encoding="utf-8")
    else:
        print(text)


if __name__ == "__main__":
    main()
