"""Upstream's quantized test programs: how many are read, planned, evaluated and exported, with their numbers.

The programs are StableHLO's `stablehlo/testdata/quantized`, a folder that is not part of this project. Custom
form is made generic in `.oracles/mlir` (`make oracles`). A program ends with `check.eq` of an expectation and
its result: one that returns the check has to give true, of any other the result is compared here.

    python -m benchmarks.stablehlo_programs FOLDER
"""

import argparse
import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

import planner
from planner.errors import PlannerError
from planner.formats.mlir.passes.tool import split
from planner.ir.graph import Graph
from planner.ir.types.qtypes import Uniform
from tests.oracles.hlo import printed

STAGES = ("read", "planned", "evaluated", "exported", "equal to upstream's expectation")
_CHECK = re.compile(r'"stablehlo.custom_call"\((%\w+), %\w+\)')
_RESULT = re.compile(
    r'"stablehlo.uniform_dequantize"\([^)]*\)[^:]*: \(tensor<[^!]*!quant.uniform<[^,]*, ([-+\d.eE]+)'
)
_NUMBERS = r'{} = "stablehlo.constant"\(\) <\{{value = dense<(.*?)> : tensor<([\dx]*)f32>'


def expectation(text: str, shape: tuple[int, ...]) -> np.ndarray | None:
    """The constant that a program compares its result with."""
    check = _CHECK.search(text)
    found = re.search(_NUMBERS.format(re.escape(check[1])), text) if check else None
    if found is None:
        return None
    numbers = found[1]
    if numbers.startswith('"0x'):
        return np.resize(np.frombuffer(bytes.fromhex(numbers[3:-1]), np.float32), shape)
    flat = [float(item) for item in re.findall(r"[-+\d.eE]+", numbers)]
    return np.resize(np.asarray(flat, np.float32), shape)


def reals(model: Graph, name: str, array: np.ndarray) -> np.ndarray:
    """A result as reals; stored where it is pinned."""
    kind = next((fact for fact in model.values[name].facts if isinstance(fact, Uniform)), None)
    if kind is None or array.dtype.kind not in "iu":
        return array
    return np.asarray((array.astype(np.float64) - kind.zero_point) * kind.scale, np.float32)


@dataclass(slots=True)
class Outcome:
    """What became of a program.

    Attributes:
      stages: those of `STAGES` that it got through.
      error: the refusal behind the last of them; "" where there is none.
      steps: the largest difference from upstream's expectation, in steps of the result's type; None before.
    """

    stages: list[str] = field(default_factory=list)
    error: str = ""
    steps: float | None = None


def programs(folder: Path) -> list[str]:
    """Upstream's quantized programs in generic form."""
    files = sorted(folder.glob("*.mlir"))
    parts = [part for file in files for _, part in split(file.read_text(encoding="utf-8")) if part.strip()]
    return [text for text in printed(parts) if "!quant.uniform" in text]


def difference(text: str, model: Graph, name: str, array: np.ndarray) -> float:
    """The largest difference of a result from upstream's expectation, in steps of its quantized type."""
    if array.dtype == np.bool_:
        return 0.0 if array.all() else float("inf")
    wanted = expectation(text, array.shape)
    if wanted is None:
        return float("inf")
    found = reals(model, name, array)
    scales = _RESULT.findall(text)
    with np.errstate(invalid="ignore"):
        apart = np.where(found == wanted, 0.0, np.abs(found.astype(np.float64) - wanted))
    step = abs(float(scales[-1])) if scales else 1e-6
    return 0.0 if np.array_equal(found, wanted) else max(float(apart.max(initial=0.0)) / step, 1.0)


def reached(text: str) -> Outcome:
    """The stages that a program gets through."""
    found = Outcome()
    try:
        model = planner.load_model(text.encode(), format="mlir")
        found.stages.append(STAGES[0])
        plan = planner.plan(model, "stablehlo")
        planner.check(plan, model, "stablehlo")
        found.stages.append(STAGES[1])
        outputs = planner.evaluate(model, plan, {}).outputs
        found.stages.append(STAGES[2])
        for form in ("stablehlo", "stablehlo-int"):
            planner.export(model, plan, form)
        found.stages.append(STAGES[3])
    except PlannerError as error:
        found.error = str(error)
        return found
    ((name, array),) = outputs.items()
    found.steps = difference(text, model, name, array)
    if not found.steps:
        found.stages.append(STAGES[4])
    return found


def main() -> None:
    """Print how many programs reach each stage."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    texts = programs(parser.parse_args().folder)
    counts: Counter[str] = Counter()
    for text in texts:
        outcome = reached(text)
        counts.update(outcome.stages)
        if outcome.error:
            print("  ", outcome.error)
    for stage in STAGES:
        print(f"{stage}: {counts[stage]} of {len(texts)}")


if __name__ == "__main__":
    main()
