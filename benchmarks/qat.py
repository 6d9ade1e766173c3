"""QAT files on targets: what the plan's file computes beside the file as written, and why it is not equal.

The files of the model folder (`qonnx/`), with inputs of their kind, and the nets of `qat_nets`. Usage, from
the repository root (the model folder is needed): `python -m benchmarks.qat [--only NAME ...] [--write]`;
`--write` puts the tables into docs/results/qat.md.
"""

import argparse
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeGuard

import numpy as np
import onnx
from onnx import numpy_helper

import planner
from benchmarks.qat_nets import NETS, build, inputs
from benchmarks.samples import model_folder
from planner.constants.quantize import dequantize_array, quantize_array
from planner.errors import PlannerError
from planner.ir.graph import Graph
from planner.ir.types.qtypes import Bipolar, QType, Uniform
from planner.plans.plan import Plan

ROOT: Final = Path(__file__).resolve().parents[1]
PAGE: Final = ROOT / "docs" / "results" / "qat.md"
FORMATS: Final = {
    "onnxruntime-cpu": "onnx-qdq",
    "litert-int8": "onnx-qdq",
    "qnn-htp": "onnx-qdq",
    "finn-fpga": "qonnx",
    "hls4ml-fpga": "qonnx",
}
"""Targets, and the format in which their plans are run."""
COUNT: Final = 16
SHOWN: Final = 3
"""Reasons a row of the second table names."""
NEAR: Final = 1e-6
CLASSES: Final = "tfc_w1a1_finn_thresholds"
"""Its output is the number of a class, of which no dB can be said."""

Sample = dict[str, np.ndarray[Any, Any]]


@dataclass(frozen=True, slots=True)
class Case:
    """A file, samples to calibrate on and samples to judge by."""

    name: str
    path: Path
    given: list[Sample]
    held_out: list[Sample]


@dataclass(frozen=True, slots=True)
class Found:
    """What became of a file on a target; `error` instead where nothing could be run."""

    sqnr: float
    floats: int
    kernels: int
    reasons: tuple[str, ...]
    error: str = ""


def cases(folder: Path, only: Sequence[str]) -> Iterator[Case]:
    """The files of the model folder, then those of `qat_nets`, which are written into a folder."""
    for path in sorted((model_folder() / "qonnx").glob("*.onnx")):
        if path.stem != CLASSES and (not only or path.stem in only):
            drawn = _drawn(path, 2 * COUNT)
            yield Case(path.stem, path, drawn[:COUNT], drawn[COUNT:] or drawn)
    for net in NETS:
        if not only or net.name in only:
            path = folder / f"{net.name}.onnx"
            path.write_bytes(build(net))
            yield Case(net.name, path, [*inputs(net, COUNT)], [*inputs(net, COUNT, 1)])


def _drawn(path: Path, count: int) -> list[Sample]:
    """Inputs of a file of the folder: the one it comes with, else numbers of its kind."""
    rng = np.random.default_rng([3, *path.stem.encode()])
    model = planner.load_model(path)
    (name,) = model.inputs
    shape = tuple(size if isinstance(size, int) else 1 for size in model.values[name].shape or ())
    shipped = path.parent / "espcn_input_0.pb"
    if path.stem.startswith("espcn") and shipped.exists():
        tensor = onnx.TensorProto.FromString(shipped.read_bytes())
        return [{name: numpy_helper.to_array(tensor).astype(np.float32)}]
    if path.stem.startswith(("branched", "separable")):
        count = 4  # pictures of 256 x 256 and more
    if path.stem.startswith("unsw"):  # features of one bit, as +-1
        return [{name: rng.choice([-1, 1], shape).astype(np.float32)} for _ in range(count)]
    if path.stem.startswith(("TFC", "tfc")):  # pictures of 0 to 1
        return [{name: rng.random(shape).astype(np.float32)} for _ in range(count)]
    return [{name: rng.normal(size=shape).astype(np.float32)} for _ in range(count)]


def measured(case: Case, target: str) -> Found:
    """Plan, write and run a file beside itself as written."""
    model = planner.load_model(case.path)
    ready = planner.annotate(model, stats=planner.calibrate(model, case.given))
    plan = planner.plan(ready, target)
    floats = sum(kernel.row is None for kernel in plan.kernels_in_order)
    try:
        data = planner.export(ready, plan, FORMATS[target])
        sqnr = planner.compare(ready, data, case.held_out, exact_products=True).worst_sqnr
    except PlannerError as error:
        return Found(-np.inf, floats, len(plan.kernels), (), str(error).splitlines()[0])
    reasons = tuple(dict.fromkeys(_reasons(ready, plan)))
    return Found(sqnr, floats, len(plan.kernels), reasons)


def _signs(model: Graph, name: str) -> float | None:
    """The scale of a value that is plus or minus it."""
    facts = model.values[name].facts if name in model.values else ()
    return next((fact.scale for fact in facts if isinstance(fact, Bipolar)), None)


def _is_beside(kind: QType | None, signs: float) -> TypeGuard[Uniform]:
    """Whether a grid does not have plus and minus a number."""
    if not isinstance(kind, Uniform) or not signs:
        return False
    return abs(signs / kind.scale - round(signs / kind.scale)) > NEAR


def _reasons(model: Graph, plan: Plan) -> Iterator[str]:
    """Where numbers are rounded that the file does not round, or not there, port by port."""
    at: dict[str, list[tuple[str, QType | None]]] = {}
    for kernel in plan.kernels_in_order:
        moved = {port.type for port in kernel.inputs if isinstance(port.type, Uniform)}
        for port in (*kernel.inputs, *kernel.outputs):
            if port.value in model.constants:
                yield from _of_constant(model, port.address, port.value, port.type)
            elif port.value:
                at.setdefault(port.value, []).append((port.address, port.type))
        for port in kernel.outputs:
            if isinstance(port.type, Uniform) and not _pin(model, port.value) and port.type not in moved:
                yield f"`{port.address}` rounded to {port.type.storage}, in the file not"
    for name, ports in at.items():
        pin = _pin(model, name)
        kinds = [(address, kind) for address, kind in ports if isinstance(kind, Uniform)]
        if pin is not None and not kinds:
            yield f"`{ports[0][0]}` float, in the file {pin.storage}"
        signs = _signs(model, name)
        for address, kind in kinds if signs is not None else ():
            if signs is not None and _is_beside(kind, signs):
                yield f"`{address}` (+-{signs:.3g}) in steps of {kind.scale:.3g}"
        for address, kind in kinds if pin is not None else ():
            if pin is not None and not _is_grid(kind, pin):
                yield f"`{address}` in steps of {max(kind.scales):.3g}, in the file {max(pin.scales):.3g}"


def _pin(model: Graph, name: str) -> Uniform | None:
    facts = model.values[name].facts if name in model.values else ()
    return next((fact for fact in facts if isinstance(fact, Uniform)), None)


def _is_grid(kind: Uniform, pin: Uniform | None) -> bool:
    """Whether a port has the scales of a pin."""
    if pin is None or len(kind.scales) != len(pin.scales):
        return False
    return bool(np.allclose(kind.scales, pin.scales, rtol=NEAR, atol=0.0))


def _of_constant(model: Graph, address: str, name: str, kind: QType | None) -> Iterator[str]:
    """The reason where stored numbers of a constant are not the file's."""
    array = model.constants[name].array
    if not isinstance(kind, Uniform) or array is None or not array.size:
        return
    wide = array.astype(np.float64)
    steps = np.abs(dequantize_array(quantize_array(wide, kind), kind, np.float64) - wide)
    if steps.max() > NEAR * max(float(np.abs(wide).max()), float(np.max(kind.scales))):
        what = "bias" if array.ndim == 1 else "weight" if array.ndim > 1 else "constant"
        yield f"`{address}` ({what}) in steps of {np.max(kind.scales):.2g}"


def told(sqnr: float) -> str:
    """A figure of the first table."""
    if np.isinf(sqnr):
        return "equal" if sqnr > 0 else "-"
    return f"{sqnr:.1f}"


HEAD: Final = """# QAT files on targets
Made by `python -m benchmarks.qat --write`: each file planned with its quantizers as types, written, run,
and compared with the file as it was written, on samples that calibration did not see. `equal`: every number
of every output. Else SQNR in dB, the worst output; in brackets kernels in float, of all. finn-fpga and
hls4ml-fpga are run as QONNX, the others as QDQ in onnxruntime. First the files of the model folder (trained;
inputs drawn at random, but for espcn; outputs of one bit have few dB where one of them turns), then nets in
the form of Brevitas exports with random weights of 1 to 8 bits: `w3a5` has weights of 3 bits and activations
of 5, `open` no quantizer behind the last layer, `pow2` scales that are powers of two, `channels` a scale per
channel, `sum` biases on the grid of their products. The others have float biases, or of 8 bits on their own.
"""


def page(found: dict[str, dict[str, Found]]) -> str:
    """The page."""
    equal = Counter(target for row in found.values() for target, one in row.items() if one.sqnr == np.inf)
    lines = [
        *HEAD.splitlines(),
        "",
        f"| file | {' | '.join(FORMATS)} |",
        "|---" * (len(FORMATS) + 1) + "|",
    ]
    for name, row in found.items():
        cells = [f"{told(one.sqnr)} ({one.floats}/{one.kernels})" for one in row.values()]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    shares = ", ".join(f"{equal[target]} on {target}" for target in FORMATS)
    lines += ["", f"Equal, of {len(found)}: {shares}.", "", "## Why not equal", WHY, ""]
    lines += ["| file | targets | reasons by port |", "|---|---|---|"]
    for name, row in found.items():
        grouped: dict[str, list[str]] = {}
        for target, one in row.items():
            if one.sqnr != np.inf:
                grouped.setdefault(one.error or _listed(one.reasons), []).append(target)
        lines += [f"| {name} | {', '.join(targets)} | {text} |" for text, targets in grouped.items()]
    return "\n".join(lines) + "\n"


WHY: Final = """A device rounds where the file does not. A kernel that the target does not serve runs in
float, and quantizers of the file around it go with it where no kernel beside it stores their grid. A bias is
rounded to the grid of its sums, as [fine](../targets/rules.md#biases-on-fine-grids) as the weight leaves room
for: in rows of 4-bit weights there is little.
Behind a BatchNormalization weights of linear layers are rounded anew
([which](../qonnx.md#planning-a-quantized-model))."""


def _listed(reasons: Sequence[str]) -> str:
    shown = ", ".join(reasons[:SHOWN]).replace("|", "\\|")
    more = len(reasons) - SHOWN
    return (f"{shown}, {more} more" if more > 0 else shown) or "no port: float sums in another order"


def main() -> None:
    """Measure, and print or write the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.qat")
    parser.add_argument("--only", nargs="*", metavar="NAME", default=[])
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    found: dict[str, dict[str, Found]] = {}
    with tempfile.TemporaryDirectory(prefix="qat.") as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for case in cases(Path(folder), options.only):
            found[case.name] = {target: measured(case, target) for target in FORMATS}
            print(case.name, *(told(one.sqnr) for one in found[case.name].values()), flush=True)
    text = page(found)
    if options.write:
        PAGE.write_text(text, encoding="utf-8")
    else:
        print(text)


if __name__ == "__main__":
    main()
