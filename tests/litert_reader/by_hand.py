"""A .tflite file of the schema's tables alone, as older converters write them: without a signature."""

from dataclasses import dataclass, field

import flatbuffers
import numpy as np
import pytest

tflite = pytest.importorskip("tflite", reason="no tflite: pip install '.[litert]'")


@dataclass
class Hand:
    """Tensors and operators of one subgraph, in the order they are given."""

    tensors: list = field(default_factory=list)
    operators: list = field(default_factory=list)

    def tensor(self, shape, element, data=None, scales=(), zeros=(), axis=0, name=None):  # noqa: PLR0917
        """Add a tensor; `data` are its bytes."""
        self.tensors.append((tuple(shape), element, data, tuple(scales), tuple(zeros), axis, name))
        return len(self.tensors) - 1

    def operator(self, name, version, inputs, outputs, table="", options=(), custom=None):  # noqa: PLR0917
        """Add an operator, a custom one with the bytes of its options."""
        self.operators.append((name, version, tuple(inputs), tuple(outputs), table, dict(options), custom))

    def file(self, inputs, outputs):
        """The bytes of the file."""
        made = flatbuffers.Builder(256)
        datas = [b""] + [data for _, _, data, *_ in self.tensors if data is not None]
        buffers = vector(made, [table(made, "Buffer", Data=raw(made, data)) for data in datas])
        place = iter(range(1, len(datas)))
        tensors = []
        for i, (shape, element, data, scales, zeros, axis, name) in enumerate(self.tensors):
            fields = {
                "Name": made.CreateString(name or f"t{i}"),
                "Shape": numbers(made, shape, np.int32),
                "Type": getattr(tflite.TensorType, element),
                "Buffer": 0 if data is None else next(place),
            }
            if scales:
                fields["Quantization"] = table(
                    made,
                    "QuantizationParameters",
                    Scale=numbers(made, scales, np.float32),
                    ZeroPoint=numbers(made, zeros or (0,) * len(scales), np.int64),
                    QuantizedDimension=axis,
                )
            tensors.append(table(made, "Tensor", **fields))
        codes, operators = [], []
        for i, (name, version, given, results, kind, options, custom) in enumerate(self.operators):
            code = (
                tflite.BuiltinOperator.CUSTOM if custom is not None else getattr(tflite.BuiltinOperator, name)
            )
            text = {"CustomCode": made.CreateString(name)} if custom is not None else {}
            more = {"DeprecatedBuiltinCode": min(code, 127), "BuiltinCode": code, "Version": version}
            codes.append(table(made, "OperatorCode", **text, **more))
            fields = {
                "OpcodeIndex": i,
                "Inputs": numbers(made, given, np.int32),
                "Outputs": numbers(made, results, np.int32),
            }
            if kind:
                fields["BuiltinOptionsType"] = getattr(tflite.BuiltinOptions, kind)
                fields["BuiltinOptions"] = table(made, kind, **options)
            if custom is not None:
                fields["CustomOptions"] = raw(made, custom)
            operators.append(table(made, "Operator", **fields))
        graph = table(
            made,
            "SubGraph",
            Operators=vector(made, operators),
            Tensors=vector(made, tensors),
            Inputs=numbers(made, inputs, np.int32),
            Outputs=numbers(made, outputs, np.int32),
        )
        made.Finish(
            table(
                made,
                "Model",
                Buffers=buffers,
                OperatorCodes=vector(made, codes),
                Subgraphs=vector(made, [graph]),
                Version=3,
            ),
            file_identifier=b"TFL3",
        )
        return bytes(made.Output())


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
