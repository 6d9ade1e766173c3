"""A .tflite file of the schema's tables alone, as older converters write them: without a signature."""

from dataclasses import dataclass, field

import flatbuffers
import numpy as np
import pytest

tflite = pytest.importorskip("tflite", reason="no tflite: pip install '.[litert]'")


@dataclass(frozen=True)
class Sparse:
    """Levels of a sparse tensor: (dense size, ends of rows, indices), dense without rows."""

    order: tuple
    blocks: tuple
    levels: tuple

    def table(self, made, bits):
        """The table, its vectors of so many bits."""
        levels = [
            table(
                made,
                "DimensionMetadata",
                Format=0 if ends is None and size else 1,
                DenseSize=size,
                **({} if ends is None else self.listed(made, "ArraySegments", ends, bits)),
                **({} if indices is None else self.listed(made, "ArrayIndices", indices, bits)),
            )
            for size, ends, indices in self.levels
        ]
        return table(
            made,
            "SparsityParameters",
            TraversalOrder=numbers(made, self.order, np.int32),
            BlockMap=numbers(made, self.blocks, np.int32),
            DimMetadata=vector(made, levels),
        )

    @staticmethod
    def listed(made, name, values, bits):
        """One vector, and its kind."""
        kind = {8: "Uint8Vector", 16: "Uint16Vector", 32: "Int32Vector"}[bits]
        dtype = np.int32 if bits == 32 else f"u{bits // 8}"
        held = table(made, kind, Values=numbers(made, values, dtype))
        return {name: held, f"{name}Type": getattr(tflite.SparseIndexVector, kind)}


@dataclass
class Hand:
    """Tensors and operators of one subgraph, in the order they are given.

    `variables` are places of tensors that keep their numbers, `inner` those of intermediates of operators;
    `later` leaves out the older field of codes; `metadata` are names of entries beside the model; lists
    of sparse tensors have `index_bits`; `instead` are fields of a table by its kind and place.
    """

    tensors: list = field(default_factory=list)
    operators: list = field(default_factory=list)
    variables: set = field(default_factory=set)
    inner: tuple = ()
    later: bool = False
    metadata: tuple = ()
    index_bits: int = 8
    sparse: dict = field(default_factory=dict)
    instead: dict = field(default_factory=dict)

    def tensor(self, shape, element, data=None, scales=(), zeros=(), axis=0, name=None, *, sparse=None):  # noqa: PLR0917
        """Add a tensor; `data` are its bytes."""
        self.sparse[len(self.tensors)] = sparse
        self.tensors.append((tuple(shape), element, data, tuple(scales), tuple(zeros), axis, name))
        return len(self.tensors) - 1

    def operator(self, name, version, inputs, outputs, table="", options=(), custom=None):  # noqa: PLR0917
        """Add an operator, a custom one with the bytes of its options."""
        self.operators.append((name, version, tuple(inputs), tuple(outputs), table, dict(options), custom))

    def file(self, inputs, outputs, others=()):
        """The bytes of the file; `others` are its further subgraphs: (hand, inputs, outputs)."""
        made = flatbuffers.Builder(256)
        parts = [(self, inputs, outputs), *others]
        datas = [b"", *(item[2] for hand, _, _ in parts for item in hand.tensors if item[2] is not None)]
        buffers = vector(
            made,
            [
                table(made, "Buffer", **self.instead.get(("Buffer", i), {"Data": raw(made, data)}))
                for i, data in enumerate(datas)
            ],
        )
        place, codes = iter(range(1, len(datas))), []
        graphs = [hand.subgraph(made, place, codes, given, results) for hand, given, results in parts]
        entries = [
            table(made, "Metadata", Name=name, Buffer=0) for name in map(made.CreateString, self.metadata)
        ]
        beside = {"Metadata": vector(made, entries)} if entries else {}
        made.Finish(
            table(
                made,
                "Model",
                Buffers=buffers,
                OperatorCodes=vector(made, codes),
                Subgraphs=vector(made, graphs),
                Version=3,
                **beside,
            ),
            file_identifier=b"TFL3",
        )
        return bytes(made.Output())

    def subgraph(self, made, place, codes, inputs, outputs):
        """One subgraph: its buffers have the next places, its operators the next codes."""
        tensors = []
        for i, (shape, element, data, scales, zeros, axis, name) in enumerate(self.tensors):
            fields = {
                "Name": made.CreateString(name or f"t{i}"),
                "Shape": numbers(made, shape, np.int32),
                "Type": getattr(tflite.TensorType, element),
                "Buffer": 0 if data is None else next(place),
            }
            if self.sparse[i] is not None:
                fields["Sparsity"] = self.sparse[i].table(made, self.index_bits)
            if i in self.variables:
                fields["IsVariable"] = True
            if scales:
                fields["Quantization"] = table(
                    made,
                    "QuantizationParameters",
                    Scale=numbers(made, scales, np.float32),
                    ZeroPoint=numbers(made, zeros or (0,) * len(scales), np.int64),
                    QuantizedDimension=axis,
                )
            tensors.append(table(made, "Tensor", **fields | self.instead.get(("Tensor", i), {})))
        operators = []
        for name, version, given, results, kind, options, custom in self.operators:
            code = (
                tflite.BuiltinOperator.CUSTOM if custom is not None else getattr(tflite.BuiltinOperator, name)
            )
            text = {"CustomCode": made.CreateString(name)} if custom is not None else {}
            more = {"BuiltinCode": code, "Version": version}
            if not self.later:
                more["DeprecatedBuiltinCode"] = min(code, 127)
            fields = {
                "OpcodeIndex": len(codes),
                "Inputs": numbers(made, given, np.int32),
                "Outputs": numbers(made, results, np.int32),
            }
            if self.inner:
                fields["Intermediates"] = numbers(made, self.inner, np.int32)
            codes.append(table(made, "OperatorCode", **text, **more))
            if kind:
                union = "BuiltinOptions" if hasattr(tflite.BuiltinOptions, kind) else "BuiltinOptions2"
                fields[f"{union}Type"] = getattr(getattr(tflite, union), kind)
                fields[union] = table(made, kind, **options)
            if custom is not None:
                fields["CustomOptions"] = raw(made, custom)
            fields |= self.instead.get(("Operator", len(operators)), {})
            operators.append(table(made, "Operator", **fields))
        return table(
            made,
            "SubGraph",
            Operators=vector(made, operators),
            Tensors=vector(made, tensors),
            Inputs=numbers(made, inputs, np.int32),
            Outputs=numbers(made, outputs, np.int32),
        )


def table(made, kind, **fields):
    """One table of the schema."""
    getattr(tflite, f"{kind}Start")(made)
    for name, value in fields.items():
        getattr(tflite, f"{kind}Add{name}")(made, value)
    return getattr(tflite, f"{kind}End")(made)


def numbers(made, values, dtype):
    """A vector of numbers."""
    return made.CreateNumpyVector(np.asarray(values, dtype))


def raw(made, data):
    """A vector of bytes, aligned as the runtime wants constants."""
    made.StartVector(1, len(data), 16)
    for byte in reversed(data):
        made.PrependByte(byte)
    return made.EndVector()


def vector(made, offsets):
    """A vector of tables."""
    made.StartVector(4, len(offsets), 4)
    for offset in reversed(offsets):
        made.PrependUOffsetTRelative(offset)
    return made.EndVector()


def halves(array):
    """Integers of four bits, two in a byte, the first in its lower half."""
    flat = np.asarray(array, np.int8).reshape(-1)
    flat = np.concatenate([flat, np.zeros(flat.size % 2, np.int8)])
    return bytes(((flat[0::2] & 15) | ((flat[1::2] & 15) << 4)).astype(np.uint8))
