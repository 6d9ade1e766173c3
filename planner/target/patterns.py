"""Patterns: the text by which a fusion names source ops, read into a frozen tree.

    pattern  = tree | "function:" DOMAIN "." NAME | "scope:" GLOB | "linear_chain"
    tree     = OP ("|" OP)* ("?" | "*")? "(" argument ("," argument)* ")"
    argument = tree | VARIABLE ("?" | "*")? | NUMBER (".." NUMBER)? | "$" PART

A tree reads from the result to the operands. An op marked `?` may be missing: its first argument stands for
it; one marked `*` stands any number of times in a row. A variable is one port of the kernel (`?` optional,
`*` all remaining operands), a number a constant that holds nothing else. Arguments are an op's float data
operands; `COMMUTATIVE` ops take theirs in either order. `Product` is no op
but factors, however they are multiplied.
A part is a tree that the target's `parts` gives a name, and several ways to write it.
Matching is `fusion.match` and `fusion.products`, of the other forms `fusion.groups`.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Final, NoReturn, TypeAlias

from planner.errors import TargetError
from planner.ops import OPERATORS

COMMUTATIVE: Final = frozenset(name for name, one in OPERATORS.items() if one.commutes)
MAX_TEXT: Final = 2_000
MAX_DEPTH: Final = 32
MAX_OPTIONAL_OPS: Final = 8
MAX_COMMUTATIVE_OPS: Final = 10
MAX_FACTORS: Final = 5
MAX_NODES: Final = 400
PRODUCT: Final = "Product"
"""Factors in any order and association: products, quotients, powers, and constants multiplied together."""
PRODUCT_ROOTS: Final = ("Mul", "Div", "Neg", "Pow")

_TOKEN: Final = re.compile(
    r"\s*(?:(?P<name>\$?[A-Za-z_][\w.]*(?:::\w+)?)|(?P<number>-?\d{1,20}(?:\.\d{1,20})?(?:[eE][-+]?\d{1,3})?)"
    r"|(?P<sign>\.\.|[(),|?*]))"
)
_FUNCTION: Final = re.compile(r"(?P<domain>[\w.-]+)\.(?P<name>\w+)")


@dataclass(frozen=True, slots=True)
class Variable:
    """A port: one operand that no op of the pattern computes, or (`variadic`) all remaining ones."""

    name: str
    optional: bool = False
    variadic: bool = False

    def __str__(self) -> str:
        return f"{self.name}{'?' * self.optional}{'*' * self.variadic}"


@dataclass(frozen=True, slots=True)
class OpPattern:
    """An op of one of `types` with these arguments.

    Attributes:
      optional: or its first argument alone.
      repeated: any number of such ops in a row, none too.
      loose: of a block: a Reciprocal or a Sqrt may be a quotient or a power.

    A product with a number may be written as a quotient or, with -1, as Neg in a model, and the other way
    round: `other_spellings`.
    """

    types: tuple[str, ...]
    args: tuple["Node", ...]
    optional: bool = False
    repeated: bool = False
    loose: bool = False

    def __str__(self) -> str:
        sign = "?" if self.optional else "*" * self.repeated
        return f"{'|'.join(self.types)}{sign}({', '.join(map(str, self.args))})"

    @property
    def is_product(self) -> bool:
        """Whether it stands for factors rather than for an op."""
        return self.types == (PRODUCT,)

    @property
    def roots(self) -> tuple[str, ...]:
        """Types of the ops that may write its result."""
        return PRODUCT_ROOTS if self.is_product else self.types


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant operand, every element of which is this number, or lies between two; no port."""

    value: float
    most: float | None = None

    def __str__(self) -> str:
        return f"{self.value:g}" if self.most is None else f"{self.value:g}..{self.most:g}"


@dataclass(frozen=True, slots=True)
class Either:
    """A part: one of several trees, by the name that the target gives it."""

    name: str
    ways: tuple["Node", ...]

    def __str__(self) -> str:
        return f"${self.name}"


Node: TypeAlias = Variable | OpPattern | Literal | Either
Parts: TypeAlias = tuple[tuple[str, tuple[str, ...]], ...]
"""Names for parts of patterns, and the ways to write each, in order."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """A pattern: its text, its tree, and its ports in order of first appearance.

    Attributes:
      scope: glob of node name scopes, each one kernel; then the tree is empty.
      chain: whether it stands for chains of linear ops; then the tree is empty.
      function: DOMAIN.NAME of a function whose calls are kernels; the tree is an op called like it.
    """

    text: str
    root: OpPattern
    variables: tuple[Variable, ...]
    scope: str = ""
    chain: bool = False
    function: str = ""


@lru_cache(maxsize=1024)
def parse_pattern(text: str, parts: Parts = ()) -> Pattern:
    """Read a pattern.

    Args:
      parts: trees that the pattern may name; each may name those before it.

    Raises:
      TargetError: with the column (from 1) of the first character that does not fit.
    """
    if len(text) > MAX_TEXT:
        raise TargetError(f"pattern of {len(text)} characters; at most {MAX_TEXT} are read")
    if text.startswith("scope:"):
        return _scope(text)
    if text == "linear_chain":
        return Pattern(text, _NO_TREE, (Variable("x"), Variable("ws", variadic=True)), chain=True)
    if text.startswith("function:"):
        return _function(text)
    root = _read_node(text, _named_parts(parts))
    if not isinstance(root, OpPattern):
        raise TargetError(f"pattern {text!r}: column 1: {root} names no op; write an op such as Relu(x)")
    found: dict[str, Variable] = {}
    for variable in _variables(root):
        if found.setdefault(variable.name, variable) != variable:
            raise TargetError(
                f"pattern {text!r}: column {text.rfind(str(variable)) + 1}: "
                f"{variable.name} is written both {found[variable.name]} and {variable}"
            )
    # Each optional op doubles the trees, each commutative one the ways to match: strangers send patterns.
    if sum(op.optional for op in _own_ops(root)) > MAX_OPTIONAL_OPS:
        raise TargetError(f"pattern {text!r}: column 1: more than {MAX_OPTIONAL_OPS} optional ops")
    if sum(not COMMUTATIVE.isdisjoint(op.types) for op in _own_ops(root)) > MAX_COMMUTATIVE_OPS:
        raise TargetError(f"pattern {text!r}: column 1: more than {MAX_COMMUTATIVE_OPS} commutative ops")
    return Pattern(text, root, tuple(found.values()))


@lru_cache(maxsize=256)
def _named_parts(parts: Parts) -> Mapping[str, Either]:
    """The named parts of patterns.

    Raises:
      TargetError: a part that cannot be read, or that is too large with all that it names.
    """
    found: dict[str, Either] = {}
    for name, texts in parts:
        ways = tuple([_read_node(text, found) for text in texts])
        found[name] = Either(name, ways)
        # A name that is used twice stands for two trees, so sizes may double with each name.
        if _size(found[name]) > MAX_NODES:
            raise TargetError(
                f"part {name!r}: more than {MAX_NODES} ops, variables and numbers with its parts"
            )
    return found


def _size(node: Node) -> int:
    inner = node.args if isinstance(node, OpPattern) else node.ways if isinstance(node, Either) else ()
    return 1 + sum(map(_size, inner))


def _read_node(text: str, parts: Mapping[str, Either]) -> Node:
    reader = _Reader(text, parts)
    root = _node(reader, 0)
    reader.end()
    return root


def variants(pattern: Pattern) -> tuple[OpPattern, ...]:
    """The trees without optional ops that a pattern stands for, most ops first; none of a group of ops."""
    if not pattern.root.types:
        return ()
    found = [node for node in _expand(pattern.root) if isinstance(node, OpPattern)]
    return tuple(sorted(found, key=count_ops, reverse=True))


@lru_cache(maxsize=4096)
def other_spellings(op: OpPattern) -> tuple[OpPattern, ...]:
    """Return the other ops by which a model may write a product with a number.

    `Div(x, 8)` is `Mul(x, 0.125)`, and `Neg(x)` is `Mul(x, -1)`.
    """
    if "Neg" in op.types and len(op.args) == 1:
        return (OpPattern(("Mul",), (op.args[0], Literal(-1.0))),)
    if len(op.args) != 2:
        return ()
    left, right = op.args
    if "Div" in op.types and isinstance(right, Literal) and right.value and right.most is None:
        return (OpPattern(("Mul",), (left, Literal(1 / right.value))),)
    other, number = (right, left) if isinstance(left, Literal) else (left, right)
    if "Mul" not in op.types or not isinstance(number, Literal) or not number.value or number.most:
        return ()
    quotient = OpPattern(("Div",), (other, Literal(1 / number.value)))
    return (quotient, OpPattern(("Neg",), (other,))) if number.value == -1 else (quotient,)


def spelled_types(op: OpPattern) -> tuple[str, ...]:
    """Return the types of ops that may stand for an op of a pattern, its own first."""
    return (*op.roots, *(name for other in other_spellings(op) for name in other.types))


@lru_cache(maxsize=4096)
def count_ops(node: Node) -> int:
    """Count the ops in a tree, optional ones included: of ways to write a part those of the longest."""
    if isinstance(node, Either):
        return max(map(count_ops, node.ways))
    if not isinstance(node, OpPattern):
        return 0
    own = len(node.args) - 1 if node.is_product else 1
    return own + sum(map(count_ops, node.args))


def op_types(pattern: Pattern) -> frozenset[str]:
    """Op types that a pattern names."""
    return frozenset(name for op in _ops(pattern.root) for name in op.roots)


@lru_cache(maxsize=4096)
def needed_types(node: Node) -> frozenset[tuple[str, ...]]:
    """Sets of op types of each of which a model has to have one, for a tree to fit somewhere."""
    if isinstance(node, Either):
        return frozenset.intersection(*map(needed_types, node.ways))
    if not isinstance(node, OpPattern):
        return frozenset()
    inner = frozenset().union(*map(needed_types, node.args))
    # A reciprocal may be a quotient, and a root a power; `fusion.products` knows how.
    is_loose = node.loose or bool(other_spellings(node))
    is_certain = not (node.optional or node.repeated or node.is_product or is_loose)
    return inner | ({node.types} if is_certain else frozenset())


RESPELT: Final = frozenset({"Reciprocal", "Sqrt"})
"""Ops of patterns that other ops spell too: `Div(1, x)`, `Pow(x, -0.5)`, `Pow(x, 0.5)`."""


def _ops(node: Node) -> Iterator[OpPattern]:
    if isinstance(node, OpPattern):
        yield node
    for inner in _inner(node):
        yield from _ops(inner)


def _own_ops(node: Node) -> Iterator[OpPattern]:
    """The ops that a pattern has itself, not by the name of a part."""
    if isinstance(node, OpPattern):
        yield node
        for arg in node.args:
            yield from _own_ops(arg)


def _inner(node: Node) -> tuple[Node, ...]:
    if isinstance(node, Either):
        return node.ways
    return node.args if isinstance(node, OpPattern) else ()


def _variables(node: Node) -> Iterator[Variable]:
    if isinstance(node, Variable):
        yield node
    for inner in _inner(node):
        yield from _variables(inner)


def _expand(node: Node) -> Iterator[Node]:
    if not isinstance(node, OpPattern):
        yield node
        return
    # A factor that may be missing is one op more where it is there, so it counts in the order of trees.
    for given in _with_and_without(node.args) if node.is_product else (node.args,):
        for args in product(*(tuple(_expand(arg)) for arg in given)):
            yield OpPattern(node.types, args, repeated=node.repeated, loose=node.loose)
    if node.optional:
        yield from _expand(node.args[0])


def _with_and_without(args: tuple[Node, ...]) -> Iterator[tuple[Node, ...]]:
    """Factors with an optional variable, as one that is there, and without it."""
    for i, arg in enumerate(args):
        if isinstance(arg, Variable) and arg.optional:
            yield from _with_and_without((*args[:i], Variable(arg.name), *args[i + 1 :]))
            yield from _with_and_without((*args[:i], *args[i + 1 :]))
            return
    yield args


def _function(text: str) -> Pattern:
    match = _FUNCTION.fullmatch(text, len("function:"))
    if match is None:
        raise TargetError(f"pattern {text!r}: column 10: write function:DOMAIN.NAME")
    inputs = Variable("xs", variadic=True)
    root = OpPattern((f"{match['domain']}::{match['name']}",), (inputs,))
    return Pattern(text, root, (inputs,), function=f"{match['domain']}.{match['name']}")


def _scope(text: str) -> Pattern:
    glob = text.removeprefix("scope:").strip().strip("/")
    if not glob:
        raise TargetError(f"pattern {text!r}: column 7: write scope:GLOB, such as scope:encoder/*/attention")
    return Pattern(text, _NO_TREE, (Variable("xs", variadic=True),), scope=glob)


_NO_TREE: Final = OpPattern((), ())


class _Reader:
    """A cursor over the tokens of one text."""

    def __init__(self, text: str, parts: Mapping[str, Either]) -> None:
        self.text = text
        self.parts = parts
        self.at = 0
        self.start = 0
        self.token = ""
        self.advance()

    def advance(self) -> None:
        """Read the next token; "" at the end."""
        rest = self.text[self.at :]
        self.start = self.at + len(rest) - len(rest.lstrip())
        if not rest.strip():
            self.token = ""
            return
        match = _TOKEN.match(self.text, self.at)
        if match is None:
            self.token = self.text[self.start]
            self.fail("an op, a variable, a number, or one of ( ) , | ? *")
        self.token = match["name"] or match["number"] or match["sign"]
        self.at = match.end()

    def take(self, sign: str) -> bool:
        """Step over a sign if it is next."""
        if self.token != sign:
            return False
        self.advance()
        return True

    def name(self, wanted: str) -> str:
        """Step over a name."""
        name = self.token
        if not name or not (name[0].isalpha() or name[0] in "_$"):
            self.fail(wanted)
        self.advance()
        return name

    def number(self) -> str:
        """Step over a number."""
        text = self.token
        self.advance()
        return text

    def end(self) -> None:
        """Refuse anything left."""
        if self.token:
            self.fail("the end")

    def fail(self, wanted: str) -> NoReturn:
        """Raise at the current token."""
        got = repr(self.token) if self.token else "the end"
        raise TargetError(f"pattern {self.text!r}: column {self.start + 1}: found {got}, expected {wanted}")


def _node(reader: _Reader, depth: int) -> Node:
    if depth > MAX_DEPTH:
        reader.fail(f"at most {MAX_DEPTH} levels")
    if depth and _is_number(reader):
        return _number(reader)
    names = [reader.name("an op or a variable")]
    while reader.take("|"):
        names.append(reader.name("another op"))
    optional = reader.take("?")
    starred = not optional and reader.take("*")
    if reader.take("("):
        loose = bool(reader.parts) and names[0] in RESPELT
        op = OpPattern(tuple(names), _args(reader, depth), optional, starred, loose)
        if op.is_product and (len(op.args) > MAX_FACTORS or starred):
            reader.fail(f"at most {MAX_FACTORS} factors, and no *")
        return op
    if len(names) > 1:
        reader.fail("( after alternatives of ops")
    if names[0].startswith("$"):
        return _part(reader, names[0][1:], plain=not optional and not starred)
    return Variable(names[0], optional, starred)


def _part(reader: _Reader, name: str, *, plain: bool) -> Node:
    known = ", ".join(f"${part}" for part in reader.parts) or "none is defined before it"
    if name not in reader.parts:
        raise TargetError(f"pattern {reader.text!r}: no part ${name}; parts: {known}")
    if not plain:
        reader.fail(f", or ) after ${name}")
    return reader.parts[name]


def _is_number(reader: _Reader) -> bool:
    return reader.token[-1:].isdigit() and not reader.token[0].isalpha()


def _number(reader: _Reader) -> Literal:
    least = float(reader.number())
    if not reader.take(".."):
        return Literal(least)
    if not _is_number(reader):
        reader.fail("the largest number")
    return Literal(least, float(reader.number()))


def _args(reader: _Reader, depth: int) -> tuple[Node, ...]:
    args = [_node(reader, depth + 1)]
    while not reader.take(")"):
        last = args[-1]
        if isinstance(last, Variable) and last.variadic:
            reader.fail(f") because {last} takes all remaining operands")
        if not reader.take(","):
            reader.fail(", or )")
        args.append(_node(reader, depth + 1))
    return tuple(args)
