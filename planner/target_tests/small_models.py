"""Small models: one kernel of a target each, drawn from templates and from the trees of its patterns.

In: a target and a kernel's name. Out: small Graphs of ops with random weights (seeded). Nothing here plans.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any, Final

import numpy as np

from planner.ir.graph import Constant, Graph, Op, Region, Value
from planner.target import patterns
from planner.target.patterns import Node, OpPattern, Variable, parse_pattern, variants
from planner.target.ports.axes import block_axes
from planner.target.records import PortPattern, Row, Target
from planner.target_tests.templates import BINARY, DTYPES, TEMPLATES, UNARY, Sizes, Template, X

OPSET: Final = 21
MOST_VARIANTS: Final = 12
MATRIX: Final = 2
BIASED: Final = frozenset({"Conv", "ConvTranspose", "Gemm"})
"""Ops whose third operand, a bias, may be absent."""
SIDES: Final = ("mixed", "constants", "data")
"""Kinds of the operands beside the first; `mixed`: constants next to an op of a template, else data."""


def small_models(target: Target, kernel: str, seed: int) -> Iterator[Graph]:
    """Small models, each of one kernel of a target: of each of its patterns, or of the op of its name."""
    patterns = [text for fusion in target.fusions if fusion.kernel == kernel for text in fusion.patterns]
    for text in patterns:
        for tree in variants(parse_pattern(text))[:MOST_VARIANTS]:
            first, *others = _alternatives(tree)
            yield from _of_tree(first, seed, SIDES)
            # Another activation reads what the first one did: one kind of operands beside it will do.
            for one in others:
                yield from _of_tree(one, seed, SIDES[:1])
    yield from _of_tree(OpPattern((kernel,), _arguments(kernel)), seed, SIDES)


def wants_half(row: Row) -> bool:
    """Whether a row is for reals in float16 alone."""
    return any(key.endswith(".dtype") and wanted == "f16" for key, wanted in row.when.items())


def in_half(model: Graph) -> Graph:
    """A small model with its reals in float16."""
    values = {
        name: replace(value, dtype="f16") if value.dtype == "f32" else value
        for name, value in model.values.items()
    }
    constants = {
        name: Constant(None if one.array is None else one.array.astype(np.float16))
        if model.values[name].dtype == "f32"
        else one
        for name, one in model.constants.items()
    }
    return replace(model, values=values, constants=constants)


def _arguments(kernel: str) -> tuple[Node, ...]:
    return (Variable("a"), Variable("b")) if kernel in BINARY else (Variable("xs", variadic=True),)


@dataclass(slots=True)
class _Draft:
    """A model under construction; `sides`: of `SIDES`."""

    rng: np.random.Generator
    sides: str
    values: dict[str, Value] = field(default_factory=dict)
    constants: dict[str, Constant] = field(default_factory=dict)
    inputs: list[str] = field(default_factory=list)
    ops: list[Op] = field(default_factory=list)
    bound: dict[str, str] = field(default_factory=dict)

    def constant(self, array: np.ndarray, dtype: str) -> str:
        """Add a constant and return its name."""
        name = f"c{len(self.constants)}"
        self.values[name] = Value(name, tuple(array.shape), dtype)
        self.constants[name] = Constant(array)
        return name

    def data(self, shape: Sizes, dtype: str = "f32") -> str:
        """Add a model input and return its name."""
        name = f"x{len(self.inputs)}"
        self.values[name] = Value(name, shape, dtype)
        self.inputs.append(name)
        return name

    def weight(self, shape: Sizes) -> str:
        """Add random weights and return their name."""
        return self.constant(self.rng.uniform(-0.5, 0.5, shape).astype(np.float32), "f32")


def pruned(model: Graph, region: Region, row: Row, patterns: Sequence[PortPattern]) -> Graph:
    """A model whose weights are as sparse as the ports of a row ask: of each group the largest stay."""
    constants = dict(model.constants)
    for name, pattern in zip(region.inputs, patterns, strict=True):
        array = constants[name].array if name in constants else None
        if pattern.type.sparsity is None or array is None or array.ndim < MATRIX:
            continue
        few, many = pattern.type.sparsity
        array = array.copy()
        kept = np.moveaxis(array, block_axes(model, region, row, pattern, array.ndim)[1], -1)
        for begin in range(0, kept.shape[-1], many):
            group = kept[..., begin : begin + many]
            smallest = np.argsort(-np.abs(group), axis=-1)[..., few:]
            np.put_along_axis(group, smallest, 0.0, axis=-1)
        constants[name] = replace(constants[name], array=array)
    return replace(model, constants=constants)


def _alternatives(tree: OpPattern) -> Iterator[OpPattern]:
    """Trees of one type an op: each choice among the types that a pattern lists."""
    below = [tuple(_alternatives(arg)) if isinstance(arg, OpPattern) else (arg,) for arg in tree.args]
    for name in tree.types:
        yield from (OpPattern((name,), args) for args in product(*below))


def _of_tree(tree: OpPattern, seed: int, kinds: Sequence[str]) -> Iterator[Graph]:
    innermost = _innermost(tree)
    for template in TEMPLATES.get(innermost.types[0], (None,)):
        for optional, sides in product((True, False), kinds):
            draft = _Draft(np.random.default_rng(seed), sides)
            result = _build(tree, draft, template, innermost, with_optional=optional)
            if result is None:
                continue
            outputs = (*(n for n in draft.ops[-1].outputs if draft.values[n].is_float),) or (result,)
            yield Graph(
                name="kit",
                values=draft.values,
                ops=tuple(draft.ops),
                inputs=tuple(draft.inputs),
                outputs=outputs,
                constants=draft.constants,
                opsets={"": OPSET},
            )


def _innermost(tree: OpPattern) -> OpPattern:
    below = [arg for arg in tree.args if isinstance(arg, OpPattern)]
    return _innermost(below[0]) if below else tree


def _build(
    node: OpPattern, draft: _Draft, template: Template | None, innermost: OpPattern, *, with_optional: bool
) -> str | None:
    """Add the ops of a tree, the innermost first; the name of the result, None where it cannot be built."""
    kind = node.types[0]
    if node is innermost and template is not None:
        return _place(kind, node.args, draft, template, with_optional=with_optional)
    if kind in TEMPLATES and kind != "Clip":
        return _behind(node, draft, template, innermost, with_optional=with_optional)
    if kind not in BINARY | UNARY | {"Clip"}:
        return None
    shape = X
    operands: list[str] = []
    for arg in node.args:
        if isinstance(arg, OpPattern):
            built = _build(arg, draft, template, innermost, with_optional=with_optional)
            if built is None:
                return None
            operands.append(built)
            shape = tuple(int(dim) for dim in draft.values[built].shape or () if isinstance(dim, int))
    beside = bool(operands) and template is not None
    operands = _beside(node.args, operands, draft, shape, weights=beside)
    if kind == "Clip":
        operands += [draft.constant(np.asarray(bound, np.float32), "f32") for bound in (0.0, 6.0)]
    return _add(kind, tuple(operands), {}, (shape,), draft)


def _behind(
    node: OpPattern, draft: _Draft, template: Template | None, innermost: OpPattern, *, with_optional: bool
) -> str | None:
    """Add an op with a template of its own, a pool say, behind an inner one whose result fits it."""
    if len(node.args) != 1 or not isinstance(node.args[0], OpPattern):
        return None
    built = _build(node.args[0], draft, template, innermost, with_optional=with_optional)
    if built is None:
        return None
    shape = tuple(int(dim) for dim in draft.values[built].shape or () if isinstance(dim, int))
    for own in TEMPLATES[node.types[0]]:
        if len(own.operands) == 1 and own.operands[0].shape[2:] == shape[2:]:
            results = tuple((*shape[:2], *result[2:]) for result in own.results)
            return _add(node.types[0], (built,), own.attributes, results, draft)
    return None


def _beside(
    args: tuple[Node, ...],
    built: list[str],
    draft: _Draft,
    shape: Sizes,
    *,
    weights: bool,
) -> list[str]:
    """The operands of an elementwise op in order: results of inner ops, variables and numbers."""
    found: list[str] = []
    inner = iter(built)
    for arg in args:
        if isinstance(arg, OpPattern):
            found.append(next(inner))
        elif isinstance(arg, patterns.Literal):
            found.append(draft.constant(np.asarray(arg.value, np.float32), "f32"))
        elif arg.name in draft.bound:
            found.append(draft.bound[arg.name])
        elif (weights and draft.sides != "data") or (found and draft.sides == "constants"):
            found.append(draft.bound.setdefault(arg.name, draft.weight(shape[-1:])))
        else:
            found.append(draft.bound.setdefault(arg.name, draft.data(shape)))
    return found


def _place(
    kind: str, args: tuple[Node, ...], draft: _Draft, template: Template, *, with_optional: bool
) -> str | None:
    """Add the innermost op with its template's operands; the pattern's variables take those that are data."""
    names: list[str] = []
    waiting = [arg for arg in args if isinstance(arg, Variable)]
    optional = {arg.name for arg in waiting if arg.optional}
    tail = bool(waiting) and waiting[-1].variadic
    for operand in template.operands:
        if operand.numbers is not None:
            kinds = {"i64": np.int64, "bool": np.bool_, "f32": np.float32}
            array: np.ndarray = np.asarray(operand.numbers, kinds[operand.dtype])
            if operand.dtype == "bool":
                array = draft.rng.uniform(size=operand.shape) > 0.5
            names.append(draft.constant(array, operand.dtype))
            continue
        if not operand.shape:
            names.append("")
            continue
        if operand.dtype != "f32":  # indices are no port
            names.append(draft.data(operand.shape, operand.dtype))
            continue
        if tail and not with_optional and kind in BIASED and len(names) == MATRIX:
            break
        variable = waiting.pop(0) if waiting and not (tail and len(waiting) == 1) else None
        if variable is None and not tail:
            return (
                None
                if not operand.constant
                else _add(kind, tuple(names), template.attributes, template.results, draft)
            )
        if variable is not None and variable.name in optional and not with_optional:
            break
        if variable is not None and variable.name in draft.bound:
            names.append(draft.bound[variable.name])
            continue
        name = draft.weight(operand.shape) if operand.constant else draft.data(operand.shape)
        if variable is not None:
            draft.bound[variable.name] = name
        names.append(name)
    return _add(kind, tuple(names), template.attributes, template.results, draft)


def _add(
    kind: str,
    operands: tuple[str, ...],
    attributes: Mapping[str, Any],
    shapes: tuple[Sizes, ...],
    draft: _Draft,
) -> str:
    names = tuple(f"y{len(draft.ops)}_{i}" if i else f"y{len(draft.ops)}" for i in range(len(shapes)))
    for i, (name, shape) in enumerate(zip(names, shapes, strict=True)):
        draft.values[name] = Value(name, shape, DTYPES.get(kind, ("f32",) * len(shapes))[i])
    draft.ops.append(
        Op(f"{kind.lower().rpartition('::')[2]}{len(draft.ops)}", kind, operands, names, attributes)
    )
    return names[0]
