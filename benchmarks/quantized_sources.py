"""A fuzzer of quantized sources: random QDQ, QCDQ and QONNX models, planned for every target.

A file has quantizers between ops of all kinds: hard cuts, two in a row, shared and per-axis weights, odd zero
points, 4 to 16 bits, dead ops. The file that a plan is written as has to give the numbers of the source as
written, to a step where ties fall differently, or the plan warns. Of each target every model is planned,
checked, written as `onnx-qdq` and run by onnxruntime without optimisations; the LiteRT and TOSA targets are
written in their own formats, too, unless these refuse.
Usage, from the repository root: `python -m benchmarks.quantized_sources [--minutes 30] [--seed 0]`, or with
seeds as arguments, to run those again; `make soak` runs it longer.
"""

import argparse
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import planner
from planner.constants.quantize import array_dtype, dequantize_array, quantize_array
from planner.errors import Conflict, PlannerError, UnsupportedExport
from planner.ir.graph import Graph
from planner.ir.types.qtypes import Uniform
from planner.plans.plan import Plan
from planner.target.load import target_ids
from planner.target_tests.engines.environment import run_litert, run_tosa

SAMPLES: Final = 3
EXACT: Final = 100.0
"""dB from which on two files give the same numbers."""
ROUNDED: Final = 0.02
"""Share of elements that may be a step off: ties, and engines that add up in another order."""
ALIKE: Final = 1e3
"""Power of the signal, against the noise of an engine beside the interpreter: single steps are allowed."""
OPSET: Final = 21
QONNX: Final = "qonnx.custom_op.general"
STORAGES: Final = {
    "i4": (TensorProto.INT4, 4, True),
    "u4": (TensorProto.UINT4, 4, False),
    "i8": (TensorProto.INT8, 8, True),
    "u8": (TensorProto.UINT8, 8, False),
    "i16": (TensorProto.INT16, 16, True),
    "u16": (TensorProto.UINT16, 16, False),
}
USUAL: Final = ("i8", "i8", "i8", "u8", "u8", "u8", "i16", "u16", "i4", "u4")

ACTIVATIONS: Final = ("Relu", "Relu", "Clip", "Clip6", "LeakyRelu", "HardSwish", "Sigmoid", "Tanh", "MaxPool")
PRODUCTS: Final = (
    "Conv",
    "Conv",
    "ConvBN",
    "ConvTranspose",
    "Add",
    "Mul",
    "Sub",
    "MatMul",
    "Gemm",
    "AddMatMul",
)
DIALECTS: Final = ("qdq", "qdq", "qcdq", "qonnx")


ORACLES: Final = Path(__file__).resolve().parents[1] / ".oracles"
NATIVE: Final = {
    "litert-int8": ("litert", ORACLES / "litert" / "bin" / "python"),
    "tosa-int8": ("tosa", ORACLES / "tosa" / "bin" / "python"),
}
"""Targets with formats of their own, and where engines of these are (`make oracles`)."""


@dataclass(slots=True)
class Net:
    """A model being written."""

    chance: Random
    dialect: str
    storage: str = "i8"
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: list[onnx.TensorProto] = field(default_factory=list)
    weights: dict[tuple[int, ...], str] = field(default_factory=dict)
    count: int = 0

    def name(self, stem: str) -> str:
        """A new name."""
        self.count += 1
        return f"{stem}{self.count}"

    def op(self, kind: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        """Add an op of one result."""
        out = self.name("t")
        self.nodes.append(
            helper.make_node(kind, inputs, [out], name=f"{kind}_{self.count}", domain=domain, **attributes)
        )
        return out

    def constant(self, array: Any, kind: int | None = None) -> str:
        """Add a constant."""
        name = self.name("c")
        array = np.asarray(array)
        if kind is None:
            self.constants.append(numpy_helper.from_array(array, name))
        else:
            self.constants.append(helper.make_tensor(name, kind, array.shape, array.reshape(-1).tolist()))
        return name

    def floats(self, *shape: int, scale: float = 1.0) -> np.ndarray:
        """Random numbers."""
        generator = np.random.default_rng(self.chance.randrange(1 << 30))
        return (generator.normal(size=shape) * scale).astype(np.float32)


def quantized(net: Net, x: str, scale: float, storage: str, zero: int, *, cut: bool = False) -> str:
    """A value behind a quantizer, in the model's dialect."""
    element, bits, signed = STORAGES[storage]
    if net.dialect == "qonnx":
        narrow = int(cut and signed)
        operands = [net.constant(np.float32(number)) for number in (scale, zero, bits)]
        return net.op(
            "Quant", x, *operands, domain=QONNX, signed=int(signed), narrow=narrow, rounding_mode="ROUND"
        )
    s, z = net.constant(np.float32(scale)), net.constant(np.asarray(zero), element)
    q = net.op("QuantizeLinear", x, s, z)
    if net.dialect == "qcdq" and bits == 8 and cut:
        low, high = (-127, 127) if signed else (0, 127)
        q = net.op("Clip", q, net.constant(np.asarray(low), element), net.constant(np.asarray(high), element))
    return net.op("DequantizeLinear", q, s, z)


def activation(net: Net, x: str, *, reach: float = 3.0) -> str:
    """A value behind a random quantizer that holds about `reach`, or cuts hard."""
    chance = net.chance
    storage = net.storage if chance.random() < 0.7 else chance.choice(USUAL)
    _, bits, signed = STORAGES[storage]
    hard = chance.random() < 0.25
    extent = reach * chance.choice((0.1, 0.3)) if hard else reach * chance.uniform(0.7, 2.0)
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    scale = float(np.float32(2 * extent / (high - low)))
    if chance.random() < 0.7:
        zero = 0 if signed else chance.choice((0, 1 << bits - 1))
    else:
        zero = chance.randint(low, high)
    return quantized(net, x, scale, storage, zero, cut=chance.random() < 0.3)


def weight(net: Net, *shape: int, axis: int = 0, per_axis: bool = False) -> str:
    """A quantized weight, a new one or one that another op has."""
    chance, key = net.chance, (*shape, axis)
    if key in net.weights and chance.random() < 0.3:
        return net.weights[key]
    element, bits, _ = STORAGES[chance.choice(("i8", "i8", "i8", "i4"))]
    high = (1 << bits - 1) - 1
    numbers = np.clip(np.rint(net.floats(*shape, scale=high / 2.5)), -high, high).astype(np.int64)
    if net.dialect == "qonnx":
        scales = np.float32(0.5 / high)
        found = net.constant((numbers * scales).astype(np.float32))
        operands = [net.constant(np.float32(number)) for number in (scales, 0, bits)]
        found = net.op("Quant", found, *operands, domain=QONNX, signed=1, narrow=1, rounding_mode="ROUND")
    else:
        count = shape[axis]
        many = [np.float32(chance.uniform(0.2, 0.6) / high) for _ in range(count)]
        s = net.constant(np.asarray(many if per_axis else many[0], np.float32))
        z = net.constant(np.zeros(count if per_axis else (), np.int64), element)
        attributes = {"axis": axis} if per_axis else {}
        found = net.op("DequantizeLinear", net.constant(numbers, element), s, z, **attributes)
    net.weights[key] = found
    return found


def product(net: Net, kind: str, x: str, other: str) -> str:
    """An op that computes, on a tensor of (1, 4, 6, 6)."""
    chance = net.chance
    per_axis = chance.random() < 0.4
    bias = [net.constant(net.floats(4, scale=0.2))] if chance.random() < 0.2 else []
    match kind:
        case "Conv":
            return net.op("Conv", x, weight(net, 4, 4, 3, 3, per_axis=per_axis), *bias, pads=[1, 1, 1, 1])
        case "ConvBN":
            made = net.op("Conv", x, weight(net, 4, 4, 3, 3, per_axis=per_axis), pads=[1, 1, 1, 1])
            made = activation(net, made) if chance.random() < 0.6 else made
            numbers = (1 + net.floats(4, scale=0.1), net.floats(4, scale=0.1), net.floats(4, scale=0.1))
            operands = [net.constant(array) for array in (*numbers, np.full(4, 0.9, np.float32))]
            return net.op("BatchNormalization", made, *operands)
        case "ConvTranspose":
            return net.op("ConvTranspose", x, weight(net, 4, 4, 3, 3, axis=1), *bias, pads=[1, 1, 1, 1])
        case "Add" | "Mul" | "Sub":
            return net.op(kind, x, other)
        case "MatMul":
            return net.op("MatMul", x, weight(net, 6, 6, axis=1, per_axis=per_axis))
        case "AddMatMul":
            made = net.op("MatMul", x, weight(net, 6, 6, axis=1, per_axis=per_axis))
            made = activation(net, made) if chance.random() < 0.5 else made
            return net.op("Add", made, quantized(net, net.constant(net.floats(6, scale=0.2)), 0.01, "i8", 0))
        case _:
            flat = net.op("Reshape", x, net.constant(np.asarray([24, 6], np.int64)))
            bias = [net.constant(net.floats(6, scale=0.2))] if bias else []
            made = net.op("Gemm", flat, weight(net, 6, 6, axis=1), *bias)
            made = activation(net, made) if chance.random() < 0.5 else made
            return net.op("Reshape", made, net.constant(np.asarray([1, 4, 6, 6], np.int64)))


def activated(net: Net, kind: str, x: str) -> str:
    """An activation."""
    match kind:
        case "Clip":
            bounds = sorted(net.chance.uniform(-1.5, 2.5) for _ in range(2))
            return net.op("Clip", x, *(net.constant(np.float32(bound)) for bound in bounds))
        case "Clip6":
            return net.op("Clip", x, net.constant(np.float32(0)), net.constant(np.float32(6)))
        case "MaxPool":
            return net.op("MaxPool", x, kernel_shape=[3, 3], pads=[1, 1, 1, 1])
        case "LeakyRelu":
            return net.op("LeakyRelu", x, alpha=0.1)
        case _:
            return net.op(kind, x)


def bury(net: Net, values: Sequence[str]) -> None:
    """Add ops whose results nothing uses: at inner values, weights too, a chain or a quantizer."""
    found = net.chance.choice(values)
    for _ in range(net.chance.randint(1, 2)):
        found = net.op(net.chance.choice(("Relu", "Neg", "Sigmoid")), found)
    if net.chance.random() < 0.4:
        activation(net, found)


def model_of(seed: int, *, dead: bool = True) -> onnx.ModelProto:
    """The model of a seed, with or without its dead ops."""
    chance = Random(seed)  # noqa: S311 - no secret
    net = Net(chance, chance.choice(DIALECTS), chance.choice(USUAL))
    x = activation(net, "x")
    # In most models everything that computes has a quantizer behind it, as training leaves them.
    complete = chance.random() < 0.7
    values, made = [x], x
    for _ in range(chance.randint(1, 3)):
        made = product(net, chance.choice(PRODUCTS), made, chance.choice(values))
        for _ in range(chance.choice((1, 1, 1, 2) if complete else (0, 0, 1, 2))):
            made = activation(net, made)
        kind = chance.choice(ACTIVATIONS) if chance.random() < 0.8 else ""
        made = activated(net, kind, made) if kind else made
        is_moved = kind in ("", "Relu", "Clip", "Clip6", "MaxPool")
        if chance.random() < 0.5 or (complete and not is_moved):
            made = activation(net, made)
        values.append(made)
    outputs = [made]
    live = len(net.nodes)
    if chance.random() < 0.5:
        read = [*values, *(name for node in net.nodes for name in node.output)]
        bury(net, [name for name in read if name not in _stored(net)])
    nodes = net.nodes if dead else net.nodes[:live]
    out = helper.make_node("Identity", outputs, ["y"], name="out")
    shape = [1, 4, 6, 6]
    graph = helper.make_graph(
        [*nodes, out],
        f"source{seed}",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
        net.constants,
    )
    opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(QONNX, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def _stored(net: Net) -> set[str]:
    """Values that are integers."""
    kinds = ("QuantizeLinear",)
    integers = {name for node in net.nodes if node.op_type in kinds for name in node.output}
    clips = [node for node in net.nodes if node.op_type == "Clip" and node.input[0] in integers]
    return integers | {name for node in clips for name in node.output}


def samples_of(seed: int) -> list[dict[str, np.ndarray]]:
    """Inputs for the model of a seed."""
    generator = np.random.default_rng(seed)
    return [{"x": (generator.normal(size=(1, 4, 6, 6)) * 1.5).astype(np.float32)} for _ in range(SAMPLES)]


@dataclass(frozen=True, slots=True)
class Finding:
    """A model and a target that do not do as they should."""

    seed: int
    target: str
    what: str

    def __str__(self) -> str:
        return f"seed {self.seed} on {self.target}: {self.what}"


@dataclass(slots=True)
class Counts:
    """What was run."""

    models: int = 0
    plans: int = 0
    runs: Counter[str] = field(default_factory=Counter)
    ends: Counter[str] = field(default_factory=Counter)


def findings(seed: int, targets: Sequence[str], counts: Counts) -> Iterator[Finding]:
    """What is wrong with the model of a seed on some targets."""
    source = model_of(seed)
    data = source.SerializeToString()
    try:
        model = planner.load_model(data)
        samples = samples_of(seed)
        stats = planner.calibrate(model, samples)
    except PlannerError as error:
        yield Finding(seed, "-", f"cannot be read: {error}")
        return
    counts.models += 1
    for target in targets:
        try:
            ready = planner.annotate(model, stats=stats, target=planner.load_target(target))
            yield from _on(seed, target, (model, ready, samples), counts)
        except Exception as error:  # noqa: BLE001 - a crash is a finding
            yield Finding(seed, target, f"{type(error).__name__}: {error}")


def _on(seed: int, target: str, given: tuple[Graph, Graph, Any], counts: Counts) -> Iterator[Finding]:
    model, ready, samples = given
    try:
        plan = planner.plan(ready, target)
    except Conflict:
        counts.ends["conflict"] += 1
        return
    planner.check(plan, ready, target)
    counts.plans += 1
    try:
        data = planner.export(ready, plan, "onnx-qdq")
    except UnsupportedExport as error:
        counts.ends[f"no onnx-qdq ({target})"] += 1
        if not str(error):
            yield Finding(seed, target, "a refusal without a reason")
        return
    found = planner.compare(model, data, samples)
    counts.runs["onnxruntime"] += 1
    yield from _natively(seed, (target, plan), (ready, samples), counts)
    if found.worst_sqnr >= EXACT:
        counts.ends["exact"] += 1
    elif plan.warnings:
        counts.ends["warned"] += 1
    elif planner.compare(_with_rounded_biases(model_of(seed), plan), data, samples).worst_sqnr >= EXACT:
        counts.ends["biases rounded"] += 1
    elif _is_rounded(plan, model_of(seed).SerializeToString(), data, samples):
        counts.ends["a step"] += 1
    else:
        counts.ends["differs"] += 1
        yield Finding(seed, target, f"{found.worst_sqnr:.1f} dB and no warning")


def _with_rounded_biases(source: onnx.ModelProto, plan: Plan) -> Graph:
    """The source with biases as the device stores them, in 32 bits on the grid of the products: no fault.

    A result beside a tie may take the other step for it, and what follows may make much of that.
    """
    kinds = {port.value: port.type for kernel in plan.kernels_in_order for port in kernel.inputs}
    stored = {
        name: kind
        for name, kind in kinds.items()
        if name in plan.graph.constants and isinstance(kind, Uniform) and kind.storage.bits == 32
    }
    given, computed = list(source.graph.node), {name for node in source.graph.node for name in node.output}
    del source.graph.node[:]
    for name in stored.keys() - computed:
        source.graph.node.extend(_rounding(name, stored[name], plan, source))
    for node in given:
        node.input[:] = [f"{read}/rounded" if read in stored else read for read in node.input]
        source.graph.node.append(node)
        for name in stored.keys() & set(node.output):
            source.graph.node.extend(_rounding(name, stored[name], plan, source))
    return planner.load_model(source.SerializeToString())


def _rounding(name: str, kind: Uniform, plan: Plan, source: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    """Nodes that round a bias to its grid, in double precision."""
    scale = np.asarray(kind.scales)
    rank = len(plan.graph.values[name].shape or ())
    sliced = scale.reshape([len(scale) if axis == kind.axis else 1 for axis in range(rank)])
    source.graph.initializer.append(numpy_helper.from_array(sliced, f"{name}/scale"))
    yield helper.make_node("Cast", [name], [f"{name}/wide"], to=TensorProto.DOUBLE)
    yield helper.make_node("Div", [f"{name}/wide", f"{name}/scale"], [f"{name}/steps"])
    yield helper.make_node("Round", [f"{name}/steps"], [f"{name}/whole"])
    yield helper.make_node("Mul", [f"{name}/whole", f"{name}/scale"], [f"{name}/real"])
    yield helper.make_node("Cast", [f"{name}/real"], [f"{name}/rounded"], to=TensorProto.FLOAT)


def _is_rounded(plan: Plan, source: bytes, data: bytes, samples: Sequence[Mapping[str, np.ndarray]]) -> bool:
    """Whether a file is the source but for single steps here and there: a bias in float is stored rounded.

    Steps are those of the result, or the widest before it where that is no stored value.
    """
    kinds = [plan.values["y"].type, *(fact for value in plan.graph.values.values() for fact in value.facts)]
    stored = [max(kind.scales) for kind in kinds if isinstance(kind, Uniform)]
    step = stored[0] if isinstance(kinds[0], Uniform) else max(stored, default=0.0)
    pairs = [(planner.run(source, sample)["y"], planner.run(data, sample)["y"]) for sample in samples]
    errors = np.concatenate([np.abs(wanted - got).ravel() for wanted, got in pairs])
    return bool(errors.max() <= 1.001 * step and np.mean(errors > 0) <= ROUNDED)


def _natively(
    seed: int, planned: tuple[str, Plan], given: tuple[Graph, Any], counts: Counts
) -> Iterator[Finding]:
    """Run the target's own format in its engine, where both are here, against the reference interpreter."""
    (target, plan), (ready, samples) = planned, given
    kind, python = NATIVE.get(target, ("", Path()))
    if not kind or not python.exists():
        return
    try:
        data = planner.export(ready, plan, kind)
    except UnsupportedExport:
        counts.ends[f"no {kind}"] += 1
        return
    wanted = [planner.evaluate(ready, plan, sample).outputs["y"] for sample in samples]
    with tempfile.TemporaryDirectory() as folder:
        if kind == "litert":
            for kernels in ("reference", "optimized"):
                place = Path(folder) / kernels
                place.mkdir()
                [answer] = run_litert(str(python), place, [(data, samples)], kernels=kernels)
                if not (
                    isinstance(answer, str) and "Didn't find op" in answer
                ):  # the reference set lacks some
                    break
            got = answer if isinstance(answer, str) else [next(iter(one.values())) for one in answer]
        else:
            [answer] = run_tosa(str(python), Path(folder), [(data, [[_fed(plan, one)] for one in samples])])
            got = answer if isinstance(answer, str) else [_real(plan, one[0]) for one in answer]
    counts.runs[kind] += 1
    if isinstance(got, str):
        yield Finding(seed, target, f"{kind} is refused: {got.splitlines()[-1] if got else ''}")
        return
    signal = sum(float(np.sum(np.square(array, dtype=np.float64))) for array in wanted)
    noise = sum(float(np.sum(np.square(a - b, dtype=np.float64))) for a, b in zip(wanted, got, strict=True))
    if noise > signal / ALIKE:
        yield Finding(seed, target, f"{kind} has {10 * np.log10(signal / noise):.1f} dB against `evaluate`")


def _fed(plan: Plan, sample: Mapping[str, np.ndarray]) -> np.ndarray:
    """What a TOSA program is given: stored numbers where all that read the input want one type."""
    kinds = {port.type for kernel in plan.kernels_in_order for port in kernel.inputs if port.value == "x"}
    kind = next(iter(kinds)) if len(kinds) == 1 else None
    return quantize_array(sample["x"], kind) if isinstance(kind, Uniform) else sample["x"]


def _real(plan: Plan, array: np.ndarray) -> np.ndarray:
    """What a TOSA program gives, in reals."""
    kind = next(port.type for kernel in plan.kernels_in_order for port in kernel.outputs if port.value == "y")
    if array.dtype.kind == "f" or not isinstance(kind, Uniform):
        return array
    return dequantize_array(array.view(array_dtype(kind.storage)), kind)


def campaign(seeds: Iterator[int], targets: Sequence[str], until: float) -> tuple[Counts, list[Finding]]:
    """Run seeds until a time; print findings as they come."""
    counts, found = Counts(), list[Finding]()
    for seed in seeds:
        if time.monotonic() > until:
            break
        for one in findings(seed, targets, counts):
            found.append(one)
            print(one, flush=True)
    return counts, found


def counting(start: int) -> Iterator[int]:
    """Seeds from one on, without end."""
    while True:
        yield start
        start += 1


def main() -> None:
    """Run for some minutes, or the seeds given; print counts and findings."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seeds", nargs="*", type=int)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--targets", nargs="*", default=None)
    options = parser.parse_args()
    seeds = iter(options.seeds) if options.seeds else counting(options.seed * 1_000_000)
    until = float("inf") if options.seeds else time.monotonic() + 60 * options.minutes
    counts, found = campaign(seeds, options.targets or targets_shipped(), until)
    print(
        f"{counts.models} models, {counts.plans} plans; runs: {_listed(counts.runs)}; {_listed(counts.ends)}"
    )
    print(f"{len(found)} findings")
    sys.exit(bool(found))


def _listed(counted: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {number}" for name, number in sorted(counted.items())) or "none"


def targets_shipped() -> tuple[str, ...]:
    """The targets that come with the planner."""
    return target_ids()


if __name__ == "__main__":
    main()
