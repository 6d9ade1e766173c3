"""Multiply-adds that onnxruntime ran in integers, by its own profile of a run at its defaults.

What the file says and what the engine does are not the same: pairs of quantizers that no kernel takes in
leave the float kernel where it was. Knows no side.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any, Final

import onnxruntime

from benchmarks.shipped.data import Sample

Dims = Sequence[int]
INTEGER: Final = frozenset(
    {
        *("ConvInteger", "DynamicQuantizeLSTM", "DynamicQuantizeMatMul", "MatMulInteger"),
        *("MatMulIntegerToFloat", "QAttention", "QGemm", "QLinearConv", "QLinearMatMul"),
    }
)


def _conv(inputs: Sequence[Dims], output: Dims, at: int = 1) -> int:
    return prod(output) * prod(inputs[at][1:])


def _qlinear_conv(inputs: Sequence[Dims], output: Dims) -> int:
    return _conv(inputs, output, 3)


def _transposed(inputs: Sequence[Dims], _output: Dims) -> int:
    return prod(inputs[0]) * prod(inputs[1][1:])


def _matmul(inputs: Sequence[Dims], output: Dims) -> int:
    return prod(output) * inputs[0][-1]


def _gemm(inputs: Sequence[Dims], output: Dims) -> int:
    return prod(inputs[0]) * output[-1]


def _attention(inputs: Sequence[Dims], output: Dims) -> int:
    """The layer of query, key and value, then scores and their sums."""
    batch, length, _ = inputs[0]
    return prod(inputs[0]) * inputs[1][-1] + 2 * batch * length * length * output[-1]


def _heads(inputs: Sequence[Dims], output: Dims) -> int:
    return 2 * prod(output) * inputs[1][1]


def _recurrent(inputs: Sequence[Dims], _output: Dims) -> int:
    return inputs[0][0] * inputs[0][1] * (prod(inputs[1]) + prod(inputs[2]))


WORK: Final[Mapping[str, Callable[[Sequence[Dims], Dims], int]]] = {
    "Attention": _attention,
    "Conv": _conv,
    "ConvInteger": _conv,
    "ConvTranspose": _transposed,
    "DynamicQuantizeLSTM": _recurrent,
    "DynamicQuantizeMatMul": _matmul,
    "FusedConv": _conv,
    "FusedGemm": _gemm,
    "FusedMatMul": _matmul,
    "GRU": _recurrent,
    "Gemm": _gemm,
    "LSTM": _recurrent,
    "MatMul": _matmul,
    "MatMulInteger": _matmul,
    "MatMulIntegerToFloat": _matmul,
    "MultiHeadAttention": _heads,
    "NhwcFusedConv": _conv,
    "QAttention": _attention,
    "QGemm": _gemm,
    "QLinearConv": _qlinear_conv,
    "QLinearMatMul": _matmul,
}
"""Multiply-adds of an operator by the shapes of its inputs and of its first output."""


def multiply_adds(events: Sequence[Mapping[str, Any]]) -> tuple[int, int]:
    """Return the multiply-adds of a profile in integers, and all of them."""
    in_integers, every = 0, 0
    for event in events:
        if not event["name"].endswith("kernel_time"):
            continue
        about = event["args"]
        work = WORK.get(about["op_name"])
        if work is None:
            continue
        inputs, outputs = (
            [dims for one in about[key] for dims in one.values()]
            for key in ("input_type_shape", "output_type_shape")
        )
        count = work(inputs, outputs[0])
        every += count
        in_integers += count if about["op_name"] in INTEGER else 0
    return in_integers, every


def profile(file: Path, sample: Sample, work: Path) -> tuple[int, int]:
    """Return the multiply-adds of one run of a file, in integers and all."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.enable_profiling = True
    options.profile_file_prefix = str(work / "profile")
    # A weight that was packed is no input any more, and its shape is what is asked for.
    options.add_session_config_entry("session.disable_prepacking", "1")
    session = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    session.run(None, dict(sample))
    written = Path(session.end_profiling())
    events = json.loads(written.read_text(encoding="utf-8"))
    written.unlink()
    return multiply_adds([event for event in events if event.get("cat") == "Node"])
