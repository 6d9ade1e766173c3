"""Upstream's quantized test programs: how many are read, planned, evaluated and exported, with their numbers.

The programs are StableHLO's `stablehlo/testdata/quantized`, a folder that is not part of this project. Custom
form is made generic in `.oracles/mlir` (`make oracles`). A program ends with `check.eq` of an expectation and
its result: one that returns the check has to give true, of any other the result is compared here.

    python -m benchmarks.stablehlo_programs FOLDER
"""

import argparse
import re
from collections import Counter
from pathlib import Path

import numpy as np

import planner
from planner.errors import PlannerError
from planner.ir.graph import Graph
from planner.ir.types.qtypes import Uniform
from planner.mlir.passes.tool import split
from tests.oracles.hlo import printed

STAGES = ("read", "planned", "evaluated", "exported", "equal to upstream's expectation")
_CHECK = re.compile(r'"stablehlo.custom_call"\((%\w+), %\w+\)')
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


def reached(text: str) -> list[str]:
    """The stages that a program gets through; the error is printed."""
    stages = []
    try:
        model = planner.load_model(text.encode(), format="mlir")
        stages.append(STAGES[0])
        plan = planner.plan(model, "stablehlo")
        planner.check(plan, model, "stablehlo")
        stages.append(STAGES[1])
        outputs = planner.evaluate(model, plan, {}).outputs
        stages.append(STAGES[2])
        for form in ("stablehlo", "stablehlo-int"):
            planner.export(model, plan, form)
        stages.append(STAGES[3])
    except PlannerError as error:
        print("  ", error)
        return stages
    ((name, array),) = outputs.items()
    if array.dtype == np.bool_:
        same = bool(array.all())
    else:
        wanted = expectation(text, array.shape)
        same = wanted is not None and np.array_equal(wanted, reals(model, name, array))
    return [*stages, STAGES[4]] if same else stages


def main() -> None:
    """Print how many programs reach each stage."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    files = sorted(parser.parse_args().folder.glob("*.mlir"))
    parts = [part for file in files for _, part in split(file.read_text(encoding="utf-8")) if part.strip()]
    programs = [text for text in printed(parts) if "!quant.uniform" in text]
    counts: Counter[str] = Counter()
    for text in programs:
        counts.update(reached(text))
    for stage in STAGES:
        print(f"{stage}: {counts[stage]} of {len(programs)}")


if __name__ == "__main__":
    main()
