"""The support table of a target: each kernel, the types of its ports, its rules.

Records and Markdown here; HTML is `planner.target_tests.support_page`. Source: docs/command.md.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from planner.target.records import (
    DynamicRange,
    Engines,
    Files,
    LookupTable,
    PortPattern,
    PortType,
    Row,
    Rule,
    Target,
    WorkRates,
)

HEAD: Final = ("kernel", "ops", "in", "out", "rules", "when", "arithmetic", "row")


@dataclass(frozen=True, slots=True)
class SupportRow:
    """One line of the table: a row's texts, one entry per port, rule or predicate."""

    kernel: str
    ops: tuple[str, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    rules: tuple[str, ...]
    when: tuple[str, ...]
    arithmetic: str
    source: str

    def cells(self) -> tuple[tuple[str, ...], ...]:
        """The texts in the order of `HEAD`."""
        arithmetic, source = (self.arithmetic,), (self.source,)
        return (
            (self.kernel,),
            self.ops,
            self.inputs,
            self.outputs,
            self.rules,
            self.when,
            arithmetic,
            source,
        )


@dataclass(frozen=True, slots=True)
class Support:
    """The whole table: facts about the target as (name, text), and its rows in order of preference."""

    title: str
    facts: tuple[tuple[str, str], ...]
    rows: tuple[SupportRow, ...]
    unserved: tuple[str, ...]


def support_of(target: Target) -> Support:
    """Collect the support table of a target; kernels that are fused and have no row are `unserved`."""
    made: dict[str, list[str]] = {}
    for fusion in target.fusions:
        asked = ", ".join(f"{key}: {value_text(value)}" for key, value in fusion.where.items())
        made.setdefault(fusion.kernel, []).extend(
            f"{pattern} where {asked}" if asked else pattern for pattern in fusion.patterns
        )
    rows = tuple(
        _support_row(row, made.get(row.kernel, [row.kernel]))
        for group in target.rows.values()
        for row in group
    )
    unserved = tuple(kernel for kernel in made if kernel not in target.rows)
    return Support(f"{target.title} ({target.id} {target.version})", _facts(target), rows, unserved)


def support_markdown(target: Target) -> str:
    """Write the support table as Markdown."""
    support = support_of(target)
    lines = [f"# {support.title}", "", "| | |", "|---|---|"]
    lines += [f"| {_cell([name])} | {_cell([text])} |" for name, text in support.facts]
    lines += ["", "## Kernels", "", f"| {' | '.join(HEAD)} |", "|---" * len(HEAD) + "|"]
    lines += ["| " + " | ".join(_cell(cell) for cell in row.cells()) + " |" for row in support.rows]
    if support.unserved:
        lines += ["", f"In float, without a row: {', '.join(f'`{kernel}`' for kernel in support.unserved)}."]
    return "\n".join(lines) + "\n"


def value_text(value: Any) -> str:
    """A predicate's or rule's argument as a file writes it."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {value_text(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(value_text, value))}]"
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    return str(value)


def port_text(port: PortPattern) -> str:
    """`b?: i32 symmetric`, with all that the type asks for."""
    return f"{port.name}{'?' * port.optional}{'*' * port.variadic}: {type_text(port.type)}"


def type_text(kind: PortType) -> str:
    """Everything a port asks of a type."""
    extras = [
        text
        for wanted, text in (
            (kind.power_of_two, "scale 2^n"),
            (kind.zero_point is not None, f"zero point {kind.zero_point}"),
            (kind.scale_min is not None, f"scale >= {kind.scale_min!r}"),
            (kind.scale_max is not None, f"scale <= {kind.scale_max!r}"),
            (bool(kind.block_size), f"blocks of {' or '.join(map(str, kind.block_size))}"),
            (kind.short_block, "the last one may be shorter"),
            (kind.scales != "f32", f"scales in {kind.scales}"),
            (kind.weight_bits_effective is not None, f"{kind.weight_bits_effective} bits used"),
            (kind.weight_pairs is not None, f"pairs up to {kind.weight_pairs}"),
        )
        if wanted
    ]
    return ", ".join([str(kind), *extras])


def rule_text(rule: Rule) -> str:
    """`same_scale: x, y`."""
    args = rule.args
    if set(args) <= {"ports"}:
        return f"{rule.kind}: {', '.join(args.get('ports', ()))}".rstrip(": ")
    return f"{rule.kind}: " + ", ".join(f"{key} {value_text(value)}" for key, value in args.items())


def table_text(table: LookupTable) -> str:
    """`table of 64 over -8 to 8, 7 bits between`."""
    over = "" if table.low is None else f" over {table.low:g} to {table.high:g}"
    between = f", {table.interpolate} bits between" if table.interpolate else ""
    return f"table of {table.entries}{over}{between}"


def dynamic_text(by: DynamicRange) -> str:
    """`first input in i8 per token at run time`."""
    store = f"{'symmetric ' * by.symmetric}{by.storage}"
    return f"first input in {store} per {by.per} at run time"


def accumulator_text(row: Row) -> str:
    """`i32 accumulator`, with what becomes of longer sums and partial ones."""
    more = "" if row.overflow == "refuse" else f" that {row.overflow}s"
    if row.partial is not None:
        more += f", {row.partial.storage} for {row.partial.products} products"
    return f"{row.accumulator} accumulator{more}"


def work_text(work: WorkRates) -> str:
    """`mac 0.25, element 1`; `default` where nothing is given."""
    given = [f"{name} {rate:g}" for name, rate in asdict(work).items() if rate is not None]
    return ", ".join(given) or "default"


def _support_row(row: Row, ops: Sequence[str]) -> SupportRow:
    arithmetic = [f"runs in {row.float}"] if row.float else [row.requantize]
    arithmetic += [accumulator_text(row)] if row.accumulator is not None else []
    arithmetic += [table_text(row.table)] if row.table is not None else []
    arithmetic += [dynamic_text(row.dynamic)] if row.dynamic is not None else []
    arithmetic += [f"on {row.runs_on}"] if row.runs_on else []
    arithmetic += [f"work {work_text(row.work)}"] if row.work != WorkRates() else []
    return SupportRow(
        kernel=row.kernel,
        ops=tuple(ops),
        inputs=tuple(map(port_text, row.inputs)),
        outputs=tuple(map(port_text, row.outputs)),
        rules=(*map(rule_text, row.rules), *(("computes",) if row.computes else ())),
        when=(
            *(f"{key}: {value_text(value)}" for key, value in row.when.items()),
            *(f"axis of {name}: {axis}" for name, axis in row.axis.items()),
        ),
        arithmetic=", ".join(arithmetic),
        source=row.source,
    )


def _wanted_text(target: Target) -> str:
    wanted = target.costs.wanted_db
    if wanted is None:
        return "anything"
    return f"{wanted:g} dB, else {'float' if target.costs.wanted_float else 'the most that a row leaves'}"


def _files_text(files: Files) -> str:
    opset = f"opset {files.opset[0]} to {files.opset[1]}" if files.opset else ""
    sizes = f"{files.sizes} sizes" if files.sizes else ""
    runtime = f"run by {files.runtime}" if files.runtime else ""
    reader = f"read by {files.reader}" if files.reader else ""
    return ", ".join(filter(None, (opset, (files.layout or "").replace("_", " "), sizes, runtime, reader)))


def _engines_text(engines: Engines) -> str:
    way = ", one way" if engines.one_way else ""
    return f"{', '.join(engines.names)}{way}; {engines.crossing:g} per element that crosses"


def _facts(target: Target) -> tuple[tuple[str, str], ...]:
    costs = target.costs
    kinds = ("requantize", "zero_point", "clamp", "widen", "narrow", "quantize", "dequantize")
    limit = "none" if costs.max_bits_lost is None else f"{costs.max_bits_lost:g}"
    facts = [
        ("mode", target.mode),
        ("default port", type_text(target.default_port)),
        ("without a row", "runs in float" if target.on_no_kernel == "float" else "is an error"),
        ("rescales between kernels", "allowed" if target.rescale_allowed else "forbidden"),
        (
            "rescale serves",
            "one consumer each" if target.rescale_single_consumer else "all consumers of its type",
        ),
        ("constants", "copied per type" if target.duplicate_constants else "one copy only"),
        ("cheap kernels between floats", "run in float" if target.islands == "float" else "are stored"),
        ("price of a rescale", ", ".join(f"{kind} {getattr(costs, kind):g}" for kind in kinds)),
        ("price of lost bits", f"{costs.bit_price:g} each beyond {costs.free_bits:g}; at most {limit}"),
        ("clipped at most", f"{costs.max_clip:g} of a range"),
        ("dB at consumers, at least", _wanted_text(target)),
        ("work in float", work_text(target.float_work)),
        *((("engines", _engines_text(target.engines)),) if target.engines.names else ()),
        *((("files", _files_text(target.files)),) if target.files != Files() else ()),
        ("unit of work", target.work_unit or "an element requantized"),
        ("digest", target.digest),
    ]
    facts += [(f"{kernel} becomes", ", ".join(into)) for kernel, into in target.legalize.items()]
    return tuple(facts)


def _cell(texts: Iterable[str]) -> str:
    return "<br>".join(text.replace("|", "\\|").replace("<", "&lt;") for text in texts)
