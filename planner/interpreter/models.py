"""Models: any ONNX model run as it is written, quantized dialects included; no plan, no rewriting of numbers.

QONNX ops with constant parameters run as plain ops (`onnx.quantized.lowering`), ops without a kernel
in onnxruntime run in numpy, and everything between goes to onnxruntime in few sessions, optimisations off.
Equal to the qonnx executor bit for bit. Source: docs/qonnx.md.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np

from planner.calibration.samples import fit
from planner.formats.onnx.quantized.exact_products import with_exact_products
from planner.formats.onnx.quantized.lowering import EVALUATORS, evaluate, lower
from planner.formats.onnx.read import read_written
from planner.interpreter.kernels.stored import STORED_KERNELS
from planner.interpreter.programs import Program, Read, program_of
from planner.interpreter.requantize import Array
from planner.ir.dtypes import NUMPY
from planner.ir.graph import Graph, Op

_NUMPY_ONLY: Final = frozenset(
    {"f4E2M1FN", "f8E4M3FN", "f8E4M3FNUZ", "f8E5M2", "f8E5M2FNUZ", "i2", "i4", "u2", "u4"}
)
_ONNXRUNTIME_OPSET: Final = 24
_HALVES: Final = frozenset({"bf16", "f16"})


@dataclass(frozen=True, slots=True, eq=False)
class _Step:
    """A part of the model: ops for onnxruntime, or one that runs in numpy."""

    ops: tuple[Op, ...]
    outputs: tuple[str, ...]
    kernel: Callable[[Op, Sequence[Array | None]], tuple[Array, ...]] | None = None
    program: Program | None = None


class ModelRunner:
    """A model ready to run on many samples."""

    def __init__(self, graph: Graph, *, watched: Iterable[str] = ()) -> None:
        """Divide a model into steps.

        Args:
          graph: of ops, as `read_written` gives it.
          watched: names of inner values to return too.
        """
        lowered = lower(with_exact_products(graph))
        domains = {key: number for key, number in lowered.opsets.items() if not key.startswith("qonnx")}
        self._graph = replace(lowered, opsets=domains)
        self._outputs = tuple(dict.fromkeys((*graph.outputs, *watched)))
        self._steps = _steps(self._graph, self._outputs)

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the model's inputs."""
        return self._graph.inputs

    def run(self, sample: Mapping[str, Any]) -> Mapping[str, Array]:
        """Results by name.

        Raises:
          SampleError: arrays that do not fit the model's inputs.
          ModelError: an op that cannot be run.
        """
        known: dict[str, Array] = dict(fit(sample, self._graph, "sample"))
        for step in self._steps:
            if step.program is not None:
                known |= step.program.run(partial(self._read, known))
                continue
            for op in step.ops:
                operands = [self._array(name, known) if name else None for name in op.inputs]
                if step.kernel is not None:
                    known |= zip(op.outputs, step.kernel(op, operands), strict=False)
        return {name: self._array(name, known) for name in self._outputs}

    def _read(self, known: Mapping[str, Array], read: Read) -> Array:
        return self._array(read.value, known)

    def _array(self, name: str, known: Mapping[str, Array]) -> Array:
        return known[name] if name in known else np.asarray(self._graph.constants[name].array)


def run_model(source: str | Path | bytes, sample: Mapping[str, Any]) -> Mapping[str, Array]:
    """Run an ONNX file of any dialect on one sample, as it is written.

    For many samples open the file once, with `ModelRunner`.

    Args:
      sample: arrays by name of input.

    Returns:
      Arrays by name of output.
    """
    return ModelRunner(read_written(source)).run(sample)


def _steps(graph: Graph, outputs: Sequence[str]) -> tuple[_Step, ...]:
    parts: list[tuple[list[Op], Callable[..., tuple[Array, ...]] | None]] = []
    for op in graph.ops:
        kernel = _kernel(op, graph)
        if kernel is not None or not parts or parts[-1][1] is not None:
            parts.append(([op], kernel))
        else:
            parts[-1][0].append(op)
    steps: list[_Step] = []
    needed = set(outputs)
    for ops, kernel in reversed(parts):
        made = tuple(out for op in ops for out in op.outputs if out and out in needed)
        needed.update(name for op in ops for name in (*op.inputs, *op.captures) if name)
        program = None
        if kernel is None and made:
            # Weights as they are: the qonnx executor feeds them, and so sums in the plain order.
            program = replace(program_of(graph, ops, made, {}), prepacks=False)
        if made:
            steps.append(_Step(tuple(ops), made, kernel, program))
    return tuple(reversed(steps))


def _kernel(op: Op, graph: Graph) -> Callable[[Op, Sequence[Array | None]], tuple[Array, ...]] | None:
    """The numpy kernel an op needs; None where onnxruntime runs it."""
    if op.type in EVALUATORS:
        return partial(_evaluated, graph)
    if op.type not in STORED_KERNELS:
        return None
    kinds = {graph.values[name].dtype for name in (*op.inputs, *op.outputs) if name}
    zero = op.inputs[3] if op.type == "ConvInteger" and len(op.inputs) > 3 else ""
    if zero and graph.values[zero].shape not in ((), (1,)):
        return STORED_KERNELS[op.type]
    is_new = graph.opsets.get("", 0) > _ONNXRUNTIME_OPSET
    if is_new or kinds & _NUMPY_ONLY or kinds & _HALVES or (op.type == "ConvInteger" and "i8" in kinds):
        return STORED_KERNELS[op.type]
    return None


def _evaluated(graph: Graph, op: Op, operands: Sequence[Array | None]) -> tuple[Array, ...]:
    result = evaluate(op, [np.asarray(operand) for operand in operands])
    dtype = graph.values[op.outputs[0]].dtype
    return (result.astype(NUMPY[dtype]) if dtype in ("f16", "f64") else result,)
