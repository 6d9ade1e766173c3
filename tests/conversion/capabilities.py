"""Capabilities of each dialect, found by converting small models and running both.

The columns are those of the QONNX paper's table I. A tick means: every probe of the column converts,
keeps its numbers, and has the form of the column. Source: QONNX paper, section "comparison of formats".
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from planner.conversion.convert import convert
from planner.errors import UnsupportedExport
from planner.formats.onnx.quantized.dialect import QONNX
from planner.formats.onnx.quantized.formulas import ROUNDINGS
from planner.formats.onnx.read import read_written
from planner.formats.onnx.write import Node, write_model
from planner.interpreter.models import run_model

DIALECTS: Final = ("qonnx", "onnx-qcdq", "onnx-qdq", "onnx")
_SHAPE: Final = (2, 4)


@dataclass(frozen=True, slots=True)
class Probe:
    """A small QONNX model: the demands of its Quants, and those of its two operands that have one."""

    bits: float = 8
    rounding: str = "ROUND"
    signed: bool = True
    scale_per_channel: bool = False
    zero_point: float = 0.0
    activation: bool = True
    weight: bool = False


def can_say(dialect: str, capability: str) -> bool:
    """Whether a dialect says all that a capability asks for, with equal numbers."""
    return all(_holds(dialect, probe) for probe in CAPABILITIES[capability])


def capability_table() -> str:
    """The matrix in Markdown."""
    head = f"| | {' | '.join(CAPABILITIES)} |"
    rule = "|---" * (len(CAPABILITIES) + 1) + "|"
    rows = [
        f"| `{dialect}` | {' | '.join('yes' if can_say(dialect, name) else '' for name in CAPABILITIES)} |"
        for dialect in DIALECTS
    ]
    return "\n".join([head, rule, *rows])


def probe_file(probe: Probe) -> bytes:
    """The QONNX file of a probe: y = MatMul(x, w), either of them behind a Quant."""
    constants: dict[str, np.ndarray] = {"w": np.linspace(-3, 3, 12, dtype=np.float32).reshape(4, 3)}
    nodes: list[Node] = []
    names = {"x": "x", "w": "w"}
    for name in [name for name, wanted in (("x", probe.activation), ("w", probe.weight)) if wanted]:
        channels = _SHAPE[1] if name == "x" else 3
        scale = np.linspace(0.1, 0.4, channels) if probe.scale_per_channel else np.asarray(0.25)
        parameters = {
            f"{name}_scale": scale.astype(np.float32),
            f"{name}_zero_point": np.asarray(probe.zero_point, np.float32),
            f"{name}_bits": np.asarray(probe.bits, np.float32),
        }
        constants |= parameters
        names[name] = f"{name}_quantized"
        attributes = {"signed": int(probe.signed), "narrow": 0, "rounding_mode": probe.rounding}
        nodes.append(Node("Quant", (name, *parameters), (names[name],), name, QONNX, attributes))
    nodes.append(Node("MatMul", (names["x"], names["w"]), ("y",), "product"))
    return write_model(
        name="probe",
        nodes=nodes,
        inputs=[("x", "f32", _SHAPE)],
        outputs=[("y", "f32", (_SHAPE[0], 3))],
        constants=constants,
    )


def _holds(dialect: str, probe: Probe) -> bool:
    source = probe_file(probe)
    try:
        done = convert(source, dialect)
    except UnsupportedExport:
        return False
    if dialect == "onnx" and probe.weight and not probe.activation:
        # Folded weights are float numbers: nothing says that they are quantized.
        return False
    sample = {"x": np.linspace(-2.1, 2.2, 8, dtype=np.float32).reshape(_SHAPE)}
    same = np.array_equal(run_model(done, sample)["y"], run_model(source, sample)["y"])
    return bool(same) and _keeps_the_product(done)


def _keeps_the_product(data: bytes) -> bool:
    """Whether the layer is still the plain op, float at its result, not one for quantized operands."""
    graph = read_written(data)
    return any(op.type == "MatMul" and op.outputs == ("y",) for op in graph.ops)


CAPABILITIES: Final[Mapping[str, Sequence[Probe]]] = {
    "arbitrary precision": (Probe(bits=12), Probe(bits=7.5), Probe(bits=3)),
    "below 8 bits": (Probe(bits=4), Probe(bits=2), Probe(bits=3), Probe(bits=4, signed=False)),
    "rounding down and up": (Probe(rounding="FLOOR"), Probe(rounding="CEIL")),
    "every rounding": tuple(Probe(rounding=mode) for mode in ROUNDINGS),
    "scale per channel": (Probe(scale_per_channel=True), Probe(scale_per_channel=True, weight=True)),
    "zero point": (Probe(signed=False, zero_point=128), Probe(zero_point=-3)),
    "weights only": (Probe(activation=False, weight=True),),
    "no op duplication": (Probe(weight=True),),
    "high-precision output": (Probe(weight=True),),
}
