"""Ops that are carried and not read: their text, and the values of outside that their regions read."""

from io import StringIO

from xdsl.ir import Operation, SSAValue
from xdsl.printer import Printer


def captured(op: Operation) -> list[SSAValue]:
    """Values from outside that the regions of an op read."""
    inside = {op} | {inner for region in op.regions for inner in region.walk()}
    found: dict[SSAValue, None] = {}
    for region in op.regions:
        for inner in region.walk():
            for value in inner.operands:
                home = value.owner if isinstance(value.owner, Operation) else value.owner.parent_op()
                if home not in inside and value not in op.operands:
                    found[value] = None
    return list(found)


def opaque_text(op: Operation) -> str:
    """An op in generic form."""
    stream = StringIO()
    Printer(stream, print_generic_format=True).print_op(op)
    return stream.getvalue()
