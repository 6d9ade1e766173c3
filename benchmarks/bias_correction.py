"""Bias correction: accuracy of every model without and with it, on held-out samples.

SQNR of each output in onnxruntime as written, and of what a last Softmax or Sigmoid reads (its own figure
hangs on a few undecided samples). Run as
`python -m benchmarks.bias_correction [--target T] [--samples N] [MODEL ...]`.
"""

import argparse
import tempfile
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Final

import planner
from benchmarks.comparison import AS_WRITTEN, open_session, sqnr
from benchmarks.samples import BenchModel, evaluation, models, samples
from planner.formats.onnx.write import write_graph
from planner.ir.graph import Graph

SQUASHING: Final = frozenset({"Sigmoid", "Softmax"})
PASSING: Final = frozenset({"Flatten", "If", "ReduceMean", "Reshape", "Squeeze", "Unsqueeze"})


def with_logits(graph: Graph) -> Graph:
    """Make what a last Softmax or Sigmoid reads an output, too."""
    writers = {name: op for op in graph.ops for name in op.outputs}
    found: list[str] = []
    for name in graph.outputs:
        op = writers.get(name)
        while op is not None and op.type in PASSING:
            op = writers.get((op.captures or op.inputs)[0])
        if op is not None and op.type in SQUASHING:
            found.append(op.inputs[0])
    return replace(graph, outputs=(*graph.outputs, *found))


def figures(model: BenchModel, target: str, count: int) -> tuple[int, dict[str, float], dict[str, float]]:
    """How many biases were corrected, and dB by output without and with it."""
    graph = planner.load_model(model.path)
    stats = planner.calibrate(graph, samples(model.name, model.path))
    before = planner.annotate(graph, stats=stats)
    after = planner.correct_biases(before, target, stats)
    held_out = evaluation(model.name, model.path, count)
    with tempfile.TemporaryDirectory() as work:
        source, quantized = Path(work) / "float.onnx", Path(work) / "quantized.onnx"
        source.write_bytes(write_graph(with_logits(graph)))
        reference = open_session(source, AS_WRITTEN)
        found = []
        for case in map(with_logits, (before, after)):
            quantized.write_bytes(planner.export(case, planner.plan(case, target), "onnx-qdq"))
            found.append(sqnr(reference, open_session(quantized, AS_WRITTEN), held_out))
    return len(after.constants.keys() - before.constants.keys()), found[0], found[1]


def rows(name: str, corrected: int, before: dict[str, float], after: dict[str, float]) -> Iterable[str]:
    """Markdown, a line per output."""
    for output, old in before.items():
        new = after[output]
        yield f"| {name} | {corrected} | {output} | {old:.2f} | {new:.2f} | {new - old:+.2f} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", default="onnxruntime-cpu")
    parser.add_argument("--samples", type=int, default=32)
    parser.add_argument("only", nargs="*", metavar="MODEL")
    options = parser.parse_args()
    print(f"{options.target}, {options.samples} held-out samples")
    print("| model | biases | output | without dB | with dB | change |\n|---|---:|---|---:|---:|---:|")
    for model in models():
        if not options.only or model.name in options.only:
            for line in rows(model.name, *figures(model, options.target, options.samples)):
                print(line, flush=True)


if __name__ == "__main__":
    main()
