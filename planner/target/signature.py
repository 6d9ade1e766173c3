"""Rows from the validated document: names resolved, types built, problems collected.

In: the models of `schema` and the marked tree (for places). Out: records. Source: docs/targets/reference.md.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final

from planner.errors import RuleError, TargetError
from planner.ir.arithmetic.multipliers import MOST_BITS, Multiplier
from planner.ir.types.qtypes import FloatType, Storage, round_scale, storage
from planner.ir.types.typetext import parse_storage
from planner.target.conditions.grammar import check_words, parse_condition, refs_of
from planner.target.expressions import Ref, parse_expression, parse_number, references, refuse_constants
from planner.target.port_types import ANY, Building, build_bound, build_spec, child
from planner.target.records import (
    ASKED,
    DynamicRange,
    LookupTable,
    Overflow,
    PartialSums,
    PortPattern,
    PortType,
    Row,
    Rule,
    WorkRates,
)
from planner.target.schema.document import DefaultsModel
from planner.target.schema.rows import AccumulatorModel, RowModel, WorkModel
from planner.target.schema.rules import RuleModel
from planner.target.schema.types import MultiplierModel, Signature
from planner.target.yamltree import Node

DERIVABLE: Final = ("scale", "zero_point", "qmin", "qmax")
AXIS_ROLES: Final = ("out_channel",)
TABLE_BITS: Final = 16
BIASES: Final[Mapping[str, PortType]] = {
    "i32": PortType(storage("i32"), symmetric=True),
    "i64": PortType(storage("i64"), symmetric=True),
    "float": PortType(FloatType("f32")),
}
"""Type of an accumulator port that a row leaves open, by `defaults.bias`."""


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
            message = f"a table takes integers of up to {TABLE_BITS} bits, port {port.name!r} has {port.type}"
            building.problems.append(node.problem("T028", message))
    if given is None:
        return None
    if given.input is None:
        return LookupTable(given.entries, interpolate=given.interpolate)
    low, high = (build_bound(building, end, child(node, "input")) for end in given.input)
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
    """The run-time quantization of a row: a float beside stored weights, with float results."""
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
        problems.append("a dynamic row has quantized weights, per tensor or axis, as its second input")
    if model.accumulator is not None:
        problems.append("sums of a dynamic row are exact, or refused by a format: it has no accumulator")
    building.problems += [node.problem("T028", problem) for problem in problems]
    if store is None:
        return None
    made = building.attempt(
        node,
        "T028",
        lambda: DynamicRange(store, given.per == "token", given.symmetric, per_batch=given.per == "batch"),
    )
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
