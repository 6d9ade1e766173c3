"""Port types and rows from the validated document: names resolved, types built, problems collected.

In: the models of `schema` and the marked tree (for places). Out: records. Source: docs/targets/reference.md.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final

from planner.errors import InputError, Problem, RuleError, TargetError
from planner.ir.arithmetic.multipliers import MOST_BITS, Multiplier
from planner.ir.types.qtypes import EXPRESSED, FloatType, Storage, round_scale, storage
from planner.ir.types.ranges import power_of_two_from, power_of_two_to
from planner.ir.types.typetext import parse_storage
from planner.target.conditions.grammar import check_words, parse_condition, refs_of
from planner.target.expressions import Ref, parse_expression, parse_number, references, refuse_constants
from planner.target.records import (
    ASKED,
    DynamicRange,
    Granularity,
    LookupTable,
    Overflow,
    PartialSums,
    PortPattern,
    PortType,
    Row,
    Rule,
    WorkRates,
)
from planner.target.schema import (
    AccumulatorModel,
    DefaultsModel,
    MultiplierModel,
    RowModel,
    RuleModel,
    Signature,
    TypeModel,
    WorkModel,
)
from planner.target.yamltree import Node, nearest

ANY: Final = PortType()
DERIVABLE: Final = ("scale", "zero_point", "qmin", "qmax")
FLOATS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("float", "float32", "fp32"), "f32"),
    **dict.fromkeys(("half", "float16", "fp16"), "f16"),
    "bfloat16": "bf16",
}
"""Other tools' words for storages in float."""
AXIS_ROLES: Final = ("out_channel",)
TABLE_BITS: Final = 16
E8M0: Final = "e8m0"
"""Scales that are an exponent alone (OCP Microscaling): powers of two, whatever float holds them."""
BIASES: Final[Mapping[str, PortType]] = {
    "i32": PortType(storage("i32"), symmetric=True),
    "i64": PortType(storage("i64"), symmetric=True),
    "float": PortType(FloatType("f32")),
}
"""Type of an accumulator port that a row leaves open, by `defaults.bias`."""


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
        return "block_size", "block_size goes with granularity: block, and only with it"
    if model.short_block and model.granularity != "block":
        return "short_block", "short_block goes with granularity: block"
    if model.sparsity is not None:
        few, many = _sparsity(model.sparsity)
        if few >= many:
            return "sparsity", f"sparsity {few}:{many} leaves nothing out; the first number is the lesser"
        if not model.symmetric and model.zero_point is None:
            return (
                "sparsity",
                "sparsity goes with symmetric: true or a zero_point: 0 is one number",
            )
    if model.weight_pairs is not None and (not model.symmetric or model.granularity == "block"):
        return "weight_pairs", "weight_pairs goes with symmetric: true, of a tensor or an axis"
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
    low = _bound(building, model.scale_min, child(node, "scale_min"))
    high = _bound(building, model.scale_max, child(node, "scale_max"))
    if model.power_of_two:
        low = None if low is None else power_of_two_from(low)
        high = None if high is None else power_of_two_to(high)
    if low is not None and high is not None and low > high:
        what = "no power of two" if model.power_of_two else "no scale"
        message = f"{what} lies between {model.scale_min} and {model.scale_max}"
        building.problems.append(child(node, "scale_min").problem("T028", message))
    return low, high


def _bound(building: Building, value: float | str | None, node: Node) -> float | None:
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


def build_row(
    building: Building, model: RowModel, node: Node, defaults: DefaultsModel, arithmetic: str
) -> Row:
    """Make a row, with the target's defaults for what it leaves out; `arithmetic` is their `requantize`."""
    inputs = _ports(building, model.inputs, child(node, "in"), "xs")
    inputs = _with_bias(inputs, model, BIASES[defaults.bias])
    outputs = _ports(building, model.outputs, child(node, "out"), "ys")
    seen: set[str] = set()
    for side, ports in (("in", inputs), ("out", outputs)):
        for port in ports:
            if port.name in seen:
                message = f"two ports of this row are named {port.name!r}; rules could not tell them apart"
                building.problems.append(child(node, side).problem("T029", message))
            seen.add(port.name)
    for name, axis in model.axis.items():
        if isinstance(axis, str) and axis not in AXIS_ROLES:
            message = f"unknown axis {axis!r}; accepted: a number, {', '.join(AXIS_ROLES)}"
            building.problems.append(child(node, "axis", name).problem("T029", message))
    accumulator, overflow, partial = _accumulator(building, model.accumulator, child(node, "accumulator"))
    own = model.requantize
    return Row(
        kernel=str(model.kernel),
        inputs=inputs,
        outputs=outputs,
        rules=tuple(
            build_rule(building, rule, child(node, "rules", i)) for i, rule in enumerate(model.rules)
        ),
        axis={bare(name): axis for name, axis in model.axis.items()},
        when=freeze(_conditions(defaults.when, model.when, seen)),
        requantize=arithmetic if own is None else build_arithmetic(building, own, child(node, "requantize")),
        accumulator=accumulator,
        overflow=overflow,
        partial=partial,
        table=None if model.table is None else _table(building, model, inputs, outputs, node),
        dynamic=_dynamic(building, model, (inputs, outputs), node),
        computes=model.computes,
        float=model.float_,
        work=build_work(defaults.work, model.work),
        runs_on=model.runs_on or "",
        source=node.where,
    )


def build_arithmetic(building: Building, given: str | MultiplierModel, node: Node) -> str:
    """The name of an arithmetic: of multipliers of the device's own, their text."""
    if isinstance(given, str):
        return given
    low, high = given.shift
    own = building.attempt(
        node,
        "T028",
        lambda: Multiplier(
            given.multiplier,
            given.rounding,
            (low, high),
            cut_from=given.cut_from or 0,
            flushes=given.too_small == "zero",
        ),
    )
    # What TOSA's SINGLE_ROUND computes is written as such, so that formats which have it take it.
    return "tosa_single" if own in (None, Multiplier(MOST_BITS)) else str(own)


def _accumulator(
    building: Building, given: str | AccumulatorModel | None, node: Node
) -> tuple[Storage | None, Overflow, PartialSums | None]:
    """Storage of the accumulator, what becomes of sums beyond it, and partial sums."""
    if given is None:
        return None, "refuse", None
    whole = (
        AccumulatorModel(storage=given, overflow="refuse", partial=None) if isinstance(given, str) else given
    )
    store = building.attempt(child(node, "storage"), "T022", lambda: parse_storage(whole.storage))
    if whole.partial is None:
        return store, whole.overflow, None
    few, products = whole.partial.storage, whole.partial.products
    kept = building.attempt(child(node, "partial", "storage"), "T022", lambda: parse_storage(few))
    return store, whole.overflow, None if kept is None else PartialSums(kept, products)


def _table(
    building: Building,
    model: RowModel,
    inputs: tuple[PortPattern, ...],
    outputs: tuple[PortPattern, ...],
    row: Node,
) -> LookupTable | None:
    """The table of a row: its ends are numbers, the lesser first, and its ports have few integers."""
    given, node = model.table, child(row, "table")
    for port in (*inputs[:1], *outputs):
        store = port.type.storage
        if not isinstance(store, Storage) or store.bits > TABLE_BITS:
            message = f"a table wants integers of up to {TABLE_BITS} bits, port {port.name!r} has {port.type}"
            building.problems.append(node.problem("T028", message))
    if given is None:
        return None
    if given.input is None:
        return LookupTable(given.entries, interpolate=given.interpolate)
    low, high = (_bound(building, end, child(node, "input")) for end in given.input)
    if low is not None and high is not None and low >= high:
        problem = child(node, "input").problem("T028", f"a table from {low:g} to {high:g}; the lesser first")
        building.problems.append(problem)
    return LookupTable(given.entries, low, high, given.interpolate)


def _dynamic(
    building: Building,
    model: RowModel,
    ports: tuple[tuple[PortPattern, ...], tuple[PortPattern, ...]],
    row: Node,
) -> DynamicRange | None:
    """What is quantized at run time: a float beside stored weights, and float results."""
    given, node = model.dynamic, child(row, "dynamic")
    if given is None:
        return None
    inputs, outputs = ports
    store = building.attempt(child(node, "storage"), "T022", lambda: parse_storage(given.storage))
    problems = []
    if any(port.type.storage != FloatType("f32") for port in (*inputs[:1], *outputs)):
        problems.append("a dynamic row reads its first input in f32 and gives f32")
    kinds = [port.type for port in inputs[1:2]]
    if not kinds or not isinstance(kinds[0].storage, Storage) or kinds[0].granularity == "block":
        problems.append("a dynamic row has weights in integers, per tensor or axis, as its second input")
    if model.accumulator is not None:
        problems.append("sums of a dynamic row are exact, or refused by a format: it has no accumulator")
    building.problems += [node.problem("T028", problem) for problem in problems]
    if store is None:
        return None
    made = building.attempt(node, "T028", lambda: DynamicRange(store, given.per == "token", given.symmetric))
    return made if isinstance(made, DynamicRange) else None


def _conditions(defaults: Mapping[str, Any], own: Mapping[str, Any], ports: set[str]) -> dict[str, Any]:
    """A row's predicates and the target's, but those on ports that the row has not; the row's own win."""
    kept = {key: wanted for key, wanted in defaults.items() if key != "holds" and _applies(key, ports)}
    shared = [
        text
        for text in _listed(defaults.get("holds"))
        if all(_applies(f"{ref.port}.", ports) for ref in _terms(text))
    ]
    whole = [*shared, *_listed(own.get("holds"))]
    return {**kept, **own, **({"holds": whole} if whole else {})}


def _applies(key: str, ports: set[str]) -> bool:
    """Whether a predicate is about an op, which is written with a capital, or about a port of the row."""
    owner = key.rpartition(".")[0] or key
    return owner in ports or owner in ("min_bits", ASKED) or "::" in owner or owner[:1].isupper()


def _terms(text: Any) -> tuple[Ref, ...]:
    try:
        return refs_of(parse_condition(text, of_key=False)) if isinstance(text, str) else ()
    except TargetError:
        # Lint says so, with its place (L016).
        return ()


def _listed(value: Any) -> list[Any]:
    return [] if value is None else list(value) if isinstance(value, list | tuple) else [value]


def build_work(*models: WorkModel | None) -> WorkRates:
    """Make the record of a kernel's work: of each rate the last that is given, null too."""
    given: dict[str, float | None] = {}
    for model in models:
        given |= {} if model is None else model.model_dump(exclude_unset=True)
    return WorkRates(**{name: None if rate is None else float(rate) for name, rate in given.items()})


def _with_bias(ports: tuple[PortPattern, ...], model: RowModel, bias: PortType) -> tuple[PortPattern, ...]:
    """Give accumulator ports without a type of their own the target's."""
    rules = [rule.multiplier_accumulator_scale for rule in model.rules]
    sums = {bare(rule.port) for rule in rules if rule is not None}
    return tuple(
        replace(port, type=bias) if port.name in sums and port.type.is_wildcard else port for port in ports
    )


def _ports(building: Building, signature: Signature | None, node: Node, tail: str) -> tuple[PortPattern, ...]:
    if signature is None:
        return (PortPattern(tail, ANY, variadic=True),)
    names = list(signature)
    for name in names[:-1]:
        if name.endswith("*"):
            message = f"variadic port {name!r} takes all remaining ports, so it must be the last"
            building.problems.append(node.problem("T029", message, key=name))
    return tuple(
        PortPattern(
            bare(name),
            build_spec(building, spec, node, name),
            optional=name.endswith("?"),
            variadic=name.endswith("*"),
        )
        for name, spec in signature.items()
    )


def build_rule(building: Building, model: RuleModel, node: Node) -> Rule:
    """Make a rule; its arguments are always a mapping, port names without `?` and `*`."""
    kind = model.kind
    value = getattr(model, kind)
    if kind == "requires":
        args: dict[str, Any] = {"holds": value}
    elif isinstance(value, str):
        args = {"name": value, "args": {}}
    elif isinstance(value, list):
        args = {"ports": value}
    else:
        args = {key: item for key, item in value.model_dump().items() if item is not None}
    for key in ("ports", "of", "port", "out"):
        if key in args:
            item = args[key]
            args[key] = bare(item) if isinstance(item, str) else tuple(bare(name) for name in item)
    _check_arithmetic(building, kind, args, node)
    return Rule(kind, freeze(args), node.where)


def _check_arithmetic(building: Building, kind: str, args: Mapping[str, Any], node: Node) -> None:
    if kind == "derive":
        for key in ("scale", "zero_point"):
            building.attempt(child(node, kind, key), "T025", partial(_derivable, key, str(args[key])))
    if kind == "requires":
        building.attempt(child(node, kind), "T025", partial(_requirable, args["holds"]))
    if kind == "fixed_scale":
        building.attempt(child(node, kind, "scale"), "T025", partial(_fixable, args["scale"]))
    if kind == "multiplier_scale":
        where = child(node, kind, "range")
        ends = [building.attempt(where, "T025", partial(parse_number, end)) for end in args.get("range", ())]
        known = [end for end in ends if end is not None]
        if known != sorted(known):
            building.problems.append(where.problem("T014", "the least multiplier comes first"))


def _fixable(number: float | str) -> None:
    """Read a scale.

    Raises:
      InputError: not a number, or none that float32 has as a scale.
    """
    scale = parse_number(number)
    if scale <= 0:
        raise TargetError("a scale is positive")
    if not round_scale(float(scale), "f32"):
        raise TargetError(f"{number!r} is 0 in float32")


def _derivable(key: str, text: str) -> None:
    """Read an expression of `derive`.

    Raises:
      TargetError: no expression, a reference that `derive` does not know, or no ports give it an answer.
    """
    expression = parse_expression(text)
    asked = references(expression)
    _check_parameters(asked, "derive")
    try:
        refuse_constants(expression)
    except RuleError as error:
        raise TargetError(f"{text!r}: {error.message}") from error
    if key == "scale" and not asked:
        _fixable(text)


def _requirable(text: str) -> None:
    """Read the condition of `requires`.

    Raises:
      TargetError: no condition, or one that asks for anything but parameters of ports.
    """
    condition = parse_condition(text, of_key=False)
    check_words(condition)
    asked = refs_of(condition)
    _check_parameters(asked, "requires")
    if not asked:
        raise TargetError(f"{text!r} asks for no port")


def _check_parameters(asked: Iterable[Ref], rule: str) -> None:
    for ref in asked:
        if ref.attribute not in DERIVABLE or ref.index is not None:
            known = ", ".join(f"{ref.port}.{name}" for name in DERIVABLE)
            raise TargetError(f"{ref} is not known to {rule}; known: {known}")


def bare(name: str) -> str:
    """A port's name without the signs for optional and variadic."""
    return name.rstrip("?*")


def freeze(value: Any) -> Any:
    """Plain data with tuples for lists."""
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        return {key: freeze(item) for key, item in value.items()}
    return tuple(freeze(item) for item in value) if isinstance(value, list | tuple) else value
