"""Not as written: where a plan rounds numbers of a quantized model other than the model's own quantizers do.

A model from quantization-aware training, or of another tool, says where its quantizers are. A plan may
quantize more: a value with a calibrated range, a constant that a row stores quantized, a value that a row has
another grid for. Its numbers are others then, and the plan says where.
Source: docs/specification.md, section 6 ("facts inside a fused kernel"); tests/cases, case 15; docs/qonnx.md.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from planner.ir.graph import Graph, has_quantizers
from planner.ir.roles import is_movement
from planner.ir.types.pinned_numbers import lies_on
from planner.ir.types.qtypes import AnyType, Bipolar, Calibrated, Uniform
from planner.plans.records import KernelPlan, PortTyped
from planner.plans.rescales import SAME_SCALE
from planner.target.records import Row

NAMED: Final = 5
NEAR: Final = 1e-3
"""Share of a step within which a number is on a grid."""
_ASK: Final = "ask for float of the kernels there (annotations, kernels: {NAME: float})"
SUM_BITS: Final = 32
"""Of a bias on the grid of the sums that it is added to, which is finer than any result."""


def not_as_written(graph: Graph, kernels: Sequence[KernelPlan], rows: Mapping[str, Row]) -> Iterator[str]:
    """Yield warnings for values that differ from a quantized model's own; none for a model in float.

    Args:
      graph: with the numbers of its constants.
      kernels: in topological order.
      rows: those in use, by key.
    """
    if not has_quantizers(graph) or not any(_is_quantized(graph, name) for name in graph.values):
        return
    moving = {
        region.name
        for region in graph.regions
        if region.ops and all(is_movement(op, graph) for op in region.ops)
    }
    found = _Rounded(graph)
    for kernel in reversed(kernels):
        if kernel.name in moving:
            found.look_behind(kernel)
    for kernel in kernels:
        found.read(kernel, moves=kernel.name in moving)
        if kernel.row is not None and rows[kernel.row].dynamic is not None:
            found.read_at_run_time(kernel)
        found.make(kernel, moves=kernel.name in moving)
    yield from found.texts()


def _is_quantized(graph: Graph, name: str) -> bool:
    facts = graph.values[name].facts
    return name not in graph.constants and any(isinstance(fact, Uniform | Bipolar) for fact in facts)


@dataclass(slots=True)
class _Rounded:
    """Names of what is rounded, in order: each once, however often.

    Attributes:
      grids: of values behind quantizers, through data movement.
      behind: the grid that a value gets next, behind data movement alone.
      quantized: values that the file leaves float.
      stored: constants with other numbers than the file's.
      moved: values that the file has on another grid.
    """

    graph: Graph
    grids: dict[str, Uniform] = field(default_factory=dict)
    behind: dict[str, Uniform] = field(default_factory=dict)
    quantized: dict[str, None] = field(default_factory=dict)
    stored: dict[str, None] = field(default_factory=dict)
    moved: dict[str, None] = field(default_factory=dict)

    def look_behind(self, kernel: KernelPlan) -> None:
        """Note the grid that the operands of data movement get behind it."""
        made = [port.value for port in kernel.outputs if port.value]
        grid = (self._pin(made[0]) or self.behind.get(made[0])) if len(made) == 1 else None
        if grid is None:
            return
        for port in kernel.inputs:
            if port.value:
                self.behind[kernel.name] = grid
                self.behind.setdefault(port.value, grid)

    def read(self, kernel: KernelPlan, *, moves: bool) -> None:
        """Look at what a kernel reads."""
        behind = self.behind.get(kernel.name) if moves else None
        for port in kernel.inputs:
            kind = port.type
            if not port.value or not isinstance(kind, Uniform):
                continue
            if port.value in self.graph.constants:
                if not self._keeps(port.value, kind):
                    self.stored[port.value] = None
                continue
            if behind is not None and _is_on(behind, kind):
                continue  # whether it is rounded before or behind what moves it is one
            grid = self._grid(port.value)
            if grid is None:
                self._quantize(port.value)
            elif not _is_on(grid, kind):
                self.moved[port.value] = None

    def read_at_run_time(self, kernel: KernelPlan) -> None:
        """Look at what a row quantizes by the range of each call, whatever grid it is on."""
        name = kernel.inputs[0].value
        if name and self._grid(name) is not None:
            self.moved[name] = None
        elif name:
            self._quantize(name)

    def make(self, kernel: KernelPlan, *, moves: bool) -> None:
        """Look at what a kernel makes."""
        data = [port for port in kernel.inputs if port.value and self.graph.values[port.value].is_float]
        for port in kernel.outputs:
            kind = port.type
            if not port.value or not self.graph.values[port.value].is_float:
                continue
            if not isinstance(kind, Uniform):
                grids = [self._grid(one.value) for one in data] if moves else []
                if grids and grids[0] is not None and all(grid == grids[0] for grid in grids):
                    self.grids[port.value] = grids[0]
                continue
            self._made(port.value, kind, data[0].type if moves and data else None)
            self.grids[port.value] = kind

    def _made(self, name: str, kind: Uniform, given: PortTyped) -> None:
        wanted = given if isinstance(given, Uniform) else self._pin(name)
        if wanted is None:
            self._quantize(name)
        elif not _is_on(wanted, kind):
            self.moved[name] = None

    def _quantize(self, name: str) -> None:
        # Of one bit the signs are computed; what a width is asked of is meant to be quantized.
        if not any(isinstance(fact, AnyType | Bipolar) for fact in self.graph.values[name].facts):
            self.quantized[name] = None

    def _grid(self, name: str) -> Uniform | None:
        pin = self._pin(name)
        return self.grids.get(name) if pin is None else pin

    def _pin(self, name: str) -> Uniform | None:
        return next((fact for fact in self.graph.values[name].facts if isinstance(fact, Uniform)), None)

    def _keeps(self, name: str, kind: Uniform) -> bool:
        """Whether a constant has its numbers in a type, or is a bias."""
        if kind.storage.bits >= SUM_BITS or self.graph.constants[name].array is None:
            return True
        facts = self.graph.values[name].facts
        own = [fact.trained if isinstance(fact, AnyType) else fact for fact in facts]
        return any(isinstance(fact, Uniform) and _is_on(fact, kind) for fact in own) or lies_on(
            kind, self.graph.constants[name], within=NEAR
        )

    def texts(self) -> Iterator[str]:
        """The warnings."""
        if self.quantized:
            ranges = any(self._has_range(name) for name in self.quantized)
            without = "plan without calibration data, or " if ranges else ""
            yield (
                f"the quantizers of the model's file leave {_listed(self.quantized, 'value')} float, and "
                f"kernels quantize {_them(self.quantized)}: to keep the file's numbers {without}{_ASK}"
            )
        if self.stored:
            yield (
                f"kernels store other numbers in {_listed(self.stored, 'constant')} than the quantized "
                f"model: to keep the file's numbers {_ASK}"
            )
        if self.moved:
            yield (
                f"the quantizers of the model's file give {_listed(self.moved, 'value')} another grid than "
                f"kernels have there, which round again: to keep the file's numbers {_ASK}"
            )

    def _has_range(self, name: str) -> bool:
        return any(isinstance(fact, Calibrated) for fact in self.graph.values[name].facts)


def _is_on(grid: Uniform, kind: Uniform) -> bool:
    """Whether the numbers of a grid are numbers of a type, but for what its ends cut off."""
    if grid == kind:
        return True
    if len(grid.scales) != len(kind.scales) or (grid.axis, grid.blocks, grid.grid) != (
        kind.axis, kind.blocks, kind.grid,
    ):  # fmt: skip
        return False
    pairs = zip(grid.scales, kind.scales, strict=True)
    return all(abs(a - b) <= SAME_SCALE * b for a, b in pairs)


def _listed(names: Collection[str], what: str) -> str:
    shown = ", ".join(map(repr, list(names)[:NAMED]))
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return f"{len(names)} {what}{'s' * (len(names) > 1)} ({shown}{more})"


def _them(names: Collection[str]) -> str:
    return "them" if len(names) > 1 else "it"
