"""State while a function is read: names of SSA values, values, constants, ops; and its errors."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

from xdsl.ir import Attribute, Operation, SSAValue

from planner.errors import ModelError, PlanFormatError, QTypeError
from planner.formats.mlir.attributes import attribute_value, value_of
from planner.formats.mlir.places import place
from planner.ir.graph import Constant, Facts, Op, Value


@dataclass
class ReadState:
    """The state of reading one function.

    Attributes:
      spelled: names of SSA values in the text, where they are no numbers.
      stated: facts that types, casts and statistics of the function state of values, by name.
      integers: results of storage casts, with the name of the value whose stored integers they are.
    """

    source: str
    starts: Mapping[int, int]
    spelled: Mapping[SSAValue, str]
    names: dict[SSAValue, str] = field(default_factory=dict)
    values: dict[str, Value] = field(default_factory=dict)
    constants: dict[str, Constant] = field(default_factory=dict)
    ops: list[Op] = field(default_factory=list)
    stated: dict[str, Facts] = field(default_factory=dict)
    integers: dict[SSAValue, str] = field(default_factory=dict)

    def fail(self, op: Operation, message: str) -> NoReturn:
        """Stop at an op."""
        raise ModelError(f"{place(self.source, self.starts.get(id(op), 0))}: {message}")

    def define(self, op: Operation, values: Sequence[SSAValue], names: Any) -> tuple[str, ...]:
        """Name SSA values: as given, else by their SSA names."""
        if names is None:
            names = tuple([self.called(value, f"v{len(self.names) + i}") for i, value in enumerate(values)])
        if len(names) != len(values):
            self.fail(op, f"{len(names)} names for {len(values)} values")
        for name, value in zip(names, values, strict=True):
            self.names[value] = name
            self.add(op, name, value.type)
        return tuple(names)

    def add(self, op: Operation, name: str, kind: Attribute) -> None:
        """Add the value of a tensor type, with the constraint its element type is."""
        try:
            value = value_of(name, kind)
        except (ModelError, QTypeError) as error:
            self.fail(op, str(error))
        if value is not None and name:
            if name in self.values:
                self.fail(op, f"two values are named {name!r}")
            if value.facts:
                self.stated[name] = value.facts
            self.values[name] = value

    def plain(self, op: Operation, attribute: Attribute) -> Any:
        """Turn an attribute of an op into plain data."""
        try:
            return attribute_value(attribute)
        except (ModelError, PlanFormatError, QTypeError, UnicodeDecodeError) as error:
            self.fail(op, str(error))

    def called(self, value: SSAValue, otherwise: str) -> str:
        """Name a value as the text does, or otherwise; never as another value."""
        name = self.spelled.get(value, otherwise)
        return self.fresh(name) if name in self.values else name

    def fresh(self, base: str) -> str:
        """Make a name no value has yet."""
        count = 1
        while f"{base}#{count}" in self.values:
            count += 1
        return f"{base}#{count}"
