"""Patterns: the text by which a fusion names source ops, read into a frozen tree.

    pattern  = tree | "function:" DOMAIN "." NAME | "scope:" GLOB | "linear_chain"
    tree     = OP ("|" OP)* "?"? "(" argument ("," argument)* ")"
    argument = tree | VARIABLE ("?" | "*")? | NUMBER

A tree reads from the result to the operands. An op marked `?` may be missing: its first argument stands for
it. A variable is one port of the kernel (`?` optional, `*` all remaining operands), a number a constant that
holds nothing else. Arguments are an op's float data operands; `COMMUTATIVE` ops take theirs in either order.
Matching is `fusion.match`, of the other forms `fusion.groups`.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Final, NoReturn, TypeAlias

from planner.errors import TargetError

COMMUTATIVE: Final = frozenset({"Add", "Max", "Mean", "Min", "Mul", "Sum"})
MAX_TEXT: Final = 2_000
MAX_DEPTH: Final = 32
MAX_OPTIONAL_OPS: Final = 8
MAX_COMMUTATIVE_OPS: Final = 10

_TOKEN: Final = re.compile(
    r"\s*(?:(?P<name>[A-Za-z_][\w.]*(?:::\w+)?)|(?P<number>-?\d{1,20}(?:\.\d{1,20})?(?:[eE][-+]?\d{1,3})?)"
    r"|(?P<sign>[(),|?*]))"
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
    """An op of one of `types` with these arguments; `optional`: or its first argument alone."""

    types: tuple[str, ...]
    args: tuple["Node", ...]
    optional: bool = False

    def __str__(self) -> str:
        return f"{'|'.join(self.types)}{'?' * self.optional}({', '.join(map(str, self.args))})"


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant operand, every element of which is this number; no port."""

    value: float

    def __str__(self) -> str:
        return f"{self.value:g}"


Node: TypeAlias = Variable | OpPattern | Literal


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
def parse_pattern(text: str) -> Pattern:
    """Read a pattern.

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
    reader = _Reader(text)
    root = _node(reader, 0)
    reader.end()
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
    if sum(op.optional for op in _ops(root)) > MAX_OPTIONAL_OPS:
        raise TargetError(f"pattern {text!r}: column 1: more than {MAX_OPTIONAL_OPS} optional ops")
    if sum(not COMMUTATIVE.isdisjoint(op.types) for op in _ops(root)) > MAX_COMMUTATIVE_OPS:
        raise TargetError(f"pattern {text!r}: column 1: more than {MAX_COMMUTATIVE_OPS} commutative ops")
    return Pattern(text, root, tuple(found.values()))


def variants(pattern: Pattern) -> tuple[OpPattern, ...]:
    """The trees without optional ops that a pattern stands for, most ops first; none of a group of ops."""
    if not pattern.root.types:
        return ()
    found = [node for node in _expand(pattern.root) if isinstance(node, OpPattern)]
    return tuple(sorted(found, key=count_ops, reverse=True))


def count_ops(node: Node) -> int:
    """Count the ops in a tree, optional ones included."""
    return sum(1 for _ in _ops(node))


def op_types(pattern: Pattern) -> frozenset[str]:
    """Op types that a pattern names."""
    return frozenset(name for op in _ops(pattern.root) for name in op.types)


def _ops(node: Node) -> Iterator[OpPattern]:
    if isinstance(node, OpPattern):
        yield node
        for arg in node.args:
            yield from _ops(arg)


def _variables(node: Node) -> Iterator[Variable]:
    if isinstance(node, Variable):
        yield node
    if isinstance(node, OpPattern):
        for arg in node.args:
            yield from _variables(arg)


def _expand(node: Node) -> Iterator[Node]:
    if not isinstance(node, OpPattern):
        yield node
        return
    for args in product(*(tuple(_expand(arg)) for arg in node.args)):
        yield OpPattern(node.types, args)
    if node.optional:
        yield from _expand(node.args[0])


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

    def __init__(self, text: str) -> None:
        self.text = text
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
        if not name or not (name[0].isalpha() or name[0] == "_"):
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
        raise TargetError(f"pattern {self.text!r}: column {self.start + 1}: found {got}, wanted {wanted}")


def _node(reader: _Reader, depth: int) -> Node:
    if depth > MAX_DEPTH:
        reader.fail(f"at most {MAX_DEPTH} levels")
    if depth and reader.token[-1:].isdigit() and not reader.token[0].isalpha():
        return Literal(float(reader.number()))
    names = [reader.name("an op or a variable")]
    while reader.take("|"):
        names.append(reader.name("another op"))
    optional = reader.take("?")
    variadic = not optional and reader.take("*")
    if not variadic and reader.take("("):
        return OpPattern(tuple(names), _args(reader, depth), optional)
    if len(names) > 1:
        reader.fail("( after alternatives of ops")
    return Variable(names[0], optional, variadic)


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
