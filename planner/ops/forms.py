"""Forms: families of operators, by how their results follow from their data operands.

There is one where several parts of the planner would list its operators otherwise. Source: ONNX operator
schemas.
"""

from enum import StrEnum, auto


class Form(StrEnum):
    """The family of an operator."""

    OTHER = auto()
    UNARY = auto()
    """Each element of the result is a function of one element."""
    BINARY = auto()
    """Of an element of each of two operands, which broadcast; so are the next four, which say more."""
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
    """Sums of products of the first two operands: convolutions and matrix products."""
    CONTRACTION = auto()
    """Other operators that add up products of two activations: Attention, Einsum."""
    RECURRENT = auto()
    """Steps in time, each with sums of products."""
    POOL = auto()
    """One number of the elements of each window, or of all places."""
    REDUCTION = auto()
    """Of the elements along axes, which an operand lists."""
    ALONG = auto()
    """Of the elements along one axis, in the operand's shape."""
    NORM = auto()
    """Elements divided by a deviation of them all, times a factor; most are moved by their mean before."""
    VIEW = auto()
    """The elements of one operand in their order."""
    BORDER = auto()
    """The same, where data enter or leave a body."""
    CONCAT = auto()
    """The elements of any number of operands, along one axis."""
    BLOCKS = auto()
    """Elements moved between the channels and the rows and columns of an image, in blocks."""
    COUNTED = auto()
    """As many elements as the operands' numbers say, not their sizes alone: known at run time."""
    RANDOM = auto()
    """Other numbers in each run."""
    CONSTANT = auto()
    """Numbers that the operator has itself."""
    SHAPE = auto()
    """Sizes of the operand."""
    QUANTIZER = auto()
    """Between reals and stored integers."""
    BODY = auto()
    """Results of graphs of its own."""


class Factors(StrEnum):
    """The factors a with which f(a x) is a f(x); of a Pad, where it fills with 0."""

    NONE = ""
    """None, or none that is stated."""
    POSITIVE = auto()
    ANY = auto()
