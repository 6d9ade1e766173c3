"""What .tflite files of a plan are made for, and what stands in them."""

from collections import Counter
from dataclasses import dataclass, replace

import numpy as np
import pytest

import planner
from planner.constants.quantize import quantize_array
from planner.ir.types.qtypes import Uniform
from tests.formats.tosa.writer.running import with_all_results

__all__ = ["Told", "integers", "runtime_target", "told", "with_all_results"]

tflite = pytest.importorskip("tflite", reason="no tflite: pip install '.[litert]'")

REFERENCE_LACKS = ("DEPTH_TO_SPACE", "ELU", "TILE")
"""Operators that the registry of reference kernels has not, or not in the version that takes bytes."""


def runtime_target(**changes):
    """`litert-int8`, with changes."""
    return replace(planner.load_target("litert-int8"), **changes)


@dataclass(frozen=True)
class Told:
    """A file taken apart: operators by name and version, tensors, buffers, signature."""

    operators: tuple[tuple[str, int], ...]
    shapes: dict[str, tuple[int, ...]]
    offsets: tuple[int, ...]
    buffers: tuple[bytes, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    runtime: str
    model: object

    @property
    def counts(self):
        """Operators by name."""
        return Counter(name for name, _ in self.operators)


def told(data):
    """Take a file apart with the schema's own readers."""
    model = tflite.Model.GetRootAs(data, 0)
    graph = model.Subgraphs(0)
    names = {code: name for name, code in vars(tflite.BuiltinOperator).items() if isinstance(code, int)}
    codes = [model.OperatorCodes(graph.Operators(i).OpcodeIndex()) for i in range(graph.OperatorsLength())]
    tensors = [graph.Tensors(i) for i in range(graph.TensorsLength())]
    buffers = [model.Buffers(i) for i in range(model.BuffersLength())]
    signature = model.SignatureDefs(0)
    arrays = [buffer.DataAsNumpy() if buffer.DataLength() else np.zeros(0, np.uint8) for buffer in buffers]
    metadata = model.Metadata(0)
    return Told(
        tuple((names[code.BuiltinCode()], code.Version()) for code in codes),
        {tensor.Name().decode(): tuple(tensor.ShapeAsNumpy()) for tensor in tensors if tensor.ShapeLength()},
        tuple(buffer._tab.Vector(buffer._tab.Offset(4)) for buffer in buffers if buffer.DataLength()),
        tuple(array.tobytes() for array in arrays),
        tuple(signature.Inputs(i).Name().decode() for i in range(signature.InputsLength())),
        tuple(signature.Outputs(i).Name().decode() for i in range(signature.OutputsLength())),
        arrays[metadata.Buffer()].tobytes().rstrip(b"\0").decode(),
        model,
    )


def kernels_for(data):
    """The kernels that run a file: the reference ones wherever they know its operators."""
    return "optimized" if any(name in REFERENCE_LACKS for name, _ in told(data).operators) else "reference"


def integers(plan, value, reals):
    """The stored integers that reals of a value came from, exactly; the reals where none did."""
    ports = (port for kernel in plan.kernels_in_order for port in kernel.outputs)
    kind = next((port.type for port in ports if port.value == value), None)
    return quantize_array(reals, kind) if isinstance(kind, Uniform) else reals
