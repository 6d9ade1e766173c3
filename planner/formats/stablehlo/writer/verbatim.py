"""Verbatim: ops of a StableHLO program that no ONNX op means, written again as the program has them.

Their text was kept when they were read (`mlir.text.opaque`). Operands and results get their names here;
what regions define gets new ones, as MLIR lets no name in sight be defined twice.
Source: MLIR language reference, "Generic operation format".
"""

import re
from collections.abc import Iterator, Sequence
from typing import Final

from planner.errors import UnsupportedExport
from planner.formats.mlir.generic import OPAQUE_TEXT
from planner.formats.stablehlo.writer.function import Program
from planner.formats.stablehlo.writer.tensors import Tensor, plain
from planner.ir.graph import Op

DIALECT: Final = "stablehlo::"
_STRING: Final = r'"(?:[^"\\]|\\.)*"'
_VALUE: Final = r"%[\w$.-]+"
_TOKEN: Final = re.compile(f"{_STRING}|{_VALUE}")
_SYMBOL: Final = re.compile(rf"{_STRING}|@[\w$.-]+")
_RESULTS: Final = re.compile(rf"\s*((?:{_VALUE}(?:, )?)+) = ")
_OPERANDS: Final = re.compile(rf"[^(]*?{_STRING}\(([^)]*)\)")
_ARGUMENTS: Final = re.compile(r"\s*\^\w+\((.*)\):\s*$")
_TENSOR: Final = re.compile(r"tensor<((?:\d+x)*)([^?]+)>")


def is_verbatim(op: Op) -> bool:
    """Whether an op is of StableHLO, and its text is known."""
    return op.type.startswith(DIALECT) and OPAQUE_TEXT in op.attributes


def restate(p: Program, op: Op, operands: Sequence[Tensor], captures: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Append an op as its program has it.

    Args:
      op: for which `is_verbatim` holds.
      operands: what it reads.
      captures: what its regions read of outside, in order of their first use.

    Raises:
      UnsupportedExport: tensors of other types than its text says, or of sizes that are not known; a function
        that it calls, which is not in the program that is written.
    """
    text = str(op.attributes[OPAQUE_TEXT])
    called = next((token for token in _SYMBOL.findall(text) if token[0] == "@"), None)
    if called is not None:
        raise UnsupportedExport(
            f"{p.place}: {op.type} at {op.name!r} calls {called}, which is not written here"
        )
    wanted, given = _signature(text)
    for tensor, kind in zip(operands, wanted, strict=True):
        if tensor.type != kind:
            raise UnsupportedExport(
                f"{p.place}: {op.type} at {op.name!r} reads {kind}, here it is {tensor.type}"
            )
    results = [_tensor(p, op, kind) for kind in given]
    names = dict(zip(_operands(text), (tensor.name for tensor in operands), strict=True))
    inside = [*_defined(text)]
    own = inside[: len(results)]
    names |= {name: p.name(name[1:]) for name in inside[len(results) :]}
    free = dict.fromkeys(token for token in _TOKEN.findall(text) if token[0] == "%")
    names |= zip(
        (name for name in free if name not in {*names, *own}), (t.name for t in captures), strict=True
    )

    def named(made: Sequence[Tensor]) -> str:
        new = names | dict(zip(own, (tensor.name for tensor in made), strict=True))
        return _TOKEN.sub(lambda m: f"%{new[m[0]]}" if m[0][0] == "%" else m[0], text)

    return p.emit_text([*operands, *captures], results, named)


def _operands(text: str) -> list[str]:
    found = _OPERANDS.match(text)
    return re.findall(_VALUE, found[1]) if found is not None else []


def _defined(text: str) -> Iterator[str]:
    """Names that a text defines: the op's own results, then those of its regions."""
    for line in text.splitlines():
        for pattern in (_RESULTS, _ARGUMENTS):
            found = pattern.match(line)
            if found is not None:
                yield from re.findall(_VALUE, found[1])


def _signature(text: str) -> tuple[list[str], list[str]]:
    """Types of an op's operands and of its results."""
    taken, _, given = text[text.rindex(" : (") + 3 :].rpartition(" -> ")
    return _types(taken), _types(given)


def _types(text: str) -> list[str]:
    found, depth, begin = [], 0, 0
    text = text.strip()
    text = text[1:-1] if text[:1] == "(" else text
    for i, letter in enumerate(text):
        depth += (letter in "<(") - (letter in ">)")
        if letter == "," and not depth:
            found.append(text[begin:i].strip())
            begin = i + 1
    return [*found, text[begin:].strip()] if text.strip() else []


def _tensor(p: Program, op: Op, kind: str) -> Tensor:
    found = _TENSOR.fullmatch(kind)
    if found is None:
        raise UnsupportedExport(
            f"{p.place}: {op.type} at {op.name!r} gives {kind}; accepted: tensors of known sizes"
        )
    return plain(tuple([int(size) for size in found[1].split("x") if size]), found[2])
