"""Flatbuffer: a program's tensors and operators as the bytes of a .tflite file.

Buffers are aligned to 16 bytes and equal ones shared; the same program gives the same bytes. The schema is
the package `tflite`, which is imported only here, when a file is written: extra `litert`.
Source: TensorFlow Lite's schema, version 3; LiteRT, "signatures" and "metadata".
"""

from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any, Final

import numpy as np

from planner.errors import UnsupportedExport
from planner.formats.litert.identifier import IDENTIFIER
from planner.formats.litert.schema import package
from planner.formats.litert.vocabulary import ELEMENTS
from planner.formats.litert.writer.operations import Entry, Operator, Program, Subgraph
from planner.formats.litert.writer.versions import runtime_of

SCHEMA_VERSION: Final = 3
SIGNATURE: Final = "serving_default"
RUNTIME_METADATA: Final = "min_runtime_version"
ALIGNMENT: Final = 16
MOST_BYTES: Final = 2**31 - 1
"""A flatbuffer's offsets have 32 bits, and flatbuffers' own writer stops here."""

_OLD_CODES: Final = 127
"""Greater codes of operators do not fit the field that old versions of the runtime read."""


def file_bytes(program: Program, *, name: str, description: str) -> bytes:
    """Serialise a program.

    Args:
      program: complete; what no output rests on is left out.
      name: of the subgraph.
      description: of the model.

    Raises:
      UnsupportedExport: the extra is not installed, or the file would be too large.
    """
    found = program.subgraphs(name)
    total = sum(entry.data.nbytes for part in found for entry in part.entries if entry.data is not None)
    if total >= MOST_BYTES // 2:
        raise UnsupportedExport(
            f"{total} bytes of constants; a .tflite file holds less than {MOST_BYTES // 2} here",
            hint="use an ONNX format, which keeps large weights beside the file",
        )
    names = [tuple(key for key, _ in pairs) for pairs in (program.inputs, program.outputs)]
    return _Writer(found, *names).model(description)


def extra(name: str) -> ModuleType:
    """A package of the extra `litert`.

    Raises:
      UnsupportedExport: it is not installed.
    """
    return package(name, "written", UnsupportedExport)


class _Writer:
    """Tables of one file, children before their parents, as flatbuffers are built."""

    def __init__(self, subgraphs: Sequence[Subgraph], inputs: Sequence[str], outputs: Sequence[str]) -> None:
        self._schema = extra("tflite")
        self._builder = extra("flatbuffers").Builder(1 << 20)
        self._subgraphs, self._inputs, self._outputs = subgraphs, inputs, outputs
        # The first buffer is empty by the schema's rule: it is that of every tensor without numbers.
        self._buffers: dict[bytes, int] = {b"": 0}

    def model(self, description: str) -> bytes:
        for entry in (entry for part in self._subgraphs for entry in part.entries):
            if entry.data is not None:
                self._buffer(entry.data.tobytes())
        operators = [item for part in self._subgraphs for item in part.operators]
        runtime = self._buffer(_least_runtime(operators).encode().ljust(ALIGNMENT, b"\0"))
        codes = tuple(dict.fromkeys((item.name, item.version) for item in operators))
        fields_of = [{"Data": self._bytes(data)} if data else {} for data in self._buffers]
        buffers = self._tables("Buffer", fields_of)
        subgraphs = [self._subgraph(part, codes) for part in self._subgraphs]
        metadata = self._table("Metadata", {"Name": self._text(RUNTIME_METADATA), "Buffer": runtime})
        fields = {
            "Version": SCHEMA_VERSION,
            "OperatorCodes": self._tables("OperatorCode", [self._code(*code) for code in codes]),
            "Subgraphs": self._offsets(subgraphs),
            "Description": self._text(description),
            "Buffers": buffers,
            "Metadata": self._offsets([metadata]),
            "SignatureDefs": self._offsets([self._signature()]),
        }
        self._builder.Finish(self._table("Model", fields), file_identifier=IDENTIFIER)
        return bytes(self._builder.Output())

    def _buffer(self, data: bytes) -> int:
        return self._buffers.setdefault(data, len(self._buffers))

    def _code(self, name: str, version: int) -> Mapping[str, Any]:
        code = getattr(self._schema.BuiltinOperator, name)
        return {"DeprecatedBuiltinCode": min(code, _OLD_CODES), "BuiltinCode": code, "Version": version}

    def _subgraph(self, part: Subgraph, codes: Sequence[tuple[str, int]]) -> int:
        tensors = self._tables("Tensor", [self._tensor(entry) for entry in part.entries])
        operators = self._tables("Operator", [self._operator(item, codes) for item in part.operators])
        fields = {
            "Tensors": tensors,
            "Operators": operators,
            "Inputs": self._array(part.inputs, np.int32),
            "Outputs": self._array(part.outputs, np.int32),
            "Name": self._text(part.name),
        }
        return self._table("SubGraph", fields)

    def _tensor(self, entry: Entry) -> Mapping[str, Any]:
        fields: dict[str, Any] = {
            "Shape": self._array(entry.shape, np.int32),
            "Type": getattr(self._schema.TensorType, ELEMENTS[entry.element]),
            "Buffer": 0 if entry.data is None else self._buffers[entry.data.tobytes()],
            "Name": self._text(entry.name),
            "HasRank": True,
        }
        if entry.is_variable:
            fields["IsVariable"] = True
        if entry.kind is not None:
            parameters = {
                "Scale": self._array(entry.kind.scales, np.float32),
                "ZeroPoint": self._array(entry.kind.zero_points, np.int64),
                "QuantizedDimension": entry.dimension,
            }
            fields["Quantization"] = self._table("QuantizationParameters", parameters)
        return fields

    def _operator(self, item: Operator, codes: Sequence[tuple[str, int]]) -> Mapping[str, Any]:
        fields: dict[str, Any] = {
            "OpcodeIndex": codes.index((item.name, item.version)),
            "Inputs": self._array(item.inputs, np.int32),
            "Outputs": self._array(item.outputs, np.int32),
        }
        if item.intermediates:
            fields["Intermediates"] = self._array(item.intermediates, np.int32)
        if item.table:
            fields["BuiltinOptionsType"] = getattr(self._schema.BuiltinOptions, item.table)
            fields["BuiltinOptions"] = self._table(item.table, item.options)
        return fields

    def _signature(self) -> int:
        main = self._subgraphs[0]
        sides = {
            "Inputs": zip(self._inputs, main.inputs, strict=True),
            "Outputs": zip(self._outputs, main.outputs, strict=True),
        }
        fields: dict[str, Any] = {
            side: self._tables("TensorMap", [self._place(*pair) for pair in pairs])
            for side, pairs in sides.items()
        }
        return self._table("SignatureDef", {**fields, "SignatureKey": self._text(SIGNATURE)})

    def _place(self, name: str, index: int) -> Mapping[str, Any]:
        return {"Name": self._text(name), "TensorIndex": index}

    def _tables(self, kind: str, items: Sequence[Mapping[str, Any]]) -> int:
        return self._offsets([self._table(kind, fields) for fields in items])

    def _table(self, kind: str, fields: Mapping[str, Any]) -> int:
        call = self._call
        call(f"{kind}Start")
        for name, value in fields.items():
            call(f"{kind}Add{name}", value)
        return int(call(f"{kind}End"))

    def _call(self, name: str, *values: Any) -> Any:
        function: Callable[..., Any] = getattr(self._schema, name)
        return function(self._builder, *values)

    def _text(self, text: str) -> int:
        return int(self._builder.CreateSharedString(text))

    def _array(self, values: Sequence[float], dtype: Any) -> int:
        return int(self._builder.CreateNumpyVector(np.asarray(values, dtype)))

    def _offsets(self, offsets: Sequence[int]) -> int:
        self._builder.StartVector(4, len(offsets), 4)
        for offset in reversed(offsets):
            self._builder.PrependUOffsetTRelative(offset)
        return int(self._builder.EndVector())

    def _bytes(self, data: bytes) -> int:
        """A vector of bytes whose first one is aligned."""
        self._builder.StartVector(1, len(data), ALIGNMENT)
        self._builder.head -= len(data)
        self._builder.Bytes[self._builder.head : self._builder.head + len(data)] = data
        return int(self._builder.EndVector())


def _least_runtime(operators: Sequence[Operator]) -> str:
    """The first runtime that has every operator in its version."""
    found = max((runtime_of(item.name, item.version) for item in operators), default=(1, 5, 0))
    return ".".join(map(str, found))
