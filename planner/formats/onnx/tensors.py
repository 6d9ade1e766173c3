"""Tensors: `TensorProto` to arrays (external data mapped, not copied) and arrays to `TensorProto`.

Formats narrower than a byte are packed low bits first in files and unpacked in arrays.
Source: onnx.proto, `TensorProto`; ONNX "External Data".
"""

import math
import sys
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import numpy as np
from onnx import TensorProto, numpy_helper

from planner.errors import ModelError
from planner.formats.onnx.dtypes import NAMES, NARROW_BITS, NUMPY, byte_size, dtype_of, enum_of
from planner.ir.mapped import map_bytes

_ALIGNMENT: Final = 4096
_DELIMITED: Final = 2  # protobuf's wire type of bytes, strings and messages
_DIM, _KIND = (
    bytes([number << 3]) for number in (TensorProto.DIMS_FIELD_NUMBER, TensorProto.DATA_TYPE_FIELD_NUMBER)
)
_NAME: Final = bytes([TensorProto.NAME_FIELD_NUMBER << 3 | _DELIMITED])
_RAW: Final = bytes([TensorProto.RAW_DATA_FIELD_NUMBER << 3 | _DELIMITED])
_SMALL: Final = tuple(bytes([number]) for number in range(128))


def array_of(tensor: TensorProto, folder: Path | None = None) -> np.ndarray:
    """Read a tensor; external data becomes a read-only memory map.

    Args:
      folder: of the model file; external data may only lie in it or below.

    Raises:
      ModelError: fewer bytes than the shape needs, an unknown element type, external data missing.
    """
    dtype = NAMES.get(tensor.data_type)
    if dtype is None:
        raise ModelError(f"tensor {tensor.name!r} has the unknown element type {tensor.data_type}")
    if any(dim < 0 for dim in tensor.dims):
        raise ModelError(f"tensor {tensor.name!r} has a negative dimension: {list(tensor.dims)}")
    if tensor.data_location == TensorProto.EXTERNAL:
        return _mapped(tensor, dtype, folder)
    if not tensor.HasField("raw_data"):
        return _from_fields(tensor, dtype)
    raw = tensor.raw_data
    _check_size(tensor, dtype, len(raw))
    return array_of_raw(np.frombuffer(raw, dtype=np.uint8), dtype, tuple(tensor.dims))


def tensor_of(name: str, array: np.ndarray, dtype: str = "") -> TensorProto:
    """Write an array; `dtype` names a format numpy has no own type for (`i4` of an int8 array)."""
    wanted = dtype or dtype_of(array)
    tensor = TensorProto(name=name, data_type=enum_of(wanted), dims=array.shape)
    if wanted == "string":
        tensor.string_data.extend(_as_bytes(item) for item in array.reshape(-1).tolist())
    else:
        tensor.raw_data = raw_bytes(array, wanted)
    return tensor


def tensor_parts(name: str, array: np.ndarray, dtype: str) -> list[bytes]:
    """The serialised tensor in parts, its elements as they are: joining is the only time they are copied."""
    if dtype == "string":
        return [tensor_of(name, array, dtype).SerializeToString()]
    text, raw = name.encode(), raw_bytes(array, dtype)
    told = (_shape_and_kind(array.shape, dtype), _NAME, _varint(len(text)), text, _RAW, _varint(len(raw)))
    return [b"".join(told), raw]


@lru_cache(maxsize=1024)
def _shape_and_kind(shape: tuple[int, ...], dtype: str) -> bytes:
    """The first fields of a serialised tensor, which many tensors have in common."""
    return b"".join([*(_DIM + _varint(size) for size in shape), _KIND, _varint(enum_of(dtype))])


def field_parts(number: int, parts: Sequence[bytes]) -> list[bytes]:
    """A length-delimited field of a protobuf message whose value lies in parts."""
    tag, size = bytes([number << 3 | _DELIMITED]), sum(map(len, parts))
    return [tag + _varint(size), *parts]


def _varint(number: int) -> bytes:
    if number < len(_SMALL):
        return _SMALL[number]
    digits = bytearray()
    while number > 127:
        digits.append(number & 127 | 128)
        number >>= 7
    digits.append(number)
    return bytes(digits)


def external_tensor(name: str, array: np.ndarray, dtype: str, *, location: str, offset: int) -> TensorProto:
    """Describe a tensor whose bytes lie at `offset` of the file `location`."""
    tensor = TensorProto(name=name, data_type=enum_of(dtype), dims=array.shape)
    tensor.data_location = TensorProto.EXTERNAL
    length = byte_size(dtype, array.size)
    for key, item in (("location", location), ("offset", offset), ("length", length)):
        tensor.external_data.add(key=key, value=str(item))
    return tensor


def aligned(offset: int) -> int:
    """The next offset that can be mapped on every system."""
    return -(-offset // _ALIGNMENT) * _ALIGNMENT


def raw_bytes(array: np.ndarray, dtype: str) -> bytes:
    """The elements as a file holds them: little endian, narrow formats packed."""
    if dtype in NARROW_BITS:
        return _packed(array, dtype)
    wanted = NUMPY[dtype] if sys.byteorder == "little" else NUMPY[dtype].newbyteorder("<")
    plain = array
    if array.dtype != wanted or not array.flags.c_contiguous:
        plain = np.ascontiguousarray(array.astype(wanted, copy=False))
    return _whole(plain) or plain.tobytes()


def raw_view(array: np.ndarray, dtype: str) -> bytes | memoryview:
    """`raw_bytes` without a copy, where the elements lie in memory as a file holds them."""
    if (
        dtype not in NARROW_BITS
        and array.flags.c_contiguous
        and array.dtype == NUMPY[dtype].newbyteorder("<")
    ):
        return array.reshape(-1).view(np.uint8).data
    return raw_bytes(array, dtype)


def _whole(array: np.ndarray) -> bytes | None:
    """The bytes that a contiguous array looks at, where it looks at all of them: as when it was read."""
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    return base if isinstance(base, bytes) and len(base) == array.nbytes else None


def _packed(array: np.ndarray, dtype: str) -> bytes:
    bits = NARROW_BITS[dtype]
    native = array.astype(NUMPY[dtype], copy=False).reshape(-1).view(np.uint8)
    fields = native & ((1 << bits) - 1)
    per_byte = 8 // bits
    padded = np.zeros(-(-fields.size // per_byte) * per_byte, dtype=np.uint8)
    padded[: fields.size] = fields
    shifts = np.arange(per_byte, dtype=np.uint8) * bits
    packed: np.ndarray = np.bitwise_or.reduce(padded.reshape(-1, per_byte) << shifts, axis=1)
    return packed.astype(np.uint8).tobytes()


def array_of_raw(raw: np.ndarray, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    """The array whose elements a file holds as these bytes: `raw_bytes` turned round."""
    bits = NARROW_BITS.get(dtype)
    if bits is None:
        return raw.view(NUMPY[dtype].newbyteorder("<")).reshape(shape)
    shifts = np.arange(8 // bits, dtype=np.uint8) * bits
    fields = ((raw[:, None] >> shifts) & ((1 << bits) - 1)).reshape(-1)[: math.prod(shape)]
    if dtype.startswith("i"):
        sign = 1 << (bits - 1)
        fields = (fields.astype(np.int8) ^ sign) - sign
    native = NUMPY[dtype]
    return (fields.view(native) if dtype.startswith("f") else fields.astype(native)).reshape(shape)


def _from_fields(tensor: TensorProto, dtype: str) -> np.ndarray:
    try:
        array: np.ndarray = numpy_helper.to_array(tensor)
    except (TypeError, ValueError) as error:
        shape = list(tensor.dims)
        raise ModelError(f"tensor {tensor.name!r} does not hold the {dtype} {shape} it names") from error
    return array


def _mapped(tensor: TensorProto, dtype: str, folder: Path | None) -> np.ndarray:
    entries = {entry.key: entry.value for entry in tensor.external_data}
    location = entries.get("location", "")
    if folder is None:
        raise ModelError(
            f"tensor {tensor.name!r} lies in the external file {location!r}, and the model came as bytes",
            hint="give the path of the model file, or to the service `external_data`",
        )
    path = (folder / location).resolve()
    if not location or not path.is_relative_to(folder.resolve()):
        raise ModelError(f"external file {location!r} of tensor {tensor.name!r} lies outside {str(folder)!r}")
    if not path.is_file():
        raise ModelError(f"external file {str(path)!r} of tensor {tensor.name!r} does not exist")
    offset, needed = _number(entries, "offset", tensor), byte_size(dtype, math.prod(tensor.dims))
    _check_size(
        tensor, dtype, min(path.stat().st_size - offset, _number(entries, "length", tensor) or needed)
    )
    if needed == 0:
        return np.zeros(tuple(tensor.dims), dtype=NUMPY[dtype])
    return array_of_raw(map_bytes(path, offset, needed), dtype, tuple(tensor.dims))


def _number(entries: dict[str, str], key: str, tensor: TensorProto) -> int:
    text = entries.get(key) or "0"
    if not text.isdecimal():
        raise ModelError(f"external data of tensor {tensor.name!r} has the {key} {text!r}, not a number")
    return int(text)


def _check_size(tensor: TensorProto, dtype: str, held: int) -> None:
    needed = byte_size(dtype, math.prod(tensor.dims))
    if held != needed:
        shape = list(tensor.dims)
        raise ModelError(f"tensor {tensor.name!r} holds {held} bytes, its {dtype} {shape} needs {needed}")


def _as_bytes(item: Any) -> bytes:
    return item if isinstance(item, bytes) else str(item).encode()
