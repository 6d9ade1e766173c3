"""The arithmetic language of `derive`, and of numbers: `1 / sqrt(x.scale) * 2 ** -7`. Closed: nothing runs.

    sum     = product (("+" | "-") product)*
    product = sign (("*" | "/" | "%") sign)*
    sign    = "-" sign | power
    power   = atom ("**" sign)?
    atom    = NUMBER | NAME "(" sum ("," sum)* ")" | "(" sum ")" | OWNER "." ATTRIBUTE ("[" INTEGER "]")?

`conditions` puts comparisons around it, for predicates; there an owner is a port or an op.

Numbers are exact rationals; `sqrt` and fractional powers leave them for doubles. Text, depth, exponents, the
size of results and the steps of an evaluation are limited, since targets may be untrusted. Source:
docs/targets/reference.md.
"""

import math
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache, partial
from typing import Final, NoReturn, TypeAlias

from planner.errors import LimitError, RuleError, TargetError

MAX_TEXT: Final = 300
MAX_DEPTH: Final = 32
MAX_BITS: Final = 4096
MAX_EXPONENT: Final = 2048
"""Of whole powers; the doubles end at 2 ** -1074."""
MAX_STEPS: Final = 100_000
"""Of the conditions of one kernel variant, fusion or rule on one kernel."""
_BITS_OF_STEP: Final = 128
_SHORT_BITS: Final = 17
GREATEST: Final = sys.float_info.max

Real: TypeAlias = Fraction | float


@dataclass(frozen=True, slots=True)
class Number:
    """A literal."""

    value: Fraction


@dataclass(frozen=True, slots=True)
class Ref:
    """An attribute of a port or an op: `x.scale`, `x.zero_point`, `x.shape[-1]`, `Conv.strides[0]`."""

    port: str
    attribute: str
    index: int | None = None

    def __str__(self) -> str:
        tail = "" if self.index is None else f"[{self.index}]"
        return f"{self.port}.{self.attribute}{tail}"


@dataclass(frozen=True, slots=True)
class Apply:
    """An operator or function with its operands."""

    name: str
    operands: tuple["Expression", ...]


Expression: TypeAlias = Number | Ref | Apply
Lookup: TypeAlias = Callable[[Ref], Real]


class Steps:
    """Count the steps of an evaluation, and end it at a limit. One is one operation on short numbers."""

    def __init__(self, most: int = MAX_STEPS) -> None:
        self.most = most
        self.left = most

    def take(self, count: int = 1) -> None:
        """Take steps.

        Raises:
          LimitError: none are left.
        """
        self.left -= count
        if self.left < 0:
            raise LimitError(
                f"more than {self.most:,} steps",
                hint="compare fewer values, or short numbers; each operation is a step",
            )


def parse_expression(text: str) -> Expression:
    """Read an expression.

    Raises:
      TargetError: `column N: expected ..., found ...`.
    """
    return _parse(text)


def parse_number(value: float | str) -> Fraction:
    """Read a number or a rational such as `1/256` exactly (a float is the double it is).

    Raises:
      TargetError: not a number.
    """
    expression = Number(Fraction(value)) if isinstance(value, int | float) else _parse(value)
    if references(expression):
        raise TargetError(f"{value!r} is not a number; accepted: 0.5, 1/256, 2 ** -7")
    result = evaluate(expression, _no_ports)
    if not -GREATEST <= result <= GREATEST:
        raise TargetError(f"{value!r} is beyond a double; accepted: up to {GREATEST:.4g}")
    return Fraction(result)


def references(expression: Expression) -> tuple[Ref, ...]:
    """List the references of an expression to ports, in order."""
    if isinstance(expression, Ref):
        return (expression,)
    if isinstance(expression, Apply):
        return tuple(ref for operand in expression.operands for ref in references(operand))
    return ()


def refuse_constants(expression: Expression) -> None:
    """Refuse an expression that no ports give a value: `1 / 0`, `x.scale / (2 - 2)`, `sqrt(-1)`.

    Raises:
      RuleError: as `evaluate`.
    """
    if not isinstance(expression, Apply):
        return
    for operand in expression.operands:
        refuse_constants(operand)
    last = expression.operands[-1]
    # A part without ports has one value: computed when the file is read, its error has a line.
    if not references(expression):
        evaluate(expression, _no_ports)
    elif expression.name == "/" and not references(last) and evaluate(last, _no_ports) == 0:
        raise RuleError("division by zero")


def count_steps(expression: Expression) -> int:
    """Count the steps of an expression on one value of each term, all numbers being short."""
    return 1 + sum(map(count_steps, expression.operands)) if isinstance(expression, Apply) else 1


def constant_parts(expression: Expression) -> Iterator[Callable[[], Real]]:
    """Computations of the parts of an expression that no ports give a value, inner parts first.

    One of a power whose exponent alone is known checks that.
    """
    if not isinstance(expression, Apply):
        return
    for operand in expression.operands:
        yield from constant_parts(operand)
    last = expression.operands[-1]
    if not references(expression):
        yield partial(evaluate, expression, _no_ports)
    elif expression.name == "**" and not references(last):
        # Any base has the exponents of 1.
        yield partial(evaluate, Apply("**", (Number(Fraction(1)), last)), _no_ports)


def evaluate(expression: Expression, lookup: Lookup, steps: Steps | None = None) -> Real:
    """Compute an expression; exact while every part is rational.

    Args:
      expression: from `parse_expression`.
      lookup: the value of a reference.
      steps: those that are left, where other expressions take from the same.

    Raises:
      RuleError: division by zero, root of a negative number.
      LimitError: too many steps, or too big a number or exponent.
    """
    return _computed(expression, lookup, Steps() if steps is None else steps)


def _computed(expression: Expression, lookup: Lookup, steps: Steps) -> Real:
    steps.take()
    if isinstance(expression, Number):
        return expression.value
    if isinstance(expression, Ref):
        return lookup(expression)
    operands = tuple(_computed(operand, lookup, steps) for operand in expression.operands)
    try:
        result = FUNCTIONS[expression.name][1](*operands)
    except ZeroDivisionError as error:
        raise RuleError(f"{_shown(operands[0])} {expression.name} 0: division by zero") from error
    except (ArithmeticError, ValueError) as error:
        shown = ", ".join(map(_shown, operands))
        raise RuleError(f"{expression.name} of {shown}: {error}") from error
    # Exact rationals grow with every product; files may be untrusted, so their size is bounded.
    if isinstance(result, Fraction):
        bits = _bits(result)
        if bits > MAX_BITS:
            raise LimitError(f"{expression.name} gives a number of {bits} bits; at most {MAX_BITS}")
        steps.take(bits // _BITS_OF_STEP)
    return result


def _shown(value: Real) -> str:
    """A number to read: a rational of a few digits as it is, else as a float."""
    short = isinstance(value, Fraction) and _bits(value) <= _SHORT_BITS
    return str(value) if short or not -GREATEST <= value <= GREATEST else f"{float(value):.6g}"


def _no_ports(ref: Ref) -> Real:
    raise RuleError(f"{ref} is not known here")


def _bits(value: Fraction) -> int:
    return max(value.numerator.bit_length(), value.denominator.bit_length())


def _power(base: Real, exponent: Real) -> Real:
    if isinstance(base, Fraction) and isinstance(exponent, Fraction) and exponent.denominator == 1:
        # Checked before it is computed: `9 ** 9 ** 9` would take all memory.
        if abs(exponent.numerator) > MAX_EXPONENT:
            raise LimitError(f"an exponent of {_shown(exponent)}; at most {MAX_EXPONENT}")
        if _bits(base) * abs(exponent.numerator) > MAX_BITS * 2:
            raise LimitError(f"a power of more than {MAX_BITS} bits")
        return Fraction(base**exponent.numerator)
    # An irrational result in general: the nearest double is as good as a scale gets.
    return math.pow(base, exponent)


FUNCTIONS: Final[Mapping[str, tuple[int, Callable[..., Real]]]] = {
    "%": (2, lambda a, b: a % b),
    "*": (2, lambda a, b: a * b),
    "**": (2, _power),
    "+": (2, lambda a, b: a + b),
    "-": (2, lambda a, b: a - b),
    "/": (2, lambda a, b: a / b),
    "ceil": (1, lambda a: Fraction(math.ceil(a))),
    "exp2": (1, lambda a: _power(Fraction(2), a)),
    "floor": (1, lambda a: Fraction(math.floor(a))),
    "max": (2, max),
    "min": (2, min),
    "negate": (1, lambda a: -a),
    "sqrt": (1, math.sqrt),
}
"""Arity and meaning of each operator and function."""

_NAMED: Final = ("ceil", "exp2", "floor", "max", "min", "sqrt")
# Lengths are bounded here as well, so that no number of a million digits is ever converted. The two dots of a
# range end a number, and a name may be an op of another domain, as `com.microsoft::Gelu`.
_TOKEN: Final = re.compile(
    r"\s*(?:(?P<number>(?:\d{1,40}(?:\.(?!\.)\d{0,40})?|\.\d{1,40})(?:[eE][-+]?\d{1,3})?)(?!\w|\.(?!\.))"
    r"|(?P<name>(?:[A-Za-z_][\w.]*::)?[A-Za-z_]\w*)|'(?P<text>[^']*)'"
    r"|(?P<sign>\*\*|\.\.|[=!<>]=|[-+*/%(),.<>\[\]]))"
)


class Reader:
    """A cursor over the tokens of one text."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.kind, self.token = "", ""
        self.start = 0
        self.advance()

    def advance(self) -> None:
        """Go to the next token."""
        match = _TOKEN.match(self.text, self.at)
        rest = self.text[self.at :]
        self.start = self.at + len(rest) - len(rest.lstrip())
        self.kind, self.token = "", ""
        if match is not None and match.lastgroup:
            self.kind, self.token, self.at = match.lastgroup, match[match.lastgroup], match.end()

    @property
    def at_end(self) -> bool:
        """Whether nothing is left."""
        return not self.kind and self.start >= len(self.text)

    def fail(self, wanted: str) -> NoReturn:
        """Refuse what stands here."""
        found = repr(self.text[self.start : self.start + 12]) if self.start < len(self.text) else "the end"
        raise TargetError(f"column {self.start + 1}: expected {wanted}, found {found} in {self.text!r}")

    def accept(self, *signs: str) -> str:
        """Take one of these signs, if it stands here; else nothing."""
        if self.kind != "sign" or self.token not in signs:
            return ""
        token = self.token
        self.advance()
        return token

    def expect(self, sign: str) -> None:
        """Take this sign, or refuse."""
        if not self.accept(sign):
            self.fail(repr(sign))

    def take(self, kind: str, wanted: str) -> str:
        """Take a token of this kind, or refuse."""
        if self.kind != kind:
            self.fail(wanted)
        token = self.token
        self.advance()
        return token


@lru_cache(maxsize=1024)
def _parse(text: str) -> Expression:
    reader = read_text(text)
    result = read_sum(reader, 0)
    if not reader.at_end:
        reader.fail("an operator or the end")
    return result


def read_text(text: str) -> Reader:
    """Return a `Reader` at the start of a text.

    Raises:
      TargetError: the text is too long.
    """
    if len(text) > MAX_TEXT:
        raise TargetError(f"an expression of {len(text)} characters; at most {MAX_TEXT}")
    return Reader(text)


def read_sum(reader: Reader, depth: int) -> Expression:
    """Read a sum, from the current position to the first token that is no part of it."""
    if depth > MAX_DEPTH:
        reader.fail(f"nesting of at most {MAX_DEPTH}")
    return _sum_of(reader, _product_of(reader, _signed(reader, depth), depth), depth)


def read_rest(reader: Reader, first: Expression) -> Expression:
    """Read the rest of a sum whose first factor is known: `% 8` behind what a predicate is about."""
    return _sum_of(reader, _product_of(reader, first, 0), 0)


def _sum_of(reader: Reader, left: Expression, depth: int) -> Expression:
    while sign := reader.accept("+", "-"):
        left = Apply(sign, (left, _product_of(reader, _signed(reader, depth), depth)))
    return left


def _product_of(reader: Reader, left: Expression, depth: int) -> Expression:
    while sign := reader.accept("*", "/", "%"):
        left = Apply(sign, (left, _signed(reader, depth)))
    return left


def _signed(reader: Reader, depth: int) -> Expression:
    if depth > MAX_DEPTH:
        reader.fail(f"nesting of at most {MAX_DEPTH}")
    if reader.accept("-"):
        return Apply("negate", (_signed(reader, depth + 1),))
    # `**` binds tighter than a sign on its left and is right
    # associative, as in Python: -2 ** -7 is -(2 ** -7).
    base = _atom(reader, depth)
    return Apply("**", (base, _signed(reader, depth + 1))) if reader.accept("**") else base


def _atom(reader: Reader, depth: int) -> Expression:
    if reader.accept("("):
        inner = read_sum(reader, depth + 1)
        reader.expect(")")
        return inner
    if reader.kind == "number":
        return Number(Fraction(reader.take("number", "a number")))
    start = reader.start
    name = reader.take("name", "a number, a port or '('")
    if reader.accept("("):
        return _call(reader, name, start, depth)
    if not reader.accept("."):
        reader.fail(f"'.' and an attribute after the port {name!r}")
    attribute = reader.take("name", "scale, zero_point, qmin, qmax or shape")
    index = None
    if reader.accept("["):
        negative = reader.accept("-")
        token = reader.take("number", "an index")
        if not token.isdecimal():
            reader.fail("a whole number")
        index = -int(token) if negative else int(token)
        reader.expect("]")
    return Ref(name, attribute, index)


def _call(reader: Reader, name: str, start: int, depth: int) -> Expression:
    if name not in _NAMED:
        raise TargetError(f"column {start + 1}: unknown function {name!r}; known: {', '.join(_NAMED)}")
    operands = [read_sum(reader, depth + 1)]
    while reader.accept(","):
        operands.append(read_sum(reader, depth + 1))
    reader.expect(")")
    arity = FUNCTIONS[name][0]
    if len(operands) != arity:
        raise TargetError(f"column {start + 1}: {name} takes {arity} operands, {len(operands)} given")
    return Apply(name, tuple(operands))
