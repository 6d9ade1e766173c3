"""Writable: which kernels of a plan a format cannot write, asked of its exporter one kernel at a time.

A kernel stands alone in a plan of its own, its operands inputs in the types that they are defined in, and the
exporter itself writes that or refuses. So nothing is known here of what any format has.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import log2
from typing import Any, Final

import numpy as np

import planner.formats
from planner.errors import PlannerError, UnsupportedExport
from planner.ir.borders import border_op
from planner.ir.graph import Constant, Graph, Region, Value
from planner.ir.types.qtypes import Uniform
from planner.plans.plan import Planned
from planner.plans.records import KernelPlan, Port, PortTyped, unwritable
from planner.plans.rescales import definitions

_SMALL: Final = 64
"""Constants of up to so many numbers are written as they are, larger ones of floats as zeros."""
_LISTED: Final = 160
_KEPT: Final = 1 << 14
_WRITTEN: Final[set[object]] = set()
"""Kernels written before: those that look alike are not checked again, in this plan or the next."""


def unwritten(plan: Planned) -> Mapping[str, str]:
    """Return why kernels have to leave their rows: a requested format cannot write them so.

    A kernel that a format cannot write in float either keeps its row, unless the format was requested by
    name.
    """
    if not any(region.ops for region in plan.fused.regions):
        return {}  # there is nothing to write, and no exporter is loaded
    parts, named, found = _Parts(plan, plan.fused), bool(plan.options.get("formats")), dict[str, str]()
    for form in _asked(plan.formats):
        refused = {
            kernel.name: unwritable(form, _brief(why.message, kernel, form))
            for kernel in plan.kernels_in_order
            if kernel.row is not None and (why := parts.refusal(kernel, form)) is not None
            if named or parts.refusal(_in_float(kernel), form) is None
        }
        if refused and _refusal(plan, form) is not None:
            found = refused | found
    return found


def refuse_unwritable(plan: Planned) -> None:
    """Refuse a plan with kernels that a requested format cannot write in any form.

    Raises:
      UnsupportedExport: naming the first of them, its operands and what the format accepts.
    """
    parts = _Parts(plan, plan.fused)
    for form in _asked(plan.options.get("formats", ())):
        # Kernels with a row were asked about while the plan was made.
        floats = (kernel for kernel in plan.kernels_in_order if kernel.row is None)
        refused = [(kernel, why) for kernel in floats if (why := parts.refusal(kernel, form)) is not None]
        found = _refusal(plan, form) if refused else None
        if found is None:
            continue
        # A kernel alone may lack what is known in the whole: the one that the whole stumbles over tells more.
        kernel, why = next((pair for pair in refused if _is_about(found, pair[0])), refused[0])
        more = f"; {len(refused) - 1} more kernels are like it" if len(refused) > 1 else ""
        raise UnsupportedExport(
            f"{form} cannot write {kernel.name!r}, {_told(plan.fused, kernel)}: {why.message}{more}",
            hint=why.hint,
        )


def _refusal(plan: Planned, form: str) -> PlannerError | None:
    """Why a format cannot write the whole, where more is known than of a kernel alone; None where it can."""
    try:
        _build(form, plan.fused, plan)
    except PlannerError as error:
        return error
    return None


def _is_about(error: PlannerError, kernel: KernelPlan) -> bool:
    return error.message.startswith(f"{kernel.name}.") or f"kernel {kernel.name!r}" in error.message


def _asked(formats: Sequence[str]) -> Iterator[str]:
    """The formats that can be asked kernel by kernel."""
    known = ((form, planner.formats.FORMATS.get(form)) for form in formats)
    return (form for form, found in known if found and not (found.is_types_alone or found.is_whole))


def _build(form: str, graph: Graph, plan: Planned) -> None:
    """Write in a format, or build what its bytes are made of: a refusal comes before them."""
    found = planner.formats.FORMATS[form]
    (found.build or found.write)(graph, plan)


def _brief(message: str, kernel: KernelPlan, form: str) -> str:
    """A refusal without the kernel's own address, and without a long list of all that the format accepts."""
    address, colon, rest = message.partition("): ")
    told = rest if colon and address.startswith(f"{kernel.name}.") else message
    head, mark, tail = told.partition(f"; {form} has ")[0].partition(f"; {form} accepts")
    return head if len(tail) > _LISTED else head + mark + tail


def _told(graph: Graph, kernel: KernelPlan) -> str:
    """A kernel's operator with the shapes and attributes that a format may refuse."""
    region = next(region for region in graph.regions if region.name == kernel.name)
    op = region.ops[0]
    shapes = ", ".join(_shape_text(graph.values[name]) for name in op.inputs if name)
    given = [f"{key}={value}" for key, value in sorted(op.attributes.items()) if len(str(value)) < _SMALL]
    words = "+".join(each.type for each in region.ops)
    return f"{words} of {shapes}" + (f" with {', '.join(given)}" if given else "")


def _shape_text(value: Value) -> str:
    sizes = "?" if value.shape is None else ", ".join(map(str, value.shape))
    return f"{value.dtype}[{sizes}]"


def _in_float(kernel: KernelPlan) -> KernelPlan:
    """The kernel as it falls back to float."""
    inputs, outputs = (
        tuple(replace(port, type=None) for port in ports) for ports in (kernel.inputs, kernel.outputs)
    )
    return replace(kernel, row=None, reason="", inputs=inputs, outputs=outputs)


@dataclass(frozen=True, eq=False)
class _Parts:
    """The kernels of a plan, each as a model of its own."""

    plan: Planned
    graph: Graph

    @cached_property
    def _regions(self) -> Mapping[str, Region]:
        return {region.name: region for region in self.graph.regions}

    @cached_property
    def _makers(self) -> Mapping[str, Region]:
        """The region that computes each value."""
        return {
            name: region for region in self.graph.regions for op in region.ops for name in op.outputs if name
        }

    @cached_property
    def _defined(self) -> Mapping[str, PortTyped]:
        return definitions(self.plan.graph, self.plan.kernels_in_order)

    @cached_property
    def _read(self) -> frozenset[str]:
        """Values that regions read which others write, and the model's outputs."""
        return frozenset(
            name
            for region in self.graph.regions
            for op in region.ops
            for name in (*op.inputs, *op.captures)
            if name and self._makers.get(name) is not region
        ) | frozenset(self.graph.outputs)

    def refusal(self, kernel: KernelPlan, form: str) -> UnsupportedExport | None:
        """Why a format cannot write a kernel; None where it can, or where a kernel alone tells nothing."""
        region = self._regions.get(kernel.name)
        if region is None or not region.ops or border_op(region) is not None:
            return None
        if any(op.captures or op.structure for op in region.ops):
            return None
        part = self._cut(region)
        if part is None or not part.outputs:
            return None
        row = None if kernel.row is None else self.plan.target.rows[kernel.row]
        sight = (form, repr(row), _sight(part, kernel))
        if sight in _WRITTEN:
            return None
        hollow = replace(part, ops=(), constants=dict.fromkeys(part.constants, Constant()))
        values = {name: item for name, item in self.plan.values.items() if name in part.values}
        plan = replace(self.plan, graph=hollow, kernels_in_order=(kernel,), values=values)
        try:
            _build(form, replace(part, regions=()), plan)
        except UnsupportedExport as error:
            return error
        except PlannerError:
            return None  # of the numbers, not of the format
        if len(_WRITTEN) >= _KEPT:
            _WRITTEN.clear()
        _WRITTEN.add(sight)
        return None

    def _cut(self, region: Region) -> Graph | None:
        """A region as a model, with the shape arithmetic that it rests on."""
        graph = self.graph
        regions = [*self._shapes_of(region), region]
        ops = [op for each in regions for op in each.ops]
        made = {name for op in ops for name in op.outputs if name}
        names = dict.fromkeys(name for op in ops for name in (*op.inputs, *op.outputs) if name)
        constants: dict[str, Constant] = {}
        for name in names:
            if name not in graph.constants:
                continue
            constant = _stand_in(graph.values[name], graph.constants[name])
            if constant is None:
                return None
            constants[name] = constant
        inputs = tuple(name for name in names if name not in made and name not in constants)
        values = {name: graph.values[name] for name in names}
        values |= {name: self._entering(name) for name in inputs}
        own = {name for op in region.ops for name in op.outputs if name}
        return replace(
            graph,
            values=values,
            ops=tuple(ops),
            inputs=inputs,
            outputs=tuple(name for name in names if name in own and name in self._read),
            constants=constants,
            regions=tuple(replace(each, scope="") for each in regions),
            functions={},
            scopes={},
            written=None,
            wanted={},
            caches=(),
        )

    def _entering(self, name: str) -> Value:
        """A value as a kernel finds it: in its fixed type, else in the type that it is defined in."""
        value = self.graph.values[name]
        kind = self.plan.held_pins.get(name, self._defined.get(name))
        return replace(value, facts=(kind,) if isinstance(kind, Uniform) else ())

    def _shapes_of(self, region: Region) -> list[Region]:
        """Regions that compute what is no float of what a region reads, and what those rest on."""
        found: dict[str, Region] = {}
        waiting = [name for op in region.ops for name in op.inputs if name]
        while waiting:
            name = waiting.pop()
            maker = self._makers.get(name)
            if maker is None or maker is region or maker.name in found or self.graph.values[name].is_float:
                continue
            if border_op(maker) is not None:  # its body is not here
                continue
            if maker.name in self.plan.kernels and any(
                port.value for port in _ports(self.plan.kernels[maker.name])
            ):
                continue
            found[maker.name] = maker
            waiting += [name for op in maker.ops for name in op.inputs if name]
        return [each for each in self.graph.regions if each.name in found]


def _sight(part: Graph, kernel: KernelPlan) -> tuple[object, ...]:
    """The properties that distinguish kernels for a format, but names; of scales only powers of two."""
    at = {name: i for i, name in enumerate(part.values)}
    ops = tuple(
        (
            op.type,
            tuple(map(at.get, op.inputs)),
            tuple(map(at.get, op.outputs)),
            repr(sorted(op.attributes.items())),
        )
        for op in part.ops
    )
    values = tuple(
        (
            value.dtype,
            value.shape,
            value.shape is not None and len(value.shape),
            tuple(map(_form, value.facts)),
        )
        for value in part.values.values()
    )
    numbers = tuple(
        (at[name], constant.array.tobytes())
        for name, constant in part.constants.items()
        if constant.array is not None and constant.array.size <= _SMALL
    )
    ports = _ports(kernel)
    kinds = tuple((at.get(port.value), _form(port.type), _first(ports, port)) for port in ports)
    return ops, values, numbers, kinds, tuple(at[name] for name in (*part.inputs, *part.outputs))


def _first(ports: Sequence[Port], port: Port) -> int:
    """The first of the ports with the type of one."""
    return next(i for i, other in enumerate(ports) if other.type == port.type)


def _form(kind: object) -> object:
    """A type with the powers of two that its scales are near to."""
    if not isinstance(kind, Uniform):
        return kind
    ends = tuple(round(log2(end)) for end in (min(kind.scales), max(kind.scales)))
    centre = any(kind.zero_points), len(set(kind.zero_points)) > 1
    return kind.storage, kind.expressed, kind.axis, kind.blocks, len(kind.scales), ends, centre, kind.ranges


def _ports(kernel: KernelPlan) -> tuple[Port, ...]:
    return (*kernel.inputs, *kernel.outputs)


def _stand_in(value: Value, constant: Constant) -> Constant | None:
    """A constant to write: its numbers where they are few or say sizes; None where those are not known."""
    array: Any = constant.array
    if array is not None and (array.size <= _SMALL or not value.is_float):
        return constant
    if not value.is_float:
        return None
    shape = tuple(size for size in value.shape or () if isinstance(size, int))
    dtype = np.float32 if array is None else array.dtype
    return Constant(np.zeros(shape, dtype))
