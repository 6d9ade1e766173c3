"""Spelling: extensions of upstream's `quant` dialect are `qplan.*`, so that LLVM's tools read our modules.

A tool knows `quant` and refuses a name it does not hold there; of a dialect that it does not know it takes
any op and type (`--allow-unregistered-dialect`). The MLIR quantization RFC spells all of them `quant.*`: both
are read, and `as_rfc` writes that. Source: MLIR language reference, "Dialect types"; docs/mlir.md.
"""

import re
from typing import Final, Literal, TypeAlias

from planner.ir.types.qtypes import AnyType, Bipolar, Calibrated, NoneType, QType, Uniform

Spelling: TypeAlias = Literal["qplan", "rfc"]
OURS: Final = ("constant", "region", "return", "stats")
"""Ops of the RFC's `quant` dialect that upstream has not."""
UPSTREAM_BITS: Final = 32
"""The widest storage of upstream's types."""

# A string literal and whether it names an op, or the head of a type of ours.
_TOKEN: Final = re.compile(r'"((?:[^"\\]|\\.)*+)"(\(?)|!qplan\.', re.DOTALL)
_OPS: Final = frozenset(f"qplan.{name}" for name in OURS)


def is_ours(kind: QType) -> bool:
    """Whether upstream's `quant` dialect has no such type."""
    match kind:
        case NoneType() | Bipolar():
            return True
        case Calibrated():
            more = kind.row_max or kind.two_values or kind.widths or kind.readers
            return bool(more) or kind.axis is not None or kind.los[0] >= kind.his[0]
        case Uniform():
            return kind.storage.bits > UPSTREAM_BITS or bool(kind.ranges)
        case AnyType():
            return kind.storage.bits > UPSTREAM_BITS or kind.trained is not None
    return False


def type_text(kind: QType) -> str:
    """Write a type, scales as a text gave them: `!quant.uniform` where upstream has it, else `!qplan`."""
    text = kind.written_text if isinstance(kind, Uniform) else str(kind)
    return text.replace("!quant.", "!qplan.", 1) if is_ours(kind) else text


def as_rfc(text: str) -> str:
    """Spell the ops and types of a module as the RFC does: `quant.region`, `!quant.none`."""
    return _TOKEN.sub(_rfc, text)


def _rfc(match: re.Match[str]) -> str:
    if match[1] is None:
        return "!quant."
    if match[2] and match[1] in _OPS:
        return f'"quant.{match[1].removeprefix("qplan.")}"('
    return match[0]
