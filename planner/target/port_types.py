"""Port types from the validated document: names resolved, types built, problems collected.

In: the models of `schema` and the marked tree (for places). Out: records. Source: docs/targets/reference.md.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from planner.errors import InputError, Problem, TargetError
from planner.ir.types.qtypes import EXPRESSED, FloatType, Storage, round_scale
from planner.ir.types.ranges import power_of_two_from, power_of_two_to
from planner.ir.types.typetext import parse_storage
from planner.target.expressions import parse_number
from planner.target.records import (
    Granularity,
    PortType,
)
from planner.target.schema.types import TypeModel
from planner.target.yamltree import Node, nearest

ANY: Final = PortType()
FLOATS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("float", "float32", "fp32"), "f32"),
    **dict.fromkeys(("half", "float16", "fp16"), "f16"),
    "bfloat16": "bf16",
}
"""Other tools' words for storages in float."""
E8M0: Final = "e8m0"
"""Scales that are an exponent alone (OCP Microscaling): powers of two, whatever float holds them."""


class Building:
    """Shared while a target is built: the named types, and the problems found so far."""

    def __init__(self) -> None:
        self.types: dict[str, PortType] = {}
        self.problems: list[Problem] = []

    def attempt(self, node: Node, code: str, make: Callable[[], Any]) -> Any:
        """The result of `make`, or None with its refusal recorded at `node`."""
        try:
            return make()
        except InputError as error:
            self.problems.append(node.problem(code, error.message))
            return None


def child(node: Node, *path: str | int) -> Node:
    """The node at a path, or the deepest one on the way."""
    for step in path:
        entries = node.entries()
        found = node.get(step) if isinstance(step, str) else entries[step] if step < len(entries) else None
        if found is None:
            return node
        node = found
    return node


def build_type(building: Building, model: TypeModel, node: Node) -> PortType:
    """Make a port type from its mapping."""
    store = building.attempt(child(node, "storage"), "T022", lambda: _storage(model.storage, model.range))
    problem = _contradiction(model, store)
    if problem:
        key, message = problem
        building.problems.append(child(node, key).problem("T028", message))
    low, high = _scale_bounds(building, model, node)
    size = model.block_size
    granularity: Granularity = model.granularity
    return PortType(
        storage=store,
        granularity=granularity,
        symmetric=model.symmetric or (isinstance(store, Storage) and bool(store.float_name)),
        power_of_two=model.power_of_two or model.scales == E8M0,
        scale_min=low,
        scale_max=high,
        zero_point=model.zero_point,
        block_size=() if size is None else (size,) if isinstance(size, int) else tuple(size),
        weight_bits_effective=model.weight_bits_effective,
        weight_pairs=model.weight_pairs,
        short_block=model.short_block,
        sparsity=None if model.sparsity is None else _sparsity(model.sparsity),
        scales=model.scales,
    )


def _sparsity(text: str) -> tuple[int, int]:
    few, many = map(int, text.split(":"))
    return few, many


def _storage(name: str, limits: list[int] | None) -> Storage | FloatType | None:
    if name == "*":
        return None
    if name in EXPRESSED:
        return FloatType(name)
    ours = FLOATS.get(name.lower())
    if ours is not None:
        raise TargetError(f"unknown storage {name!r} ({ours} here)")
    store = parse_storage(name)
    if limits is None:
        return store
    return parse_storage(f"{store.name}<{limits[0]}:{limits[1]}>")


def _is_storage(name: str) -> bool:
    try:
        return _storage(name, None) is not None
    except InputError:
        return False


def _contradiction(model: TypeModel, store: Storage | FloatType | None) -> tuple[str, str] | None:
    if isinstance(store, Storage):
        # Zero point 0 of an unsigned storage could hold no negative real: surely not meant.
        if model.symmetric and not store.signed:
            return "symmetric", f"symmetric needs signed storage, {store} has none (zero_point: fixes one)"
        if model.zero_point is not None and not store.qmin <= model.zero_point <= store.qmax:
            return "zero_point", f"zero point {model.zero_point} lies outside {store.qmin}:{store.qmax}"
    if isinstance(store, Storage) and store.float_name and model.zero_point:
        return "zero_point", f"zero point {model.zero_point} of {store}: floats have their own zero"
    if model.symmetric and model.zero_point:
        return "zero_point", f"zero point {model.zero_point} of a symmetric type must be 0"
    if (model.granularity == "block") != (model.block_size is not None):
        return "block_size", "block_size needs granularity: block, and granularity: block needs block_size"
    if model.short_block and model.granularity != "block":
        return "short_block", "short_block needs granularity: block"
    if model.sparsity is not None:
        few, many = _sparsity(model.sparsity)
        if few >= many:
            return "sparsity", f"sparsity {few}:{many} leaves nothing out; the first number is the lesser"
        if not model.symmetric and model.zero_point is None:
            return "sparsity", "sparsity needs symmetric: true or a zero_point, so that 0 is one number"
    if model.weight_pairs is not None and (not model.symmetric or model.granularity == "block"):
        return "weight_pairs", "weight_pairs needs symmetric: true, per tensor or axis"
    if model.scales != "f32":
        if model.granularity != "block":
            return "scales", "scales go with granularity: block"
        if model.scale_min is not None or model.scale_max is not None:
            return "scales", f"scales in {model.scales} have no scale_min and scale_max beside them"
    if isinstance(model.block_size, int | list):
        sizes = [model.block_size] if isinstance(model.block_size, int) else model.block_size
        if not sizes or min(sizes) < 1:
            return "block_size", "block sizes are positive"
    return None


def _scale_bounds(building: Building, model: TypeModel, node: Node) -> tuple[float | None, float | None]:
    """The least and the greatest scale of a type that it can have: powers of two, where it has no other."""
    low = build_bound(building, model.scale_min, child(node, "scale_min"))
    high = build_bound(building, model.scale_max, child(node, "scale_max"))
    if model.power_of_two:
        low = None if low is None else power_of_two_from(low)
        high = None if high is None else power_of_two_to(high)
    if low is not None and high is not None and low > high:
        what = "no power of two" if model.power_of_two else "no scale"
        message = f"{what} lies between {model.scale_min} and {model.scale_max}"
        building.problems.append(child(node, "scale_min").problem("T028", message))
    return low, high


def build_bound(building: Building, value: float | str | None, node: Node) -> float | None:
    """Make a float32 of a number of the document."""
    if value is None:
        return None
    # As a float32, which scales are: a scale at its bound must be a value of its type.
    found = building.attempt(node, "T025", lambda: round_scale(float(parse_number(value)), "f32"))
    return None if found is None else float(found)


def build_spec(building: Building, spec: str | TypeModel | None, node: Node, *path: str) -> PortType:
    """Make a port type from a type's name, `*`, nothing (`*`) or an inline mapping, which is at `path`."""
    if isinstance(spec, TypeModel):
        return build_type(building, spec, child(node, *path))
    if spec is None or spec == "*":
        return ANY
    if spec in building.types:
        return building.types[spec]
    hint = nearest(spec, [*building.types, "*"])
    if _is_storage(spec):
        hint = f" (a storage is written {{storage: {spec}}}, or named under `types`)"
    building.problems.append(child(node, *path).problem("T020", f"unknown type {spec!r}{hint}"))
    return ANY
