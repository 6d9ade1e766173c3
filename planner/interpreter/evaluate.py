"""Evaluate: a whole plan in the reference interpreter, every value's stored integers and reals.

Walks the planned kernels in order. A region with an integer kernel computes on stored integers; data movement
copies them; everything else dequantizes, runs its float ops in onnxruntime and quantizes. With `float32_even`
the stored integers are those of the onnx-qoperator file with optimisations off.
Source: docs/specification.md, sections 3, 7 and 8.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from planner.calibration.samples import fit
from planner.constants.quantize import array_dtype, quantize_array, stored_dtype
from planner.errors import UnknownName, unknown_name
from planner.factors.form import form_of_plan
from planner.formats.onnx.dtypes import NUMPY
from planner.interpreter.blocks import Floats, Stage, clamped, clamped_reals, moved_f32_kind
from planner.interpreter.bodies import Body, Item, choose, cross, items_of, run_loop
from planner.interpreter.calls import FLOAT32_EVEN, FLOAT32_SPEC, HTP, Call, Operand
from planner.interpreter.dynamic import product
from planner.interpreter.fixed_point import ARITHMETICS
from planner.interpreter.kernels.linear import linear
from planner.interpreter.kernels.litert import COMPARISONS, LITERT, LITERT_KERNELS
from planner.interpreter.kernels.movement import moved_integers
from planner.interpreter.kernels.pooling import max_pool
from planner.interpreter.kernels.recurrent import LITERT_LAYERS, state_type
from planner.interpreter.kernels.table import KERNELS, OF_HTP
from planner.interpreter.lookup import stored_results
from planner.interpreter.memory import FLOAT32_STEPS, Memory, as_f32, quantizer
from planner.interpreter.programs import Program, Read, program_of
from planner.interpreter.requantize import Array, look_up
from planner.ir.arithmetic.multipliers import multiplier_of
from planner.ir.graph import Graph, Op
from planner.ir.types.qtypes import Uniform
from planner.lowering.blocks import CLAMPS, Block, is_in_f32, split_tail
from planner.lowering.bodies import Border
from planner.lowering.products import PRODUCTS, product_in
from planner.ops.geometry.windows import pool_geometry
from planner.plans.plan import Plan
from planner.plans.records import Port
from planner.target.records import DynamicRange, LookupTable

_NAMES = frozenset({FLOAT32_EVEN, HTP, *FLOAT32_STEPS, *ARITHMETICS})


@dataclass(frozen=True, slots=True, eq=False)
class Evaluation:
    """Results of a plan for one sample.

    Attributes:
      stored: stored integers (or 8-bit floats) of each value defined in such a type, in its numpy dtype.
      reals: each float value in float32, as its consumers see it: in its fixed type, if it has one.
      outputs: the model's, as an exported file gives them: float, or stored where their type is fixed.
    """

    stored: Mapping[str, Array]
    reals: Mapping[str, Array]
    outputs: Mapping[str, Array]


def evaluate(
    graph: Graph, plan: Plan, sample: Mapping[str, Array], *, arithmetic: str | None = None
) -> Evaluation:
    """Run a plan on one sample.

    Args:
      graph: the imported float model the plan was made from, with the numbers of its constants.
      plan: of that model.
      sample: an array per model input; an input with a fixed type may be given as stored integers.
      arithmetic: requantize by this instead of each row's own (`float32_even` is onnxruntime's;
        `float32_qdq` is that of a file with Q/DQ pairs, `float32_quant` with Quant nodes: each op in float32
        between them).

    Raises:
      SampleError: arrays that do not fit the model's inputs.
      ModelError: weights that are not known, or ops that onnxruntime refuses.
      RuleError: a scale that the arithmetic cannot multiply by.
      UnknownName: no such arithmetic.
    """
    return Interpreter(graph, plan, arithmetic=arithmetic).run(sample)


class Interpreter:
    """A plan ready to run on many samples: weights are quantized and float ops loaded only once."""

    def __init__(self, graph: Graph, plan: Plan, *, arithmetic: str | None = None, threads: int = 0) -> None:
        """Divide the plan into stages; see `evaluate`.

        Args:
          threads: of each of onnxruntime's sessions; 0 is one a core.
        """
        if arithmetic is not None and not (isinstance(arithmetic, str) and _is_known(arithmetic)):
            raise unknown_arithmetic(arithmetic)
        self._graph, self._plan = form_of_plan(graph, plan.graph), plan
        self._pinned = plan.stored_pins
        self._items = items_of(self._graph, plan, arithmetic, self._pinned)
        self._weights: dict[tuple[str, Uniform], Array] = {}
        self._programs: dict[int, Program] = {}
        self._tables: dict[int, Array] = {}
        self._threads = threads

    def run(self, sample: Mapping[str, Array]) -> Evaluation:
        """Run on one sample; see `evaluate`."""
        memory = Memory(self._graph, self._plan, self._pinned, self._weights)
        self._feed(memory, sample)
        self._run(memory, self._items)
        values = self._graph.values
        reals = {name: as_f32(memory.real(name)) for name in memory.names() if values[name].is_float}
        outputs = {name: self._output(memory, name) for name in self._graph.outputs}
        return Evaluation(memory.defined, reals, outputs)

    def run_items(self, memory: Memory, items: Sequence[Item]) -> None:
        """Run items that the caller made of the same graph and keeps, on the values in a memory of his."""
        self._run(memory, items)

    def run_kernel(self, name: str, value: str, kind: Uniform, stored: Array) -> Array | None:
        """The integers that one kernel outside bodies stores, fed with integers of its only activation.

        Args:
          name: of the kernel.
          value, kind: what it reads, in the type it reads it in.
          stored: integers of any shape that its constants broadcast with.
        """
        memory = Memory(self._graph, self._plan, {}, self._weights)
        block = next(
            (item for item in self._items if isinstance(item, Block) and item.kernel.name == name), None
        )
        if block is None:
            return None
        memory.define_stored(value, kind, stored.astype(stored_dtype(kind.storage)), block.arithmetic)
        self._run_block(memory, block)
        return next((memory.defined.get(port.value) for port in block.kernel.outputs if port.value), None)

    def _run(self, memory: Memory, items: Sequence[Item]) -> None:
        taken: dict[str, int] = {}
        for item in items:
            if isinstance(item, Floats):
                self._run_floats(memory, item)
            elif isinstance(item, Border):
                cross(memory, item, taken)
            elif not isinstance(item, Body):
                self._run_block(memory, item)
            elif item.scope.kind == "loop":
                run_loop(memory, item, self._run)
            elif choose(memory, item) == item.scope.index:
                taken[item.scope.owner] = item.scope.index
                self._run(memory, item.items)

    def _feed(self, memory: Memory, sample: Mapping[str, Array]) -> None:
        feeds = fit(sample, self._graph, "sample")
        arrays = {name: np.asarray(sample[name]) for name in feeds}
        for name in self._graph.inputs:
            pinned = self._pinned.get(name)
            if pinned is None:
                memory.define(name, feeds[name])
                continue
            given = arrays[name]
            is_stored = given.dtype == array_dtype(pinned.storage)
            stored = given if is_stored else quantize_array(as_f32(feeds[name]), pinned)
            memory.define_stored(name, pinned, stored, FLOAT32_EVEN)

    def _run_floats(self, memory: Memory, stage: Floats) -> None:
        results = self._program(stage).run(lambda read: memory.real(read.value))
        for name in stage.outputs:
            memory.define(name, results[name])

    def _run_block(self, memory: Memory, block: Block) -> None:
        kind = moved_f32_kind(block, self._graph, memory.is_same)
        if kind is not None and not kind.storage.float_name:
            self._move(memory, block, kind)
            return
        if block.row is not None and block.row.table is not None:
            self._look_up(memory, block, block.row.table)
            return
        if block.row is not None and block.row.dynamic is not None:
            self._run_dynamic(memory, block, block.row.dynamic)
            return
        if block.arithmetic == LITERT and (self._run_layer(memory, block) or _compare(memory, block)):
            return
        core, tail = split_tail(block.core) if block.float_result else (block.core, ())
        result = _on_integers(memory, block, core) if block.y or block.float_result else None
        if result is None:
            self._compute(memory, block)
        elif block.float_result:
            for op in tail:
                result = clamped_reals(result, op, memory.real)
            self._define_real(memory, block.float_result, result)
        else:
            port = next(port for port in block.kernel.outputs if port.value)
            self._settle(memory, block, port, result)

    def _compute(self, memory: Memory, block: Block) -> None:
        """Dequantize the block's operands, run it in float, quantize its results."""
        program = self._program(block)
        seen = memory.real_f32 if program.in_f32 else memory.real
        results = program.run(lambda read: seen(read.value, read.kind, block.arithmetic))
        for name in block.others:
            memory.define(name, results[name])
        for port in block.kernel.outputs:
            if not port.value:
                continue
            name = port.value if block.activation is None else block.result
            if isinstance(port.type, Uniform):
                quantize = quantizer(block.arithmetic)
                self._settle(memory, block, port, quantize(as_f32(results[name]), port.type))
            else:
                self._define_real(memory, port.value, results[name])

    def _look_up(self, memory: Memory, block: Block, table: LookupTable) -> None:
        """Store what the row's table has for each integer of the only operand."""
        source = next(port for port in block.kernel.inputs if port.value not in self._graph.constants)
        port = next(port for port in block.kernel.outputs if port.value)
        x, y = source.type, port.type
        if not isinstance(x, Uniform) or not isinstance(y, Uniform):
            raise TypeError(f"{block.kernel.name!r} has a table and float ports")
        name = port.value if block.activation is None else block.result

        def function(reals: Array) -> Array:
            fed = self._program(block).run(
                lambda read: reals if read.value == source.value else memory.real(read.value, read.kind)
            )
            return fed[name]

        if id(block) not in self._tables:
            self._tables[id(block)] = stored_results(table, x, y, function).astype(stored_dtype(y.storage))
        stored = memory.stored(source.value, x, block.arithmetic)
        self._settle(memory, block, port, look_up(stored, self._tables[id(block)], x.storage.qmin))

    def _run_dynamic(self, memory: Memory, block: Block, by: DynamicRange) -> None:
        """A product of what is quantized now and stored weights, then the ops behind it in float32."""
        op, rest = block.core[0], block.core[1:]
        weight = memory.operand(op.inputs[1], block.stored_kinds[op.name, 1], block.arithmetic)
        bias = as_f32(memory.real(op.inputs[2])) if len(op.inputs) > 2 and op.inputs[2] else None
        arithmetic = "" if block.row is None else block.row.requantize
        reals = product(op, as_f32(memory.real(op.inputs[0])), weight, bias, by, arithmetic=arithmetic)
        if not rest:
            self._define_real(memory, op.outputs[0], reals)
            return
        if id(block) not in self._programs:
            names = tuple(port.value for port in block.kernel.outputs if port.value)
            self._programs[id(block)] = replace(
                program_of(self._graph, rest, names, {}, in_f32=True), threads=self._threads
            )
        fed = self._programs[id(block)].run(
            lambda read: reals if read.value == op.outputs[0] else memory.real_f32(read.value)
        )
        for name, array in fed.items():
            self._define_real(memory, name, array)

    def _run_layer(self, memory: Memory, block: Block) -> bool:
        """Run a quantized recurrent op from step to step; False where there is no such kernel."""
        op, kernel = block.core[0], LITERT_LAYERS.get(block.core[0].type)
        ports = [port for port in block.kernel.outputs if port.value]
        if kernel is None or len(block.core) > 1 or not all(isinstance(p.type, Uniform) for p in ports):
            return False
        names = [port.value for port in ports] if block.activation is None else list(op.outputs[:1])
        places = [op.outputs.index(name) for name in names]
        kinds = {
            i: state_type(port.type, self._graph.values[port.value].facts)
            for i, port in zip(places, ports, strict=True)
            if isinstance(port.type, Uniform)
        }
        found = kernel(
            Call(block.core, _operands(memory, block, block.core), None, block.arithmetic, memory.real), kinds
        )
        if found is None:
            return False
        for i, port in zip(places, ports, strict=True):
            self._settle(memory, block, port, found[i])
        return True

    def _define_real(self, memory: Memory, value: str, reals: Array) -> None:
        """Define a float value in its own element type."""
        memory.define(value, reals.astype(NUMPY[self._graph.values[value].dtype], copy=False))

    def _move(self, memory: Memory, block: Block, kind: Uniform) -> None:
        """Move stored integers, less the zero point, so that an op's filling is real zero."""
        op, source = block.core[0], block.kernel.inputs[0]
        if op.type in CLAMPS:
            whole = memory.stored(source.value, kind, block.arithmetic)
            self._settle(memory, block, block.kernel.outputs[0], clamped(whole, kind, op, memory.real))
            return
        if op.type == "MaxPool" and not any(op.outputs[1:]):
            whole = memory.stored(source.value, kind, block.arithmetic)
            pooled = max_pool(whole, pool_geometry(op.attributes, whole.shape[2:]))
            self._settle(memory, block, block.kernel.outputs[0], pooled)
            return
        found = None if block.others else moved_integers(memory, block, kind)
        if found is not None:
            for port in block.kernel.outputs:
                if port.value:
                    self._settle(memory, block, port, found[port.value].astype(stored_dtype(kind.storage)))
            return

        def shifted(read: Read) -> Array:
            if not isinstance(read.kind, Uniform):
                return memory.real(read.value)
            stored = memory.stored(read.value, read.kind, block.arithmetic)
            return (stored.astype(np.int32) - kind.zero_point).astype(np.float32)

        results = self._program(block).run(shifted)
        for name in block.others:
            memory.define(name, results[name])
        for port in block.kernel.outputs:
            if port.value:
                moved = np.rint(results[port.value]).astype(np.int32) + kind.zero_point
                self._settle(memory, block, port, moved.astype(stored_dtype(kind.storage)))

    def _settle(self, memory: Memory, block: Block, port: Port, stored: Array) -> None:
        """Clamp a stored result by its storage range and a fused activation, and define the value."""
        if not isinstance(port.type, Uniform):
            return
        cut = clamped(stored, port.type, block.activation, memory.real)
        memory.define_stored(port.value, port.type, cut, block.arithmetic)

    def _program(self, stage: Stage) -> Program:
        if id(stage) not in self._programs:
            if isinstance(stage, Floats):
                program = program_of(self._graph, stage.ops, stage.outputs, {})
            else:
                wanted = [port.value for port in stage.kernel.outputs if port.value]
                results = (*(wanted if stage.activation is None else [stage.result]), *stage.others)
                in_f32 = is_in_f32(stage, self._graph)
                program = program_of(self._graph, stage.core, results, stage.stored_kinds, in_f32=in_f32)
            self._programs[id(stage)] = replace(program, threads=self._threads)
        return self._programs[id(stage)]

    def _output(self, memory: Memory, name: str) -> Array:
        pinned = self._pinned.get(name)
        return memory.real(name) if pinned is None else memory.stored(name, pinned)


def _compare(memory: Memory, block: Block) -> bool:
    """Run a comparison of stored integers; False where the block is none."""
    if len(block.core) != 1 or block.core[0].type not in COMPARISONS:
        return False
    call = Call(block.core, _operands(memory, block, block.core), None, block.arithmetic, memory.real)
    found = LITERT_KERNELS[block.core[0].type,](call)
    if found is not None:
        memory.define(block.core[0].outputs[0], found)
    return found is not None


def _is_known(arithmetic: str) -> bool:
    return arithmetic in _NAMES or multiplier_of(arithmetic) is not None


def unknown_arithmetic(name: str) -> UnknownName:
    """Make the error for an arithmetic that does not exist."""
    return unknown_name("arithmetic", name, _NAMES)


def _on_integers(memory: Memory, block: Block, core: tuple[Op, ...]) -> Array | None:
    """The stored or float result of the block's integer kernel; None where it has none for these types."""
    types, result = tuple(op.type for op in core), block.y
    kernel = LITERT_KERNELS.get(types) if block.arithmetic == LITERT else None
    kernel = kernel or KERNELS.get(types)
    if result is None and types not in PRODUCTS:
        return None
    in_float = block.arithmetic in FLOAT32_STEPS and not (
        block.arithmetic == FLOAT32_SPEC and types in PRODUCTS
    )
    kinds = (*block.stored_kinds.values(), *([] if result is None else [result]))
    in_float = in_float or any(kind.storage.float_name for kind in kinds)
    if kernel is None or in_float or block.others:
        return None
    operands, graph = _operands(memory, block, core), memory.graph
    shape = graph.values[core[0].outputs[0]].shape
    own = block.arithmetic != HTP or kernel in OF_HTP
    arithmetic = block.arithmetic if own else FLOAT32_EVEN
    product = product_in(graph, core, block.kinds, memory.known, arithmetic) if kernel is linear else None
    return kernel(Call(core, operands, result, arithmetic, memory.real, block.row, shape, product))


def _operands(memory: Memory, block: Block, core: tuple[Op, ...]) -> dict[tuple[str, int], Operand]:
    """The stored operands of ops, by (op name, operand index)."""
    return {
        (op.name, i): memory.operand(op.inputs[i], kind, block.arithmetic)
        for op in core
        for i in range(len(op.inputs))
        if isinstance(kind := block.kinds.get((op.name, i)), Uniform)
    }
