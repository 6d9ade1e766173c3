"""The QONNX model zoo: one sample in our runner beside the qonnx executor.

Models are loaded and cleaned before the clock starts, on both sides; times are medians. It needs
`make oracles`. Run as `python -m benchmarks.zoo [--write]`; `--write` puts the table into
docs/results/dialects.md.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import numpy as np

from benchmarks.samples import model_folder
from planner.formats.onnx.read import read_written
from planner.interpreter.models import ModelRunner

ROOT: Final = Path(__file__).resolve().parents[1]
PYTHON: Final = ROOT / ".oracles" / "qonnx" / "bin" / "python"
PAGE: Final = ROOT / "docs" / "results" / "dialects.md"
BEGIN, END = "<!-- zoo -->", "<!-- /zoo -->"
# Cleaning never returns on channels-last models, and the executor does not run the branched one.
AS_THEY_ARE: Final = frozenset({"separable_conv_model_ch_last"})
LEFT_OUT: Final = frozenset({"branched_model_ch_last"})
SECONDS: Final = 2.0
MOST: Final = 50
LEAST: Final = 3
QUANTIZERS: Final = ("BipolarQuant", "FloatQuant", "IntQuant", "MultiThreshold", "Quant", "Trunc")

THEIRS: Final = f"""
import json, sys, time, warnings
import numpy as np, onnxruntime
from qonnx.core.modelwrapper import ModelWrapper
from qonnx.core.onnx_exec import execute_onnx
from qonnx.util.cleanup import cleanup_model
warnings.filterwarnings("ignore")
onnxruntime.set_default_logger_severity(4)
path, cleans = sys.argv[1], sys.argv[2] == "True"
model = ModelWrapper(path)
if cleans:
    for node in model.graph.node:
        if node.op_type in {QUANTIZERS}:
            node.domain = "qonnx.custom_op.general"
    model = cleanup_model(model)
port = model.graph.input[0].name
x = np.ones(model.get_tensor_shape(port), np.float32)
"""
LOOP: Final = f"""
run()
taken, end = [], time.perf_counter() + {SECONDS}
while len(taken) < {LEAST} or (time.perf_counter() < end and len(taken) < {MOST}):
    begin = time.perf_counter()
    run()
    taken.append(time.perf_counter() - begin)
print(json.dumps(taken))
"""


def theirs(path: Path) -> float:
    """Return the median seconds of one sample in the qonnx executor."""
    code = f"{THEIRS}\ndef run(): execute_onnx(model, {{port: x}})\n{LOOP}"
    command = [str(PYTHON), "-c", code, str(path), str(path.stem not in AS_THEY_ARE)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return statistics.median(json.loads(done.stdout.strip().splitlines()[-1]))


def ours(path: Path) -> float:
    """Return the median seconds of one sample in our runner."""
    graph = read_written(path)
    (port,) = graph.inputs
    runner = ModelRunner(graph)
    sample = {port: np.ones([int(dim) for dim in graph.values[port].shape or ()], np.float32)}
    return _median(lambda: runner.run(sample))


def _median(job: Callable[[], object]) -> float:
    job()
    taken: list[float] = []
    end = time.perf_counter() + SECONDS
    while len(taken) < LEAST or (time.perf_counter() < end and len(taken) < MOST):
        begin = time.perf_counter()
        job()
        taken.append(time.perf_counter() - begin)
    return statistics.median(taken)


def table() -> str:
    """Return the Markdown table, slowest ratio first, and the median."""
    found = []
    for path in sorted((model_folder() / "qonnx").glob("*.onnx")):
        if path.stem not in LEFT_OUT:
            print(path.stem, file=sys.stderr, flush=True)
            found.append((path.stem, theirs(path), ours(path)))
    found.sort(key=lambda item: item[1] / item[2])
    rows = [
        f"| {name} | {1e3 * slow:.2f} | {1e3 * fast:.3f} | {slow / fast:.0f} |" for name, slow, fast in found
    ]
    median = statistics.median(slow / fast for _, slow, fast in found)
    head = "| model | qonnx executor, ms | `planner.run`, ms | times faster |\n|---|---|---|---|"
    return "\n".join(["", head, *rows, f"| median | | | {median:.0f} |", ""])


def main() -> None:
    """Print the table, and put it into the page if asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help=f"into {PAGE.name}")
    write = parser.parse_args().write
    text = table()
    print(text)
    if write:
        before, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
        after = rest.split(END)[1]
        PAGE.write_text(f"{before}{BEGIN}{text}{END}{after}", encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
