"""Weights of few bits: the whole range of each slice against the range of least square error.

Weights of Conv, Gemm and MatMul are rounded on symmetric scales, one for each output channel (of the decoder
also one for each block of 32), all else is float. The figure is the SQNR of the worst output, a last softmax
judged by what it reads; of the decoder the cross entropy of its tokens. The least error is of 61 ranges of 40
to 100 per cent.
Usage, from the repository root: `python -m benchmarks.weight_ranges [--samples 8] [MODEL ...]`.
"""

import argparse
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import numpy as np

import planner
from benchmarks.bias_correction import with_logits
from benchmarks.calibration_methods import DECODER, TRAINED, by_outputs, by_tokens, feeds_of, judged
from benchmarks.needed_ranges import texts
from benchmarks.samples import model_folder
from planner.formats.onnx.write import write_graph
from planner.ir.expand import expand
from planner.ir.graph import Constant, Graph

BITS: Final = (4, 3, 2)
BLOCK: Final = 32
PARTS: Final = np.arange(40, 101) / 100


def rounded(slices: np.ndarray, steps: int, parts: np.ndarray) -> np.ndarray:
    """Each slice (n_slices, n) at the part of its range, out of some, where the square error is least."""
    wide = slices.astype(np.float64)
    whole = np.abs(wide).max(axis=1, keepdims=True)
    whole[whole == 0.0] = 1.0
    best, least = wide, np.full(len(wide), np.inf)
    for part in parts:
        scale = (whole * part / steps).astype(np.float32).astype(np.float64)
        stored = np.clip(np.rint(wide / scale), -steps, steps) * scale
        error = ((stored - wide) ** 2).sum(axis=1)
        best = np.where((error < least)[:, None], stored, best)
        least = np.minimum(least, error)
    return best.astype(slices.dtype)


def weights(graph: Graph) -> Iterator[tuple[str, int]]:
    """The weights of linear ops, each with the axis of its output channels."""
    for op in graph.all_ops():
        name = op.inputs[1] if op.type in ("Conv", "Gemm", "MatMul") else ""
        constant = graph.constants.get(name)
        if constant is not None and constant.array is not None and constant.array.ndim > 1:
            first = op.type == "Conv" or bool(op.attributes.get("transB", 0))
            yield name, 0 if first else constant.array.ndim - 1


def with_rounded(graph: Graph, bits: int, parts: np.ndarray, block: int) -> Graph:
    """The model with weights of so many bits; `block` 0 is one scale a channel."""
    constants = dict(graph.constants)
    for name, axis in weights(graph):
        moved = np.moveaxis(constants[name].array, axis, 0)
        width = block or moved[0].size
        if moved[0].size % width == 0:
            slices = rounded(moved.reshape(-1, width), (1 << bits - 1) - 1, parts)
            constants[name] = Constant(np.moveaxis(slices.reshape(moved.shape), 0, axis))
    return replace(graph, constants=constants)


def rows(name: str, count: int) -> Iterator[str]:
    """The lines of one model."""
    plain = planner.load_model(model_folder() / f"{name}.onnx")
    is_decoder = name == DECODER
    graph = expand(plain if is_decoder else with_logits(plain))
    if is_decoder:
        judge = by_tokens(texts(plain, "held_out", count))
    else:
        judge = by_outputs(feeds_of(name, count, held_out=True), judged(plain))
    for block in (0, BLOCK) if is_decoder else (0,):
        cells = [
            judge(graph, write_graph(with_rounded(graph, bits, parts, block)))
            for bits in BITS
            for parts in (PARTS[-1:], PARTS)
        ]
        label = name.rpartition("/")[2] + (f", blocks of {block}" if block else "")
        yield f"| {label} | {' | '.join(f'{cell:.3f}' if is_decoder else f'{cell:.2f}' for cell in cells)} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("models", nargs="*", default=[*TRAINED, DECODER])
    parser.add_argument("--samples", type=int, default=8)
    asked = parser.parse_args()
    print(f"| model | {' | '.join(f'{bits} bits, whole | {bits} bits, least error' for bits in BITS)} |")
    print(f"|---|{'---:|' * 2 * len(BITS)}")
    for name in asked.models:
        for line in rows(name, asked.samples):
            print(line, flush=True)


if __name__ == "__main__":
    main()
