"""File: a scanned LiteRT file as records: tensors, operators, inputs and outputs of its model.

The model is the file's first subgraph. Numbers of constants are views of the file's bytes; types are our own.
Nothing here knows what operators compute. Source: TensorFlow Lite's schema, version 3.
"""

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from types import ModuleType
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from planner.errors import ModelError, QTypeError
from planner.formats.litert.reader.scan import scan_litert
from planner.formats.litert.reader.sparse import Levels, spread
from planner.formats.litert.schema import package
from planner.formats.litert.vocabulary import ELEMENTS
from planner.ir.dtypes import NUMPY
from planner.ir.types.qtypes import Storage, Uniform, uniform

Array = npt.NDArray[Any]

STORED: Final = frozenset({"i16", "i4", "i8", "u8"})
"""Element types whose tensors are reals on a grid where they have scales."""
MOST_HELD: Final = 16
"""Bytes of constants for each byte of the file, as tensors may share a buffer."""
_FREE: Final = 1 << 20
_MOST_RANK: Final = 8
_MOST_ELEMENTS: Final = 1 << 40
_PLAIN: Final = 0
_CODE: Final = 10
"""Place of an operator's code in the table of fields."""
_FAULTS: Final = (struct.error, AttributeError, IndexError, KeyError, OverflowError, TypeError, ValueError)
"""Exceptions of the schema's accessors where a number leads elsewhere than the schema says."""


@dataclass(frozen=True, slots=True, eq=False)
class Tensor:
    """A tensor of the model.

    Attributes:
      element: our name of its element type; "" for one that we have no name of.
      scales: of its grid, also where `kind` is None, as of biases.
      kind: its type, where it is of `STORED` and has scales.
      problem: why it has scales and no type.
      data: the stored numbers of a constant.
      is_variable: whether it keeps its numbers from run to run.
    """

    name: str
    shape: tuple[int, ...]
    element: str
    scales: tuple[float, ...] = ()
    kind: Uniform | None = None
    problem: str = ""
    data: Array | None = None
    is_variable: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Operator:
    """An operator: tensors by index, -1 for an optional one that is absent.

    Attributes:
      name: of the schema, or as the file calls a custom one.
    """

    name: str
    is_custom: bool
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    options: Callable[[str], Any]
    """Returns the table of options of this name; None where the operator has another or none."""


@dataclass(frozen=True, slots=True, eq=False)
class File:
    """The model of a file.

    Attributes:
      inputs, outputs: (name in the signature, else of the tensor; index of the tensor).
      index: of the subgraph.
      subgraph: another one of the file, by index; a number that is none is a ModelError.
      metadata: names of what stands beside the model for programs that run it: labels, normalisation.
    """

    name: str
    tensors: tuple[Tensor, ...]
    operators: tuple[Operator, ...]
    inputs: tuple[tuple[str, int], ...]
    outputs: tuple[tuple[str, int], ...]
    index: int
    subgraph: "Callable[[int], File]"
    metadata: tuple[str, ...] = ()


def read_file(data: bytes) -> File:
    """Scan a file and read its first subgraph.

    Raises:
      ModelError: a malformed file, or one whose parts do not fit; the extra is not installed.
    """
    scan_litert(data)
    schema = package("tflite", "read", ModelError)
    try:
        return _Reader(schema, data).file(0)
    except _FAULTS as error:
        raise ModelError(f"no LiteRT file: a field has the wrong form: {error}") from None


_OF_CONVERTERS: Final = frozenset({"min_runtime_version", "CONVERSION_METADATA", "reduced_precision_support"})


class _Reader:
    """The tables of one file."""

    def __init__(self, schema: ModuleType, data: bytes) -> None:
        self.schema, self.data = schema, data
        self.model = schema.Model.GetRootAs(data, 0)
        self.held = 0
        self.known: dict[int, File] = {}
        self.types = {
            getattr(schema.TensorType, theirs): ours
            for ours, theirs in ELEMENTS.items()
            if hasattr(schema.TensorType, theirs)
        }
        self.operator_names = _by_number(schema.BuiltinOperator)
        self.option_names = _by_number(schema.BuiltinOptions)
        self.more_option_names = _by_number(schema.BuiltinOptions2)

    def subgraph(self, index: int) -> File:
        if not 0 <= index < self.model.SubgraphsLength():
            raise ModelError(f"an operator runs subgraph {index}; there are {self.model.SubgraphsLength()}")
        if index not in self.known:
            self.known[index] = self.file(index)
        return self.known[index]

    def file(self, index: int) -> File:
        if not self.model.SubgraphsLength():
            raise ModelError("a LiteRT file without a subgraph, so there is nothing to compute")
        graph = self.model.Subgraphs(index)
        tensors = tuple([self.tensor(graph.Tensors(i), i) for i in range(graph.TensorsLength())])
        operators = tuple([self.operator(graph.Operators(i), i) for i in range(graph.OperatorsLength())])
        sides = [
            ("input", _integers(graph.InputsAsNumpy(), graph.InputsLength())),
            ("output", _integers(graph.OutputsAsNumpy(), graph.OutputsLength())),
        ]
        for what, places in (
            *sides,
            *(("operator", (*item.inputs, *item.outputs)) for item in operators),
        ):
            least = -1 if what == "operator" else 0
            wrong = next((place for place in places if not least <= place < len(tensors)), None)
            if wrong is not None:
                raise ModelError(f"an {what} names tensor {wrong}; there are {len(tensors)}")
        if not sides[1][1] and not index:
            raise ModelError("a LiteRT file without outputs, so there is nothing to compute")
        named = {} if index else self.signature()
        inputs, outputs = (
            tuple([(named.get((what, place), tensors[place].name), place) for place in places])
            for what, places in sides
        )
        name = graph.Name().decode() if graph.Name() else ""
        beside = self.metadata()
        return File(name or "model", tensors, operators, inputs, outputs, index, self.subgraph, beside)

    def metadata(self) -> tuple[str, ...]:
        """Names of the entries that the converter did not make for itself."""
        entries = map(self.model.Metadata, range(self.model.MetadataLength()))
        names = [(entry.Name() or b"").decode() for entry in entries]
        return tuple(name for name in names if name not in _OF_CONVERTERS)

    def signature(self) -> Mapping[tuple[str, int], str]:
        """Names of inputs and outputs, where one signature alone says them."""
        count = self.model.SignatureDefsLength()
        of_first = [item for item in map(self.model.SignatureDefs, range(count)) if not item.SubgraphIndex()]
        if len(of_first) != 1:
            return {}
        (item,) = of_first
        found = {}
        for i in range(item.InputsLength()):
            found["input", item.Inputs(i).TensorIndex()] = item.Inputs(i).Name()
        for i in range(item.OutputsLength()):
            found["output", item.Outputs(i).TensorIndex()] = item.Outputs(i).Name()
        return {place: name.decode() for place, name in found.items() if name}

    def tensor(self, item: Any, index: int) -> Tensor:
        name = item.Name().decode() if item.Name() else f"tensor_{index}"
        shape = _integers(item.ShapeAsNumpy(), item.ShapeLength())
        if len(shape) > _MOST_RANK or min(shape, default=0) < 0 or prod(shape) > _MOST_ELEMENTS:
            raise ModelError(
                f"tensor {name!r} has shape {list(shape)}; accepted: at most {_MOST_RANK} sizes, not "
                f"below 0, of at most {_MOST_ELEMENTS} elements"
            )
        element = self.types.get(item.Type(), "")
        data = self.numbers(item, name, element, shape)
        grid = item.Quantization()
        if grid is None or not grid.ScaleLength():
            return Tensor(name, shape, element, data=data, is_variable=bool(item.IsVariable()))
        scales = tuple(map(float, grid.ScaleAsNumpy()))
        kind, problem = None, ""
        if element in STORED:
            try:
                kind = _kind(grid, element, shape)
            except (ModelError, QTypeError) as error:
                problem = str(error)
        return Tensor(name, shape, element, scales, kind, problem, data, bool(item.IsVariable()))

    def numbers(self, item: Any, name: str, element: str, shape: tuple[int, ...]) -> Array | None:
        """The stored numbers of a constant."""
        index = item.Buffer()
        if not index:
            return None
        if index >= self.model.BuffersLength():
            raise ModelError(f"tensor {name!r} names buffer {index}; there are {self.model.BuffersLength()}")
        held = self.bytes(self.model.Buffers(index), name)
        if held is None:
            return None
        self.held += prod(shape) * 4
        if self.held > MOST_HELD * len(self.data) + _FREE:
            raise ModelError(
                f"constants up to {name!r} have {self.held} bytes in memory; accepted: at most {MOST_HELD} "
                f"times the file's {len(self.data)}, and {_FREE}"
            )
        if item.Sparsity() is None:
            return unpacked(held, element, shape, name)
        places = Levels(item.Sparsity(), shape, name).places(self.schema, len(self.data))
        values = unpacked(held, element, places.shape, name)
        return None if values is None else spread(values, places, shape)

    def bytes(self, buffer: Any, name: str) -> Array | None:
        """The bytes of a buffer, in the table or behind it."""
        start, size = buffer.Offset(), buffer.Size()
        if start > 1:
            if start + size > len(self.data):
                raise ModelError(
                    f"the numbers of tensor {name!r} end at byte {start + size}; the file has "
                    f"{len(self.data)}"
                )
            return np.frombuffer(self.data, np.uint8, size, start)
        return buffer.DataAsNumpy() if buffer.DataLength() else None

    def operator(self, item: Any, index: int) -> Operator:
        if item.OpcodeIndex() >= self.model.OperatorCodesLength():
            raise ModelError(
                f"operator {index} has code {item.OpcodeIndex()}; there are "
                f"{self.model.OperatorCodesLength()}"
            )
        code = self.model.OperatorCodes(item.OpcodeIndex())
        number = max(_whole_code(code), code.DeprecatedBuiltinCode())
        name = self.operator_names.get(number, f"OPERATOR_{number}")
        is_custom = name == "CUSTOM"
        if is_custom:
            name = code.CustomCode().decode() if code.CustomCode() else ""
        return Operator(
            name,
            is_custom,
            _integers(item.InputsAsNumpy(), item.InputsLength()),
            _integers(item.OutputsAsNumpy(), item.OutputsLength()),
            lambda table: self.options(item, table),
        )

    def options(self, item: Any, table: str) -> Any:
        """The options of an operator, where they are those of a table."""
        if self.option_names.get(item.BuiltinOptionsType()) == table:
            union = item.BuiltinOptions()
        elif self.more_option_names.get(item.BuiltinOptions2Type()) == table:
            union = item.BuiltinOptions2()
        else:
            union = None
        if union is None:
            return None
        found = getattr(self.schema, table)()
        found.Init(union.Bytes, union.Pos)
        return found


def _whole_code(code: Any) -> int:
    """The code of an operator in the field of schema 3a, 0 where it is absent.

    Before 3a codes fitted a byte and stood in a field of their own. Some files have the later field alone,
    of which the schema's package says nothing where the code would fit a byte.
    """
    table = code._tab  # noqa: SLF001 - no accessor gives the field
    place = table.Offset(_CODE)
    return int.from_bytes(table.Bytes[table.Pos + place :][:4], "little", signed=True) if place else 0


def _by_number(names: Any) -> Mapping[int, str]:
    return {number: name for name, number in vars(names).items() if isinstance(number, int)}


def _integers(found: Any, count: int) -> tuple[int, ...]:
    # Of an empty vector flatbuffers gives the number 0.
    return tuple(map(int, found)) if count else ()


def _kind(grid: Any, element: str, shape: Sequence[int]) -> Uniform:
    """The type of a tensor with scales.

    Raises:
      ModelError: scales that no type says.
      QTypeError: the same.
    """
    if grid.DetailsType() != _PLAIN:
        raise ModelError("its scales are per block or custom")
    scales = list(map(float, grid.ScaleAsNumpy()))
    zeros = _integers(grid.ZeroPointAsNumpy(), grid.ZeroPointLength()) or (0,)
    count, axis = len(scales), None
    if count > 1:
        axis = grid.QuantizedDimension()
        if not 0 <= axis < len(shape) or shape[axis] != count:
            raise ModelError(f"it has {count} scales along axis {axis} of {list(shape)}")
    if len(zeros) not in (1, count):
        raise ModelError(f"it has {count} scales and {len(zeros)} zero points")
    bits, signed = int(element[1:]), element[0] == "i"
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
    points = zeros[0] if len(zeros) == 1 else zeros
    return uniform(Storage(bits, signed=signed, qmin=low, qmax=high), scales, points, axis=axis)


def unpacked(held: Array, element: str, shape: tuple[int, ...], name: str) -> Array | None:
    """The numbers that bytes are; those of 4 bits, two in a byte, as bytes.

    Raises:
      ModelError: too few bytes, or too many.
    """
    if not element:
        return None
    count, width = prod(shape), 4 if element == "i4" else 8 * NUMPY[element].itemsize
    wanted = -(-count * width // 8)
    if len(held) != wanted:
        raise ModelError(
            f"tensor {name!r} of {element} and shape {list(shape)} has {len(held)} bytes; {wanted} hold it"
        )
    if element != "i4":
        raw = np.frombuffer(held.tobytes(), NUMPY[element].newbyteorder("<"))
        return raw.reshape(shape)
    # The lower half of a byte comes first; shifts of signed bytes keep the sign.
    halves = np.stack([held << 4, held & 0xF0], axis=-1).reshape(-1)[:count].view(np.int8)
    return (halves >> 4).reshape(shape)
