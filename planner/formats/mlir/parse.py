"""MLIR text to a verified xDSL module; every error is a `ModelError` that starts with `line:column: `.

Our dialect and `func` are verified in full, other dialects only in structure (terminators, order of
definitions): whether their ops are right is theirs to say. Wide storages and calibrated ranges of one point,
which only our text has, may stand in specs and nowhere else. Source: docs/mlir.md.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from xdsl.context import Context
from xdsl.dialects import builtin, func
from xdsl.ir import Attribute, Block, Operation, SSAValue
from xdsl.parser import Parser, ParserState
from xdsl.traits import IsTerminator
from xdsl.utils.exceptions import ParseError, VerifyException
from xdsl.utils.lexer import Input
from xdsl.utils.mlir_lexer import MLIRLexer, MLIRTokenKind

from planner.errors import ModelError
from planner.formats.mlir.dialect import OPS, OUR_OPS, Qplan, Quant, RegionOp
from planner.formats.mlir.foreign import DIALECTS
from planner.formats.mlir.integrity import misfit
from planner.formats.mlir.literals import hexadecimal
from planner.formats.mlir.places import one_line, place
from planner.formats.mlir.text.resources import without_resources
from planner.formats.mlir.text.spelling import OURS, UPSTREAM_BITS
from planner.formats.mlir.types import TYPES, QuantType, uniform_of
from planner.formats.mlir.verbatim_types import WrittenAny, WrittenUniform
from planner.ir.types.qtypes import AnyType, Calibrated, Uniform

_OURS: Final = frozenset({"builtin", "func", "qplan", "quant"})
_TYPE_NAMES: Final = frozenset(kind.name for kind in TYPES)
_OP_NAMES: Final = frozenset(op.name for op in (*OPS, *OUR_OPS))
_RFC_NAMES: Final = frozenset(f"quant.{name}" for name in OURS)
_PRIVATE: Final = builtin.StringAttr("private")
_HOLDERS: Final = (
    QuantType,
    builtin.ArrayAttr,
    builtin.DictionaryAttr,
    builtin.FunctionType,
    builtin.TensorType,
    builtin.TupleType,
    builtin.UnrankedTensorType,
)
_SPECS: Final = frozenset({"input_specs", "output_specs"})
_TENSOR: Final = re.compile(r"tensor<[^<>!#]*+(?:!quant\.uniform<[^<>!#]*+(?:<[^<>!#]*+>)?[^<>!#]*+>)?>")
_LOCATION: Final = re.compile(r'^(#[\w.$-]+) = loc\((?:("(?:[^"\\\n]|\\.)*+")(?!:))?', re.MULTILINE)
_KNOWN: Final = (*DIALECTS, Quant, Qplan)
_GENERIC: Final = (
    f"an op of another dialect than {', '.join(sorted(dialect.name for dialect in _KNOWN))}, "
    'or unknown there: write it in generic form, "dialect.op"(...) : (...) -> ...'
)


class _Lexer(MLIRLexer):
    """A lexer that takes linear time over a string that never ends; xDSL's own takes exponential."""

    _unescaped_characters_regex = re.compile(r'"(?:[^"\\\n\v\f]++|\\(?:["nt\\]|[0-9A-Fa-f]{2}))*+"')


class TextParser(Parser):
    """A parser that knows all names of our dialect.

    Attributes:
      starts: the offset of each op, by its `id`; `ends` likewise, of what follows it.
      tokens: SSA values as written, `%x` or `%x#1`.
      signatures: the offset of the function type of each op in generic form, by its `id`.
      tensors: tensor types by their text.
      spelled: names of SSA values: `x` of `loc("x")`, else as written, numbers left out; xDSL keeps less.
      later: locations whose aliases are defined behind their uses, where MLIR prints them.
    """

    starts: dict[int, int]
    ends: dict[int, int]
    signatures: dict[int, int]
    tokens: dict[SSAValue, str]
    spelled: dict[SSAValue, str]
    tensors: dict[str, Any]

    def __init__(self, context: Context, source: str) -> None:
        super().__init__(context, "")
        self._parser_state = ParserState(_Lexer(Input(source, "<unknown>")))
        self.starts, self.ends, self.tokens, self.spelled, self.tensors = {}, {}, {}, {}, {}
        self.signatures, self._signature = {}, 0
        self.later: dict[str, builtin.LocationAttr] | None = None

    def parse_operation(self) -> Operation:
        """Parse one op and note its position."""
        start = self._current_token.span.start
        op = super().parse_operation()
        self.starts[id(op)], self.ends[id(op)] = start, self._current_token.span.start
        return op

    def _parse_location(self) -> builtin.LocationAttr:
        """Parse a location, also an alias that is defined further down."""
        token = self._current_token
        if token.kind != MLIRTokenKind.HASH_IDENT or token.text in self.attribute_aliases:
            found = super()._parse_location()
            if isinstance(found, builtin.FileLineColLoc) and self.parse_optional_keyword("to"):
                self.parse_optional_integer()  # a range ends in a line and a column, or a column of the same
                self.parse_punctuation(":")
                self.parse_integer()
            return found
        if self.later is None:
            defined = _LOCATION.finditer(str(self.lexer.input.content))
            self.later = {match[1]: _location(match[2]) for match in defined}
        if token.text not in self.later:
            return super()._parse_location()
        self._consume_token()
        return self.later[token.text]

    def parse_function_type(self) -> builtin.FunctionType:
        """Parse a function type and note its position."""
        self._signature = self._current_token.span.start
        return super().parse_function_type()

    def _parse_generic_operation(self, op_type: type[Operation]) -> Operation:
        op = super()._parse_generic_operation(op_type)
        self.signatures[id(op)] = self._signature
        return op

    def _register_ssa_definition(self, name: str, values: Sequence[SSAValue], span: Any) -> None:
        super()._register_ssa_definition(name, values, span)
        several = len(values) > 1
        named = {value: f"{name}#{i}" if several else name for i, value in enumerate(values)}
        self.tokens |= {value: f"%{text}" for value, text in named.items()}
        if not name.isdecimal():
            self.spelled |= named

    def parse_file(self) -> builtin.ModuleOp:
        """Parse a whole text; aliases alone, or nothing, are an empty module."""
        if self._aliases_alone():
            return builtin.ModuleOp([])
        return self.parse_module()

    def _parse_optional_builtin_parametrized_type(self) -> Any:
        """Read a plain tensor type, or give the one that was read from the same text before."""
        start = self._current_token.span.start
        match = _TENSOR.match(str(self.lexer.input.content), start)
        if match is None or self._current_token.kind != MLIRTokenKind.BARE_IDENT:
            return super()._parse_optional_builtin_parametrized_type()
        known = self.tensors.get(match[0])
        if known is None:
            known = self.tensors[match[0]] = super()._parse_optional_builtin_parametrized_type()
        else:
            self._resume_from(match.end())
        return known

    def _parse_tensor_literal_element(self) -> Any:
        return hexadecimal(super()._parse_tensor_literal_element())

    def _aliases_alone(self) -> bool:
        kinds = (MLIRTokenKind.HASH_IDENT, MLIRTokenKind.EXCLAMATION_IDENT)
        while self._current_token.kind in kinds:
            self._parse_alias_def()
        return self._current_token.kind == MLIRTokenKind.EOF

    def _parse_alias_def(self) -> None:
        known, start = set(self.attribute_aliases), self._current_token.span
        super()._parse_alias_def()  # type: ignore[no-untyped-call]
        for name in set(self.attribute_aliases) - known:
            problem = foreign_to_mlir(self.attribute_aliases[name])
            if problem:
                raise ParseError(start, problem)

    def _parse_dialect_type_or_attribute_body(self, attr_name: str, is_type: bool, *rest: Any) -> Any:  # noqa: FBT001
        spelled = attr_name
        if is_type and attr_name.startswith("qplan."):
            attr_name = attr_name.replace("qplan.", "quant.", 1)
        if is_type and attr_name.startswith("quant.") and attr_name not in _TYPE_NAMES:
            known = ", ".join(f"!{name}" for name in sorted(_TYPE_NAMES))
            at = self.lexer.input.content.rfind(f"!{spelled}", 0, self.pos)
            self.raise_error(f"unknown quantized type '!{spelled}'; known: {known}", max(at, 0))
        return super()._parse_dialect_type_or_attribute_body(attr_name, is_type, *rest)

    def _get_op_by_name(self, name: str) -> type[Operation]:
        ours = name.replace("quant.", "qplan.", 1) if name in _RFC_NAMES else name
        if ours.startswith(("quant.", "qplan.")) and ours not in _OP_NAMES:
            known = ", ".join(sorted(_OP_NAMES))
            self.raise_error(f"unknown op '{name}' of the {name.partition('.')[0]} dialect; known: {known}")
        return super()._get_op_by_name(ours)


def _location(name: str | None) -> builtin.LocationAttr:
    """The location of a name as a text writes it, or of anything else."""
    if name is None:
        return builtin.UnknownLoc()
    return builtin.NameLoc(builtin.StringAttr(name[1:-1]), builtin.NoneAttr())


def _located(module: builtin.ModuleOp) -> dict[SSAValue, str]:
    """Names that locations give: results of an op, and arguments."""
    found: dict[SSAValue, str] = {}
    for op in module.walk():
        args = [arg for region in op.regions for block in region.blocks for arg in block.args]
        found |= {arg: name for arg in args if (name := _named(arg.location))}
        name = _named(op.location)
        if name and not isinstance(op, func.FuncOp):
            several = len(op.results) > 1
            found |= {value: f"{name}#{i}" if several else name for i, value in enumerate(op.results)}
    return found


def _named(location: Attribute | None) -> str:
    return location.desc.data if isinstance(location, builtin.NameLoc) else ""


def parse_text(source: str) -> tuple[builtin.ModuleOp, TextParser]:
    """Parse and verify a module; `without_resources` gives what stands behind it.

    Raises:
      ModelError: `line:column: ` and the fault there.
    """
    source, _ = without_resources(source)
    context = Context(allow_unregistered=True)
    for dialect in _KNOWN:
        context.load_dialect(dialect)
    parser = None
    try:
        parser = TextParser(context, source)
        module = parser.parse_file()
    except ParseError as error:
        message = _GENERIC if "builtin.unregistered" in error.msg else one_line(error.msg)
        raise ModelError(f"{place(source, error.span.start)}: {message}") from None
    except (
        ArithmeticError,
        AssertionError,
        AttributeError,
        LookupError,
        RuntimeError,  # recursion, and what xDSL has not implemented
        TypeError,
        ValueError,
        VerifyException,
    ) as error:
        at = parser._current_token.span.start if parser else 0  # noqa: SLF001
        message = "nested too deeply" if isinstance(error, RecursionError) else one_line(str(error))
        raise ModelError(f"{place(source, at)}: {message}") from None
    try:
        verify(module, source, parser.starts)
        parser.spelled |= _located(module)
    except RecursionError:
        raise ModelError("1:1: nested too deeply") from None
    return module, parser


def verify(module: builtin.ModuleOp, source: str, starts: dict[int, int]) -> None:
    """Verify every op, where it stands.

    Raises:
      ModelError: the first op that is wrong, in the order of the text.
    """
    seen: set[Attribute] = set()
    behind: set[int] = set()
    for op in module.walk():
        try:
            problem = _undefined(op, behind) or _problem(op, seen)
        except VerifyException as error:
            problem = str(error)
        if problem:
            raise ModelError(f"{place(source, starts.get(id(op), 0))}: {one_line(problem)}")
        behind.add(id(op))


def _problem(op: Operation, seen: set[Attribute]) -> str:
    outside = _from_outside(op)
    if outside:
        return outside
    if op.name.partition(".")[0] in _OURS and not _is_call_inside(op):
        op.verify(verify_nested_ops=False)
    if isinstance(op, func.FuncOp) and not op.body.blocks and op.sym_visibility != _PRIVATE:
        return f"function @{op.sym_name.data} has no body; only a private one may go without"
    for region in op.regions:
        for block in region.blocks:
            _check_terminator(op, block)
    for kind in _types(op):
        problem = _type_problem(kind, seen)
        if problem:
            return problem
    return ""


def _is_call_inside(op: Operation) -> bool:
    """Whether a call stands in the body of an unknown op, which xDSL takes for a symbol table."""
    return isinstance(op, func.CallOp) and isinstance(op.parent_op(), builtin.UnregisteredOp)


def _undefined(op: Operation, behind: set[int]) -> str:
    """Say that an operand is defined only later, in the same block; `behind` are the ops walked so far."""
    for operand in op.operands:
        owner = operand.owner
        if isinstance(owner, Operation) and owner.parent is op.parent and id(owner) not in behind:
            return f"{_name(op)} reads a value that is defined behind it"
    return ""


def _from_outside(region: Operation) -> str:
    """Name the op inside a `qplan.region` that reads a value from outside of it."""
    if not isinstance(region, RegionOp):
        return ""
    inside = set(region.body.blocks)
    for op in region.body.walk():
        inside.update(block for part in op.regions for block in part.blocks)
        for operand in op.operands:
            home = operand.owner if isinstance(operand.owner, Block) else operand.owner.parent
            if home not in inside:
                return f"{_name(op)} reads a value from outside; qplan.region is isolated from above"
    return ""


def _name(op: Operation) -> str:
    given = op.attributes.get("op_name__")
    return given.data if isinstance(given, builtin.StringAttr) else op.name


def _check_terminator(op: Operation, block: Block) -> None:
    if op.name not in ("func.func", RegionOp.name) or block.parent is None:
        return
    if block.last_op is None or not block.last_op.has_trait(IsTerminator):
        raise VerifyException(f"the body of {op.name} does not end with a terminator")


def _types(op: Operation) -> Iterator[Attribute]:
    for result in op.results:
        yield result.type
    for region in op.regions:
        for block in region.blocks:
            yield from (arg.type for arg in block.args)
    for key, item in (*op.attributes.items(), *op.properties.items()):
        if key not in _SPECS and not key.startswith("qplan."):
            yield item


def _type_problem(kind: Attribute, seen: set[Attribute]) -> str:
    """Say the first fault of the quantized types inside a type or attribute."""
    if not isinstance(kind, _HOLDERS) or kind in seen:
        return ""
    seen.add(kind)
    if isinstance(kind, QuantType):
        return foreign_to_mlir(kind)
    if isinstance(kind, builtin.TensorType | builtin.UnrankedTensorType):
        uniform = uniform_of(kind)
        problem = misfit(uniform, kind) if uniform is not None else ""
        return problem or _type_problem(kind.element_type, seen)
    return next((found for item in _parts(kind) if (found := _type_problem(item, seen))), "")


def _parts(kind: Attribute) -> Iterable[Attribute]:
    match kind:
        case builtin.FunctionType():
            return (*kind.inputs.data, *kind.outputs.data)
        case builtin.ArrayAttr():
            return tuple(kind.data)
        case builtin.DictionaryAttr():
            return tuple(kind.data.values())
        case builtin.TupleType():
            return tuple(kind.types.data)
    return ()


def foreign_to_mlir(kind: Attribute) -> str:
    """Say why MLIR knows no such type although we do; "" where it does."""
    data = kind.data if isinstance(kind, QuantType) else None
    if (
        isinstance(data, Uniform | AnyType | WrittenUniform | WrittenAny)
        and data.storage.bits > UPSTREAM_BITS
    ):
        return (
            f"storage of {data.storage.bits} bits: outside specs a storage has 1 to {UPSTREAM_BITS}; "
            "keep wider integers as plain tensors"
        )
    if isinstance(data, Uniform) and data.ranges:
        return f"{data} has storage ranges per slice, which stand in specs only"
    if isinstance(data, Calibrated) and not all(lo < hi for lo, hi in zip(data.los, data.his, strict=True)):
        return f"{data} must have min < max outside specs"
    return ""
