"""Places in a text, as `line:column`, and the error of a pass that stops at an op."""

from xdsl.ir import Operation

from planner.errors import ModelError


class StuckAt(ModelError):
    """A pass cannot go on at an op; who knows the text adds the place."""

    def __init__(self, op: Operation, message: str) -> None:
        super().__init__(message)
        self.op = op


def place(source: str, at: int) -> str:
    """`line:column` of a position, both from 1."""
    line = source.count("\n", 0, at) + 1
    return f"{line}:{at - source.rfind(chr(10), 0, at)}"


def one_line(message: str) -> str:
    """Put a message on one line."""
    return " ".join(message.split())
