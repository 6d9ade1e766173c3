"""Forms: how the results of an operator follow from its data operands, of the families that code asks for.

Each is what several parts of the planner would list operators for otherwise. Source: ONNX operator schemas.
"""

from enum import StrEnum, auto


class Form(StrEnum):
    """The family of an operator."""

    OTHER = auto()
    UNARY = auto()
    """Each element of the result is a function of one element."""
    BINARY = auto()
    """Of an element of each of two operands, which broadcast; the next four have more words for it."""
    SUM = auto()
    """Their sum or difference."""
    PRODUCT = auto()
    """Their product or quotient."""
    LOGICAL = auto()
    """A truth value of two."""
    COMPARISON = auto()
    """A truth value of two numbers."""
    VARIADIC = auto()
    """Of an element of each of any number of operands, which broadcast."""
    SELECT = auto()
    """The element of the second or third operand, by a truth value."""
    LINEAR = auto()
    """Sums of products of the first two operands, along the axes of a weight."""
    CONTRACTION = auto()
    """Other sums of products."""
    RECURRENT = auto()
    """Steps in time, each with sums of products."""
    POOL = auto()
    """Of the elements of a window."""
    REDUCTION = auto()
    """Of the elements along axes, which an operand lists."""
    ALONG = auto()
    """Of the elements along one axis, in the operand's shape."""
    NORM = auto()
    """Elements by their mean and deviation, times a factor and plus an addend."""
    VIEW = auto()
    """The elements of one operand in their order."""
    BORDER = auto()
    """The same, into or out of a body."""
    CONCAT = auto()
    """The elements of any number of operands, along one axis."""
    COUNTED = auto()
    """As many elements as numbers say that are known at run time."""
    RANDOM = auto()
    """Other numbers in each run."""
    CONSTANT = auto()
    """Numbers that no operand has."""
    SHAPE = auto()
    """Sizes of the operand."""
    QUANTIZER = auto()
    """Between reals and stored integers."""
    BODY = auto()
    """Graphs of its own."""


class Factors(StrEnum):
    """Factors that an operator hands on."""

    NONE = ""
    POSITIVE = auto()
    ANY = auto()
