"""What conditioning weights is worth: equalization, migration and second-order rounding on trained models.

Convolutional nets also with channels spread by powers of two, which leaves their function as it is; all other
figures are of the models as they are. Held-out inputs. Usage, from the repository root (the model folder is
needed): `python -m benchmarks.conditioning [--samples 16] [equalize] [migrate] [round]`; it prints the tables
of docs/results/conditioning.md.
"""

import argparse
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

import planner
from benchmarks.needed_ranges import cross_entropy, texts
from benchmarks.samples import evaluation, model_folder, samples
from planner.calibration.statistics import Statistics, range_of
from planner.formats.onnx.sessions import open_session, session_options
from planner.formats.onnx.write import write_graph
from planner.ir.graph import Constant, Graph, Op, Value
from planner.ir.types.qtypes import storage
from planner.ir.types.ranges import uniform_from_range
from planner.target.load import load_target
from planner.weight_conditioning.activations import activations, output_change
from planner.weight_conditioning.equalize import numbers, rescale, touched
from planner.weight_conditioning.layers import as_rows, from_rows
from planner.weight_conditioning.narrow import Slices
from planner.weight_conditioning.operands import numbers_of, with_operands
from planner.weight_conditioning.rounding import given_slices, planned_slices
from planner.weight_conditioning.seams import find_seams, weighted

NETS: Final = ("vww_96_float", "ultraface_slim320_op13", "pretrainedResnet", "squeezenet_real_fp32")
TARGETS: Final = ("onnxruntime-cpu", "litert-int8")
MOST: Final = 4
"""Channels are spread by 2^-4 to 2^4."""
SEED: Final = 1


def net_path(name: str) -> Path:
    """The file of a convolutional net of the model folder."""
    return next(model_folder().glob(f"*/{name}.onnx"))


def spread(model: Graph) -> Graph:
    """The model with channels between its linear ops times powers of two: the same function, bit for bit."""
    rng = np.random.default_rng(SEED)
    seams = tuple(weighted(find_seams(model).seams))
    arrays = numbers(model, seams)
    changed = []
    for seam in seams:
        factors = seam.spread(np.exp2(rng.integers(-MOST, MOST + 1, seam.owner.size)))
        rescale(seam, factors, arrays)
        changed.append((seam, factors))
    return with_operands(model, touched(changed, arrays))


def decibels(model: Graph, stats: Statistics, reference: Graph, target: str, held: list[Any]) -> list[float]:
    """SQNR of each output of the file that a plan gives, against another form of the model."""
    ready = planner.annotate(model, stats=stats)
    data = planner.export(ready, planner.plan(ready, target), "onnx-qdq")
    return [output.sqnr for output in planner.compare(reference, data, held).outputs.values()]


def equalization(count: int) -> Iterator[str]:
    """The table of equalization."""
    yield "| model | target | as given | equalized | with `absorb` | spread | equalized | outputs move by |"
    yield "|---|---|---|---|---|---|---|---|"
    for name in NETS:
        path = net_path(name)
        given, seen, held = (
            planner.load_model(path),
            samples(name, path, count),
            evaluation(name, path, count),
        )
        cases = [("", given), ("equalize", given), ("equalize,absorb", given)]
        cases += [("", wide := spread(given)), ("equalize", wide)]
        done = [_conditioned(model, methods, seen) for methods, model in cases]
        moved = output_change(given, done[1][0], seen)
        for target in TARGETS:
            found = [decibels(model, stats, given, target, held) for model, stats in done]
            told = " | ".join(", ".join(f"{one:.1f}" for one in all_outputs) for all_outputs in found)
            yield f"| {name} | `{target}` | {told} | {moved:.0e} |"


def _conditioned(
    model: Graph, methods: str, seen: list[Any], stats: Statistics | None = None
) -> tuple[Graph, Statistics]:
    stats = stats or planner.calibrate(model, seen)
    if not methods:
        return model, stats
    done = planner.condition(model, methods, stats=stats, samples=seen)
    return done.model, done.stats or stats


def decoder() -> Graph:
    """The trained decoder of the model folder."""
    return planner.load_model(model_folder() / "language" / "stories260k.onnx")


def loss_of(model: Graph, held: list[Any]) -> float:
    """Cross entropy of a float model."""
    return cross_entropy(open_session(write_graph(model), session_options()), held)


def migration() -> Iterator[str]:
    """The table of migration: whole plans, and the operands of the MatMuls alone in 8 bits."""
    model = decoder()
    seen, held = texts(model, "calibration", 32), texts(model, "held_out", 32)
    target = load_target("onnxruntime-cpu")
    yield f"| cross entropy, float {loss_of(model, held):.4f} | ranges | the plan | 46 MatMuls alone |"
    yield "|---|---|---|---|"
    for ranges in ("minmax", "percentile"):
        stats = planner.calibrate(model, seen, method=ranges)
        for methods in ("", "migrate:0.5", "migrate:0.8", "migrate:0.8,round", "equalize,migrate:0.8"):
            changed, own = model, stats
            if methods:
                done = planner.condition(model, methods, target=target, stats=stats, samples=seen)
                changed, own = done.model, done.stats or stats
            ready = planner.annotate(changed, stats=own)
            data = planner.export(ready, planner.plan(ready, target), "onnx-qdq")
            planned = cross_entropy(open_session(data, session_options()), held)
            alone = loss_of(operands_alone(changed, own), held)
            yield f"| {methods or 'as given'} | {ranges} | {planned:.4f} | {alone:.4f} |"


def operands_alone(model: Graph, stats: Statistics) -> Graph:
    """The float model with both operands of every MatMul in 8 bits, its results in float.

    Activations per tensor, unsigned; weights per output column, symmetric, to the nearest.
    """
    values, constants, ops = dict(model.values), dict(model.constants), list[Op]()

    def define(name: str, array: Any, dtype: str) -> str:
        values[name], constants[name] = Value(name, array.shape, dtype), Constant(array)
        return name

    def stored(name: str) -> str:
        done = f"{name}:stored"
        if done in values:
            return done
        if name in constants:
            weight = np.asarray(constants[name].array)
            step = np.abs(weight).max(axis=-2, keepdims=True) / 127
            return define(done, np.asarray(np.rint(weight / step) * step, np.float32), "f32")
        (lo,), (hi,) = range_of(stats.values[name], stats.method)
        kind = uniform_from_range(lo, hi, storage("u8"))
        scale = define(f"{name}:scale", np.asarray(kind.scale, np.float32), "f32")
        zero = define(f"{name}:zero", np.asarray(kind.zero_point, np.uint8), "u8")
        values[f"{name}:u8"] = Value(f"{name}:u8", None, "u8")
        values[done] = Value(done)
        ops.append(Op(f"{name}:quantize", "QuantizeLinear", (name, scale, zero), (f"{name}:u8",)))
        ops.append(Op(f"{name}:dequantize", "DequantizeLinear", (f"{name}:u8", scale, zero), (done,)))
        return done

    for op in model.ops:
        ops.append(replace(op, inputs=tuple(map(stored, op.inputs))) if op.type == "MatMul" else op)
    return replace(model, values=values, constants=constants, ops=tuple(ops))


def nearest(model: Graph, slices: Mapping[str, Slices]) -> Graph:
    """The model with every weight at the nearest point of its grid."""
    arrays = {}
    for op in model.ops:
        own = slices.get(op.name)
        weight = numbers_of(model, op, 1)
        if own is not None and weight is not None:
            rows = as_rows(op, weight).astype(np.float64)
            steps = own.scales[own.of]
            reals = np.clip(np.rint(rows / steps), own.store.qmin, own.store.qmax) * steps
            arrays[op.name, 1] = from_rows(op, reals, weight.shape)
    return with_operands(model, arrays)


def rounding(count: int) -> Iterator[str]:
    """The tables of second-order rounding: weights alone, all else in float."""
    model = decoder()
    seen, held = texts(model, "calibration", 32), texts(model, "held_out", 32)
    passes = _seconds(lambda: [None for _ in activations(model, seen, model.outputs)])
    case, floats = Case(model, seen, held, passes), loss_of(model, held)
    yield f"| decoder, cross entropy, float {floats:.4f} | weights | nearest | second order | passes |"
    yield "|---|---|---|---|---|"
    for grid in ("8", "8x32", "4x32", "3x32", "2x32"):
        bits, _, block = grid.partition("x")
        plain = nearest(model, given_slices(model, int(bits), int(block or 0)))
        yield _rounded_row(f"`round:{grid}`", case, plain, f"round:{grid}")
    plan = planned_slices(
        planner.annotate(model, stats=planner.calibrate(model, seen)), load_target("llm-w4")
    )
    yield _rounded_row("`round`, `llm-w4`", case, nearest(model, plan), "round")
    yield ""
    name = "squeezenet_real_fp32"
    net, path = planner.load_model(net_path(name)), net_path(name)
    few, others = samples(name, path, count), evaluation(name, path, count)
    passes = _seconds(lambda: [None for _ in activations(net, few, net.outputs)])
    yield "| squeezenet, dB of the logits, weights alone | weights | nearest | second order | passes |"
    yield "|---|---|---|---|---|"
    logits = next(op for op in net.ops if op.type == "Softmax").inputs[0]
    net = replace(net, outputs=(*net.outputs, logits))
    for grid in ("8", "4", "3"):
        done: list[Any] = []
        spent = _seconds(lambda grid=grid, done=done: done.append(_rounded(net, f"round:{grid}", few)))  # type: ignore[misc]
        plain = nearest(net, given_slices(net, int(grid), 0))
        found = [_logits(net, model, logits, others) for model in (plain, done[0].model)]
        count_of = len(done[0].changes[0].values)
        yield f"| `round:{grid}` | {count_of} | {found[0]:.1f} | {found[1]:.1f} | {spent / passes:.1f} |"


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """The decoder, its samples, held-out ones, and the seconds of a pass over the samples."""

    model: Graph
    seen: list[Any]
    held: list[Any]
    passes: float


def _rounded_row(told: str, case: Case, plain: Graph, methods: str) -> str:
    done: list[Any] = []
    spent = _seconds(lambda: done.append(_rounded(case.model, methods, case.seen)))
    losses = [loss_of(one, case.held) for one in (plain, done[0].model)]
    count = len(done[0].changes[0].values)
    return f"| {told} | {count} | {losses[0]:.3f} | {losses[1]:.3f} | {spent / case.passes:.1f} |"


def _rounded(model: Graph, methods: str, seen: list[Any]) -> Any:
    return planner.condition(model, methods, target="llm-w4", samples=seen)


def _logits(before: Graph, after: Graph, name: str, held: list[Any]) -> float:
    """SQNR of a value of two float models."""
    power = noise = 0.0
    for (_, old), (_, new) in zip(
        activations(before, held, [name]), activations(after, held, [name]), strict=True
    ):
        power += float((old[name].astype(np.float64) ** 2).sum())
        noise += float(((new[name] - old[name]).astype(np.float64) ** 2).sum())
    return 10 * float(np.log10(power / noise))


def _seconds(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def main() -> None:
    """Print the tables asked for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "parts", nargs="*", metavar="PART", help="equalize, migrate, round; all of them if none"
    )
    parser.add_argument("--samples", type=int, default=16, help="pictures to calibrate with, and held out")
    asked = parser.parse_args()
    tables = {
        "equalize": lambda: equalization(asked.samples),
        "migrate": migration,
        "round": lambda: rounding(asked.samples),
    }
    for name in asked.parts or tables:
        print(f"## {name}")
        for line in tables[name]():
            print(line, flush=True)


if __name__ == "__main__":
    main()
