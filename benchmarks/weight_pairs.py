"""Weight pairs: accuracy of `onnxruntime-cpu` files with and without `weight_pairs`, as a Markdown table.

"As written" is the file without onnxruntime's optimisations, which is what every CPU with VNNI gives;
"as used" is the file at its defaults on this machine. Run as
`python -m benchmarks.weight_pairs [--samples N] [MODEL ...]` on a CPU without VNNI.
"""

import argparse
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import planner
from benchmarks.samples import BenchModel, evaluation, models, samples
from tests.exact_products import saturates

NAMES: Final = ("ad01_fp32", "vww_96_float", "mobilenetv2_100", "squeezenet_real_fp32", "bert_l4_h256")
WITHOUT: Final = """
apiVersion: planner/v1
kind: Target
id: without-pairs
version: 1.0.0
extends: onnxruntime-cpu
types:
  i8c: {storage: i8, range: [-127, 127], granularity: axis, symmetric: true, weight_pairs: null}
  i8t: {storage: i8, range: [-127, 127], symmetric: true, weight_pairs: null}
"""


def figures(model: BenchModel, target: str, count: int) -> tuple[float, float]:
    """DB of the worst output, as written and as used, on held-out samples."""
    graph = planner.load_model(model.path)
    calibration, held_out = (of(model.name, model.path, count) for of in (samples, evaluation))
    done = planner.quantize(graph, calibration, target=target, eval_samples=held_out, effort="quick")
    written = planner.compare(graph, done.data, held_out, optimisation="none")
    used = planner.compare(graph, done.data, held_out, optimisation="all")
    return written.worst_sqnr, used.worst_sqnr


def rows(names: list[str], count: int) -> Iterator[str]:
    """The table, line by line."""
    yield "| model | 8 bits as written | as used here | with `weight_pairs`, as written | as used here |"
    yield "|---|---|---|---|---|"
    with tempfile.TemporaryDirectory() as folder:
        plain = Path(folder) / "without-pairs.yaml"
        plain.write_text(WITHOUT, encoding="utf-8")
        for model in models():
            if model.name in names:
                each = (*figures(model, str(plain), count), *figures(model, "onnxruntime-cpu", count))
                yield f"| {model.name} | " + " | ".join(f"{one:.1f} dB" for one in each) + " |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", metavar="MODEL", default=NAMES)
    parser.add_argument("--samples", type=int, default=16)
    options = parser.parse_args()
    if not saturates():
        print("This CPU has VNNI: all columns of a row are alike but for the scales.")
    for line in rows(list(options.models), options.samples):
        print(line, flush=True)


if __name__ == "__main__":
    main()
