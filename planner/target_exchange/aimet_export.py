"""A target as AIMET's quantsim configuration: the switches that a simulation in AIMET needs to resemble
the device.

AIMET puts quantizers on every operator of a model, so operators without a row are switched off here. Parts
without a key in the file (predicates, rules between scales, accumulators, prices) are reported, kernel by
kernel. The way back is `aimet`.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

from planner.ir.types.qtypes import FloatType, Storage
from planner.target.expressions import parse_number
from planner.target.patterns import Node, OpPattern, Variable, parse_pattern
from planner.target.records import PortPattern, PortType, Row, Target
from planner.target_exchange.draft import sentences
from planner.target_exchange.vocabulary import FORMS

WIDTHS: Final = (4, 8, 16, 32)
LINEAR: Final = tuple(op for op, form in FORMS.items() if form == "linear")
SILENT: Final = frozenset({"multiplier_scale", "free_scale", "multiplier_accumulator_scale"})
"""Rules that AIMET's fake quantizers keep by themselves: scales are free, biases are float."""


@dataclass(frozen=True, slots=True)
class Exported:
    """A file's text, and the facts of the target that it does not say."""

    text: str
    unsaid: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Op:
    """The settings that the rows of one operator amount to; None where there is no such port."""

    kernels: tuple[tuple[tuple[int, bool], tuple[int, bool] | None], ...]
    symmetric: bool | None
    per_channel: bool | None
    weight: bool | None
    weight_symmetric: bool | None
    narrow: bool | None
    bias: bool | None
    bias_symmetric: bool | None
    fixed: tuple[Fraction, Fraction] | None
    keeps: bool


def export_aimet(target: Target) -> Exported:
    """Write AIMET's configuration for a target."""
    unsaid: dict[str, None] = {}
    rows = _rows_of_ops(target, unsaid)
    ops = {op: _op(op, found, target, unsaid) for op, found in rows.items()}
    defaults, common = _defaults(target, ops)
    unsaid[
        "op_type: AIMET quantizes every operator it meets; those of ONNX without a row are switched off"
    ] = None
    if common.bias is False:
        unsaid[
            "params.bias: AIMET keeps biases in float; integers on the grid of the product are not simulated"
        ] = None
    entries = {op: entry for op in FORMS if (entry := _entry(ops.get(op), common))}
    bias: dict[str, str] = {"is_quantized": _word(bool(common.bias))}
    if common.bias and common.bias_symmetric != common.weight_symmetric:
        bias["is_symmetric"] = _word(bool(common.bias_symmetric))
    document = {
        "defaults": defaults,
        "params": {"bias": bias},
        "op_type": entries,
        "supergroups": [{"op_list": list(chain)} for chain in _chains(target, unsaid)],
        "model_input": {"is_input_quantized": "True"},
        "model_output": {},
    }
    _remaining(target, unsaid)
    return Exported(json.dumps(document, indent=2) + "\n", tuple(unsaid))


def _word(truth: bool) -> str:  # noqa: FBT001 - one argument, and the name says it
    return "True" if truth else "False"


# Operators and their rows


def _rows_of_ops(target: Target, unsaid: dict[str, None]) -> dict[str, list[Row]]:
    """Rows by the operator that they serve: of a fused kernel, the innermost one."""
    heads: dict[str, dict[str, None]] = {}
    for fusion in target.fusions:
        for text in fusion.patterns:
            for op in _heads(parse_pattern(text).root):
                heads.setdefault(fusion.kernel, {})[op] = None
    found: dict[str, list[Row]] = {}
    for kernel, group in target.rows.items():
        begun = heads.get(kernel, {kernel: None})
        # A MatMul with an Add behind it is what Gemm is, to AIMET too.
        ops = [op for op in begun if op in FORMS and not (op == "MatMul" and "Gemm" in begun)]
        if not ops:
            unsaid[f"{kernel}: no operator of AIMET's"] = None
        for op in ops:
            found.setdefault(op, []).extend(group)
    return found


def _heads(node: OpPattern | None) -> Iterator[str]:
    """The operators that a pattern begins with; a linear one where there is one."""
    if node is None:
        return
    linear = [op for op in _all(node) if op in LINEAR]
    if linear:
        yield linear[0]
        return
    inner = [arg for arg in node.args if isinstance(arg, OpPattern)]
    if inner:
        yield from _heads(inner[0])
    else:
        yield from node.types


def _all(node: Node) -> Iterator[str]:
    if isinstance(node, OpPattern):
        yield from node.types
        for arg in node.args:
            yield from _all(arg)


def _op(op: str, rows: Sequence[Row], target: Target, unsaid: dict[str, None]) -> _Op:
    kernels: dict[tuple[tuple[int, bool], tuple[int, bool] | None], None] = {}
    keeps = True
    for row in rows:
        reads = row.inputs[0].type if row.inputs else PortType()
        weight = _weight(row) if FORMS[op] in ("linear", "norm") else None
        keeps = keeps and _keeps(row)
        width = _width(reads, target)
        if width is None:
            unsaid[
                f"{op}: {reads} at {row.source} has no width of AIMET's ({', '.join(map(str, WIDTHS))})"
            ] = None
            continue
        kernels[width, None if weight is None else _width(weight.type, target)] = None
        _tell(op, row, unsaid)
    first = rows[0]
    weight = _weight(first) if FORMS[op] in ("linear", "norm") else None
    bias = first.inputs[2] if weight is not None and len(first.inputs) > 2 else None
    stored = _stored(first.inputs[0].type, target) if first.inputs else None
    return _Op(
        kernels=tuple(kernels),
        symmetric=None if stored is None else _symmetric(stored),
        per_channel=None if weight is None or op not in LINEAR else weight.type.granularity != "tensor",
        weight=None if weight is None else not isinstance(weight.type.storage, FloatType),
        weight_symmetric=None if weight is None else _symmetric(weight.type),
        narrow=None if weight is None else _narrow(weight.type),
        bias=None if bias is None else _own_scale(first, bias),
        bias_symmetric=None if bias is None else _symmetric(bias.type),
        fixed=_fixed(op, rows, target, unsaid),
        keeps=keeps,
    )


def _weight(row: Row) -> PortPattern | None:
    if len(row.inputs) < 2 or row.inputs[1].variadic:
        return None
    return row.inputs[1] if row.when.get(row.inputs[1].name, "constant") == "constant" else None


def _keeps(row: Row) -> bool:
    """Whether the result has the encoding of what is read: one scale over all ports, one of them read."""
    ports = {port.name for port in (*row.inputs, *row.outputs)}
    return (
        len(row.inputs) == 1
        and not row.inputs[0].variadic
        and not row.computes
        and any(rule.kind == "same_scale" and set(rule.args["ports"]) == ports for rule in row.rules)
    )


def _own_scale(row: Row, bias: PortPattern) -> bool:
    tied = any(rule.kind == "multiplier_accumulator_scale" for rule in row.rules)
    return isinstance(bias.type.storage, Storage) and not tied


def _stored(port: PortType, target: Target) -> PortType:
    return target.default_port if port.storage is None else port


def _width(port: PortType, target: Target) -> tuple[int, bool] | None:
    """Bits, and whether they are a float's; None where AIMET has no such width."""
    storage = _stored(port, target).storage
    if isinstance(storage, FloatType):
        bits = {"f16": 16, "bf16": 16, "f32": 32}.get(str(storage))
        return None if bits is None else (bits, True)
    if not isinstance(storage, Storage) or storage.bits not in WIDTHS:
        return None
    return storage.bits, False


def _symmetric(port: PortType) -> bool:
    return port.symmetric or (
        isinstance(port.storage, Storage) and port.storage.signed and port.zero_point == 0
    )


def _narrow(port: PortType) -> bool:
    storage = port.storage
    return isinstance(storage, Storage) and storage.signed and storage.qmin == -storage.qmax


def _fixed(
    op: str, rows: Sequence[Row], target: Target, unsaid: dict[str, None]
) -> tuple[Fraction, Fraction] | None:
    found: list[tuple[Fraction, Fraction]] = []
    for row in rows:
        for rule in row.rules:
            port = next((out for out in row.outputs if out.name == rule.args.get("port")), None)
            if rule.kind != "fixed_scale" or port is None:
                continue
            storage = _stored(port.type, target).storage
            if isinstance(storage, Storage):
                scale, zero = parse_number(str(rule.args["scale"])), int(rule.args.get("zero_point", 0))
                found.append(((storage.qmin - zero) * scale, (storage.qmax - zero) * scale))
    if len(dict.fromkeys(found)) > 1:
        unsaid[f"{op}: fixed scales that differ by width; that of the first row is written"] = None
    return found[0] if found else None


def _tell(op: str, row: Row, unsaid: dict[str, None]) -> None:
    """Say what of a row has no key in AIMET's file."""
    ports = {port.name for port in (*row.inputs, *row.outputs)}
    keys = [key for key in row.when if key not in ports]
    if keys:
        unsaid[f"{op}: what {row.kernel} asks of {sentences(keys)}"] = None
    for rule in row.rules:
        if rule.kind == "same_scale" and not _keeps(row):
            unsaid[f"{op}: one scale of several ports ({row.kernel}); each has its own quantizer"] = None
        elif rule.kind not in SILENT and rule.kind not in ("same_scale", "fixed_scale"):
            unsaid[f"{op}: the rule {rule.kind} of {row.kernel}"] = None
        elif rule.kind == "multiplier_scale" and rule.args.get("range"):
            unsaid[f"{op}: the range of multipliers of {row.kernel}"] = None
    for port in (*row.inputs, *row.outputs):
        kind = port.type
        told = {
            "power_of_two": kind.power_of_two,
            "block_size": bool(kind.block_size),
            "scale_min or scale_max": kind.scale_min is not None or kind.scale_max is not None,
            "weight_bits_effective": kind.weight_bits_effective is not None,
            "weight_pairs": kind.weight_pairs is not None,
        }
        for word, there in told.items():
            if there:
                unsaid[f"{op}: {word} at port {port.name} of {row.kernel}"] = None


# The document


def _defaults(target: Target, ops: Mapping[str, _Op]) -> tuple[dict[str, Any], _Op]:
    """The section `defaults`, and the settings in it that most operators have in common."""
    linear = [found for op, found in ops.items() if op in LINEAR and found.weight is not None]
    weighed = linear or [found for found in ops.values() if found.weight is not None]
    kernels = Counter(found.kernels for found in ops.values() if found.kernels)
    pairs = next((found.kernels for found in linear if found.kernels), None)
    common = _Op(
        kernels=pairs or (kernels.most_common(1)[0][0] if kernels else ()),
        symmetric=_symmetric(target.default_port),
        per_channel=_most(found.per_channel for found in weighed),
        weight=_most(found.weight for found in weighed),
        weight_symmetric=_most(found.weight_symmetric for found in weighed),
        narrow=_most(found.narrow for found in weighed),
        bias=_most(found.bias for found in weighed),
        bias_symmetric=_most(found.bias_symmetric for found in weighed),
        fixed=None,
        keeps=False,
    )
    ops_section = {"is_output_quantized": "True"}
    if common.symmetric:
        ops_section["is_symmetric"] = "True"
    document: dict[str, Any] = {
        "ops": ops_section,
        "params": {
            "is_quantized": _word(bool(common.weight)),
            "is_symmetric": _word(bool(common.weight_symmetric)),
        },
        "strict_symmetric": _word(bool(common.narrow)),
        "per_channel_quantization": _word(bool(common.per_channel)),
    }
    if common.kernels and common.kernels != (((8, False), (8, False)),):
        document["supported_kernels"] = _supported(common.kernels, with_param=True)
    return document, common


def _most(answers: Iterator[bool | None]) -> bool | None:
    counts = Counter(answer for answer in answers if answer is not None)
    return counts.most_common(1)[0][0] if counts else None


def _supported(
    kernels: Sequence[tuple[tuple[int, bool], tuple[int, bool] | None]], *, with_param: bool
) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for activation, param in kernels:
        entry = {"activation": _entry_width(activation)}
        if param is not None or with_param:
            entry["param"] = _entry_width(activation if param is None else param)
        if entry not in found:
            found.append(entry)
    return found


def _entry_width(width: tuple[int, bool]) -> dict[str, Any]:
    return {"bitwidth": width[0], "dtype": "float" if width[1] else "int"}


def _entry(found: _Op | None, common: _Op) -> dict[str, Any]:
    """The entry of an operator: what is not as in the defaults; {} where all is."""
    if found is None or found.keeps or not found.kernels:
        return {"is_output_quantized": "False"}
    entry: dict[str, Any] = {}
    if found.symmetric is not None and found.symmetric != common.symmetric:
        entry["is_symmetric"] = _word(found.symmetric)
    params: dict[str, str] = {}
    if found.weight is not None and found.weight != common.weight:
        params["is_quantized"] = _word(found.weight)
    if found.weight and found.weight_symmetric != common.weight_symmetric:
        params["is_symmetric"] = _word(bool(found.weight_symmetric))
    if params:
        entry["params"] = {"weight": params}
    widths = {activation for activation, _ in common.kernels}
    if (found.weight is not None and found.kernels != common.kernels) or (
        found.weight is None and {activation for activation, _ in found.kernels} != widths
    ):
        entry["supported_kernels"] = _supported(found.kernels, with_param=False)
    if found.per_channel is not None and found.weight and found.per_channel != common.per_channel:
        entry["per_channel_quantization"] = _word(found.per_channel)
    if found.fixed is not None:
        entry["encoding_constraints"] = {"min": float(found.fixed[0]), "max": float(found.fixed[1])}
    return entry


def _chains(target: Target, unsaid: dict[str, None]) -> list[tuple[str, ...]]:
    """Patterns that are chains of operators, innermost first, each alternative by itself."""
    found: dict[tuple[str, ...], None] = {}
    for fusion in target.fusions:
        for text in fusion.patterns:
            root = parse_pattern(text).root
            chains = [] if root is None else list(_chain(root))
            if not chains:
                unsaid[f"{fusion.kernel}: the pattern {text!r} is no chain of operators"] = None
            for chain in chains:
                # Gemm, and the Add behind a MatMul, are one operator to AIMET.
                ops = ("Gemm", *chain[2:]) if chain[:2] == ("MatMul", "Add") else chain
                if len(ops) > 1:
                    found[ops] = None
        keys = [key for key, value in fusion.where.items() if value not in ("constant", "dynamic")]
        if keys:
            unsaid[f"{fusion.kernel}: what its fusion asks of {sentences(keys)}"] = None
    return list(found)


def _chain(node: OpPattern) -> Iterator[tuple[str, ...]]:
    inner = [arg for arg in node.args if isinstance(arg, OpPattern)]
    others = [arg for arg in node.args if not isinstance(arg, OpPattern | Variable)]
    if len(inner) > 1 or others:
        return
    below = list(_chain(inner[0])) if inner else [()]
    for chain in below:
        if node.optional:
            yield chain
        for op in node.types:
            yield (*chain, op)


def _remaining(target: Target, unsaid: dict[str, None]) -> None:
    """Collect the parts of a target beside its rows, which AIMET cannot say."""
    rows = [row for group in target.rows.values() for row in group]
    arithmetic = sentences(sorted({row.requantize for row in rows})) if rows else "none"
    unsaid[f"requantize: {arithmetic}; AIMET computes in float"] = None
    if any(row.accumulator is not None for row in rows):
        unsaid["accumulators: AIMET's sums are floats"] = None
    if not target.rescale_allowed:
        unsaid["rescale.allowed: AIMET quantizes each tensor by itself"] = None
    unsaid["prices of rescales and of lost bits: AIMET weighs nothing"] = None
