"""Steps: the float model kernel by kernel, and again from one kernel on with only that one quantized.

Each kernel is a session of its own in onnxruntime, so that a run may start anywhere: what lies in front of a
kernel is taken from the float run, what it does not reach is not computed. Source: docs/accuracy.md.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from planner.accuracy.choices import Choice, in_float, kernels_of, with_choice
from planner.accuracy.stretches import ROUNDED, Step, steps_of, stretches
from planner.constants.quantize import dequantize_array, quantize_array
from planner.interpreter.bodies import Item, items_of
from planner.interpreter.evaluate import Interpreter
from planner.interpreter.kernels.table import KERNELS
from planner.interpreter.memory import Memory, as_f32
from planner.interpreter.store import Store
from planner.ir.graph import Graph
from planner.ir.types.qtypes import Uniform
from planner.lowering.blocks import Block
from planner.lowering.products import PRODUCTS
from planner.plans.plan import Plan
from planner.plans.rescales import pins

Array: TypeAlias = NDArray[Any]


@dataclass(frozen=True, slots=True, eq=False)
class Start:
    """The difference of a run with one choice from the float run.

    Attributes:
      rounded: values that are the float run's, rounded; computed by nothing.
      computed: items with the choice's types, in place of those of a step.
      arithmetic: the kernel as the device computes it, and in float between roundings, where the two may
        differ by more than a rounding.
      steps: that run, in order, and lead to an output.
    """

    rounded: Mapping[str, Uniform]
    computed: Mapping[Step, tuple[Item, ...]]
    arithmetic: tuple[Block, Block] | None
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True, eq=False)
class FloatRun:
    """Every value of the float model for one sample, and their names."""

    memory: Memory
    names: frozenset[str]


class Steps:
    """The float model of a plan, ready to run whole and from any kernel on.

    A model whose file has quantizers of its own is rounded where these stand, as the reference is.
    """

    def __init__(self, model: Graph, plan: Plan, *, reference: Graph | None = None, threads: int = 1) -> None:
        """Divide the plan into steps.

        Args:
          model: the plan's, with the numbers of its constants.
          reference: the float model, where it has other numbers in its constants (biases not corrected).
          threads: of each of onnxruntime's sessions.
        """
        base = model if reference is None else reference
        self.graph, self._plan = model, in_float(plan)
        self._reference = Interpreter(base, self._plan, threads=threads)
        self._chosen = Interpreter(model, self._plan, threads=threads)
        self._weights: dict[tuple[str, Uniform], Array] = {}
        self.outputs = tuple(name for name in plan.graph.outputs if plan.graph.values[name].is_float)
        self._pins = pins(plan.graph) if model.written is not None else {}
        self.steps = steps_of(base, self._plan, self._pins)
        self._stretches = stretches(plan.graph, self.steps, self._pins)
        self._step_of = {region.name: step for step in self.steps for region in step.regions}

    def run(self, sample: Mapping[str, Array]) -> FloatRun:
        """Run the float model on one sample that fits."""
        store = Store()
        memory = self._memory(self._pins)
        for name in self.graph.inputs:
            memory.define(name, sample[name])
        for step in self.steps:
            self._reference.run_items(memory, step.items)
            for name in step.writes.intersection(memory.names()):
                array = memory.real(name)
                kept = store.kept(array)
                if kept is not array:
                    memory.define(name, kept)
        return FloatRun(memory, frozenset(memory.names()))

    def start(self, choice: Choice) -> Start:
        """Return the start of a run with a choice, and its steps."""
        typed_inputs = {address.rpartition(".")[0] for address in choice.types if ".in[" in address}
        quantized = with_choice(self._plan, choice)
        rounded = dict(choice.pins)
        computed: dict[Step, tuple[Item, ...]] = {}
        for name in kernels_of(choice) & self._step_of.keys():
            step = self._step_of[name]
            if name in typed_inputs or len(step.regions) > 1:
                computed[step] = items_of(self.graph, quantized, ROUNDED, {}, step.regions)
            else:
                kinds = {port.value: port.type for port in quantized.kernels[name].outputs}
                rounded |= {value: kind for value, kind in kinds.items() if isinstance(kind, Uniform)}
        reached = {*rounded, *(name for step in computed for name in step.writes)}
        found: list[Step] = []
        for stretch, steps in self._stretches:
            # Within the stretch where it begins, kernel by kernel.
            begins = not computed.keys().isdisjoint(steps) or any(reached & step.writes for step in steps)
            for step in steps if begins else (stretch,):
                if step in computed or reached & step.reads:
                    reached |= step.writes
                    found.append(step)
        return Start(rounded, computed, self._arithmetic(choice), self._leading(found))

    def _arithmetic(self, choice: Choice) -> tuple[Block, Block] | None:
        """One quantized kernel twice; None where it only adds up products, or has a float port."""
        full = replace(choice, types={**choice.read, **choice.types})
        step = self._step_of.get(choice.name)
        if choice.is_input or step is None or len(step.regions) > 1 or kernels_of(full) != {choice.name}:
            return None
        quantized = with_choice(self._plan, full)
        kernel = quantized.kernels[choice.name]
        ports = [port for port in (*kernel.inputs, *kernel.outputs) if port.value]
        if not all(isinstance(port.type, Uniform) for port in ports) or len(kernel.outputs) != 1:
            return None
        device = items_of(self.graph, quantized, None, {}, step.regions)
        plain = items_of(self.graph, quantized, ROUNDED, {}, step.regions)
        match (device, plain):
            case ((Block() as one,), (Block() as other,)):
                types = tuple(op.type for op in one.core)
                return None if types in PRODUCTS or types not in KERNELS else (one, other)
        return None

    def resume(self, start: Start, own: Mapping[str, Uniform], floats: FloatRun) -> Mapping[str, Array]:
        """Outputs that a run with one choice reaches.

        Args:
          start: of the choice.
          own: the fixed types of the choice.
          floats: the float run of the sample.
        """
        memory = self._memory({**self._pins, **own})
        # A mask of -3.4e38 on a grid of 8 bits may round to infinity.
        with np.errstate(over="ignore"):
            self._resume(memory, start, floats)
            known = set(memory.names())
            return {name: as_f32(memory.real(name)) for name in self.outputs if name in known}

    def _resume(self, memory: Memory, start: Start, floats: FloatRun) -> None:
        for name in start.rounded.keys() & floats.names:
            kind = start.rounded[name]
            stored = quantize_array(as_f32(floats.memory.real(name)), kind)
            memory.define_stored(name, kind, stored, ROUNDED)
        made = {*start.rounded}
        if not start.computed:
            self._add_arithmetic(memory, start, floats)
        for step in start.steps:
            for name in (step.reads & floats.names) - made:
                memory.define(name, floats.memory.real(name))
            made |= step.reads | step.writes
            items = start.computed.get(step)
            if items is None:
                self._reference.run_items(memory, step.items)
            else:
                self._chosen.run_items(memory, items)
                self._add_arithmetic(memory, start, floats)

    def _add_arithmetic(self, memory: Memory, start: Start, floats: FloatRun) -> None:
        """Add to a kernel's result what the device's arithmetic does to it besides rounding."""
        if start.arithmetic is None:
            return
        port = start.arithmetic[0].kernel.outputs[0]
        if port.value not in memory.defined or not isinstance(port.type, Uniform):
            return
        found = []
        for block in start.arithmetic:
            alone = self._memory({})
            for name in self._step_of[block.kernel.name].reads & floats.names:
                alone.define(name, floats.memory.real(name))
            self._chosen.run_items(alone, (block,))
            found.append(dequantize_array(alone.defined[port.value], port.type))
        device, plain = found
        if not np.array_equal(device, plain):
            own = dequantize_array(memory.defined[port.value], port.type)
            besides = own + np.where(device == plain, 0.0, device - plain)
            memory.define(port.value, besides.astype(floats.memory.real(port.value).dtype))

    def _leading(self, steps: Sequence[Step]) -> tuple[Step, ...]:
        """Those of the steps on whose results an output rests."""
        needed, found = set(self.outputs), []
        for step in reversed(steps):
            if needed & step.writes:
                needed |= step.reads
                found.append(step)
        return tuple(reversed(found))

    def _memory(self, pinned: Mapping[str, Uniform | None]) -> Memory:
        return Memory(self.graph, self._plan, pinned, self._weights)


def with_reference(model: Graph, reference: Graph) -> Graph:
    """The model with the biases of the reference where its own are corrected (`BIAS@KERNEL`)."""
    known = reference.constants
    constants = {
        name: constant if name in known else known.get(name.rpartition("@")[0], constant)
        for name, constant in model.constants.items()
    }
    return replace(model, constants=constants)
