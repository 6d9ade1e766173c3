"""Encodings of AIMET and QNN as annotations: versions 0.4.0 to 0.6.1, 1.0.0 and 2.0.0.

A tensor between kernels gets the type; an input or output of the model the range that gives it, and its width
above 8 bits, as a type there would change how the model is called. An op that writes a float tensor runs in
float. Biases follow from their factors, and are left out. Source: AIMET, encoding specification; Qualcomm's
converters, `--quantization_overrides`; docs/formats.md.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from planner.errors import AnnotationError, QTypeError
from planner.ir.graph import Graph
from planner.ir.types.fit import misfit
from planner.ir.types.qtypes import Calibrated, Uniform, round_scales, storage
from planner.ir.types.typetext import parse_storage

OLD: Final = ("0.4.0", "0.5.0", "0.6.0", "0.6.1")
"""Versions of one form; a file without a version is of the first."""
VERSIONS: Final = (*OLD, "1.0.0", "2.0.0")
FORMAT: Final = "qplan.annotations/1"
DERIVED_BITS: Final = 32
BYTE: Final = 8
KEPT_FLOAT: Final = "!quant.none"
MOST: Final = 1 << 30
FLOATS: Final = frozenset({"FLOAT", "FP"})
SECTIONS: Final = frozenset({"activation_encodings", "encodings", "param_encodings"})


@dataclass(frozen=True, slots=True)
class _Encoding:
    """One tensor of a file.

    Attributes:
      storage: as text; "" of a float tensor.
      scales, zeros: () where the file says the width alone.
      axis: None where the file does not say it.
    """

    name: str
    storage: str = ""
    scales: tuple[float, ...] = ()
    zeros: tuple[int, ...] = ()
    symmetric: bool = False
    axis: int | None = None


def as_annotations(source: Any, graph: Graph) -> Any:
    """Annotations as they are, or those that a file of encodings says for a graph.

    Raises:
      AnnotationError: a version or an encoding that is not read here; names the tensor.
    """
    document = _document(source)
    if document is None:
        return source
    name = str(source) if isinstance(source, str | Path) else "encodings"
    version = document.get("version", _oldest(document))
    if version not in VERSIONS:
        raise AnnotationError(f"{name}: version {version!r} is not read; accepted: {', '.join(VERSIONS)}")
    values: dict[str, str | list[str]] = {}
    kernels: dict[str, str] = {}
    others: list[str] = []
    makers = {out: op.name for op in graph.all_ops() for out in op.outputs}
    for found in _encodings(document, str(version), name):
        if found is None:
            continue
        if found.name not in graph.values:
            others.append(found.name)
            continue
        if not found.scales:
            if found.name in graph.constants and len(graph.values[found.name].shape or ()) < 2:
                continue  # a bias, which is rounded to the grid of its factors whatever a file says
            if found.storage or found.name in graph.constants:
                values[found.name] = f"!quant.any<{found.storage}>" if found.storage else KEPT_FLOAT
            elif found.name in makers:
                kernels[makers[found.name]] = "float"
            continue
        try:
            kind = _type_of(found, graph)
        except QTypeError as error:
            raise AnnotationError(f"{name}: {found.name!r}: {error}") from error
        if problem := misfit(kind, graph.values[found.name]):
            raise AnnotationError(f"{name}: {problem}")
        values[found.name] = _fact(found, kind, graph)
    if others and not values and not kernels:
        raise AnnotationError(
            f"{name}: model {graph.name!r} has none of the tensors of this file, such as {others[0]!r}",
            hint="export the model and the encodings together, so that their names agree",
        )
    return {"format": FORMAT, "values": values, "kernels": kernels}


def _document(source: Any) -> Mapping[str, Any] | None:
    """The document of a file of encodings; None for anything else, which others read."""
    if isinstance(source, str | Path) and "\n" not in str(source):
        path = Path(source)
        if path.suffix not in (".encodings", ".json") or not path.is_file() or path.stat().st_size > MOST:
            return None
        try:
            source = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            return None
    is_file = isinstance(source, Mapping) and "format" not in source
    return source if is_file and not SECTIONS.isdisjoint(source.keys()) else None


def _oldest(document: Mapping[str, Any]) -> str:
    """The version of a file that says none: that of its form."""
    return "1.0.0" if any(isinstance(document.get(key), list) for key in SECTIONS) else OLD[0]


def _encodings(document: Mapping[str, Any], version: str, name: str) -> Iterator[_Encoding | None]:
    read = {"1.0.0": _read_1, "2.0.0": _read_2}.get(version, _read_0)
    sections = ("encodings",) if version == "2.0.0" else ("activation_encodings", "param_encodings")
    for other in sorted(SECTIONS.difference(sections)):
        if document.get(other):
            told = f"accepted in version {version}: {', '.join(sections)}"
            raise AnnotationError(f"{name}: {other} is not read; {told}")
    for section in sections:
        entries = document.get(section, [])
        if not isinstance(entries, Mapping | list):
            raise AnnotationError(f"{name}: {section}: a list or a mapping of tensors is accepted")
        pairs = entries.items() if isinstance(entries, Mapping) else ((None, entry) for entry in entries)
        for key, entry in pairs:
            try:
                found = read(key or str(entry["name"]), entry)
            except (ArithmeticError, AttributeError, LookupError, QTypeError, TypeError, ValueError) as error:
                which = key or (entry.get("name") if isinstance(entry, Mapping) else entry)
                reason = f"{type(error).__name__}: {error}"
                raise AnnotationError(
                    f"{name}: {section}: {which!r} is not a valid encoding: {reason}"
                ) from error
            yield found


def _read_0(name: str, entries: Any) -> _Encoding | None:
    """A list of one entry for the tensor or each channel, or one entry with lists of numbers."""
    entry, *more = entries if isinstance(entries, list) else [entries]
    if {"input", "output"} & entry.keys():
        raise ValueError(
            "it is of a module of PyTorch, as in AIMET's *_torch.encodings; accepted: the .encodings file "
            "beside it, which names tensors"
        )
    if str(entry.get("dtype", "int")).lower() == "float":
        return _Encoding(name)
    bits = int(entry["bitwidth"])
    if bits >= DERIVED_BITS:
        return None
    symmetric = str(entry.get("is_symmetric", "False")).lower() == "true"
    if not {"scale", "min", "max"} & entry.keys():
        return _Encoding(name, storage(f"{'i' if symmetric else 'u'}{bits}").name)
    grids = [_grid_0(one, bits, symmetric=symmetric) for part in (entry, *more) for one in _channels(part)]
    scales, offsets = [scale for scale, _ in grids], [offset for _, offset in grids]
    return _counted_from_0(name, bits, scales, offsets, symmetric=symmetric)


def _channels(entry: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The entries of an entry with lists, one for each channel."""
    lists = {key: value for key, value in entry.items() if isinstance(value, list)}
    if not lists:
        return [entry]
    count = max(map(len, lists.values()))
    if any(len(value) != count for value in lists.values()):
        raise ValueError(f"lists of {', '.join(f'{len(value)} {key}' for key, value in lists.items())}")
    return [{**entry, **{key: value[i] for key, value in lists.items()}} for i in range(count)]


def _grid_0(entry: Mapping[str, Any], bits: int, *, symmetric: bool) -> tuple[float, int]:
    """Scale and offset of an entry; of its ends where Qualcomm's files have them alone."""
    if "scale" in entry:
        half = -(1 << bits - 1) if symmetric else 0
        return float(entry["scale"]), _whole(entry.get("offset", half), "offset")
    low, high = min(float(entry["min"]), 0.0), max(float(entry["max"]), 0.0)
    if symmetric:
        most = (1 << bits - 1) - 1
        return max(high, -low * most / (most + 1)) / most, -most - 1
    scale = (high - low) / ((1 << bits) - 1)
    return scale, round(low / scale)


def _read_1(name: str, entry: Any) -> _Encoding | None:
    if str(entry["dtype"]).upper() in FLOATS:
        return _Encoding(name)
    kind = entry["enc_type"]
    if str(entry["dtype"]).upper() != "INT":
        raise ValueError(f"dtype {entry['dtype']!r} is not read here; accepted: INT, FLOAT")
    if int(entry["bw"]) >= DERIVED_BITS:
        return None
    if kind not in ("PER_TENSOR", "PER_CHANNEL"):
        raise ValueError(f"enc_type {kind} is not read here; accepted: PER_TENSOR, PER_CHANNEL")
    scales = [float(scale) for scale in entry["scale"]]
    offsets = [_whole(offset, "offset") for offset in entry["offset"]]
    return _counted_from_0(name, int(entry["bw"]), scales, offsets, symmetric=bool(entry["is_sym"]))


def _whole(number: Any, field: str) -> int:
    """An integer, which files write as a float too; AIMET's 2 bits may have their zero point in between."""
    if float(number) != int(number):
        raise ValueError(f"{field} {number!r} is not read here; accepted: whole numbers")
    return int(number)


def _counted_from_0(
    name: str, bits: int, scales: list[float], offsets: list[int], *, symmetric: bool
) -> _Encoding:
    if len(offsets) != len(scales) or not scales:
        raise ValueError(f"{len(offsets)} offsets for {len(scales)} scales")
    half = 1 << bits - 1
    # AIMET's symmetric encodings of numbers that are never below 0 have the offset 0, and no sign. Channels
    # have one grid around 0 where their offsets differ by the least integer alone, which may be left out.
    if not symmetric or not any(offsets) or (len({*offsets}) > 1 and not {*offsets} <= {-half, 1 - half}):
        zeros = tuple(-offset for offset in offsets)
        return _Encoding(name, f"u{bits}", tuple(scales), zeros, symmetric=False)
    low = max(min(offsets), -half)
    text = f"i{bits}" if low == -half else f"i{bits}<{low}:{half - 1}>"
    return _Encoding(name, text, tuple(scales), (0,) * len(scales), symmetric)


def _read_2(name: str, entry: Any) -> _Encoding | None:
    dtype = entry["output_dtype"]
    if "float" in dtype:
        return _Encoding(name)
    if "block_size" in entry or "per_block_int_scale" in entry:
        raise ValueError(
            "scales of blocks are not read here; accepted: a scale for the tensor or each channel"
        )
    store = storage(f"{'u' if dtype.startswith('u') else 'i'}{dtype.lstrip('uint')}")
    if store.bits >= DERIVED_BITS:
        return None
    scales = entry["y_scale"] if isinstance(entry["y_scale"], list) else [entry["y_scale"]]
    if not scales:
        raise ValueError("y_scale is empty")
    zeros = entry.get("y_zero_point", 0)
    zeros = zeros if isinstance(zeros, list) else [zeros] * len(scales)
    # As in ONNX, no zero point is one of 0, which weights of a symmetric range have.
    symmetric = "y_zero_point" not in entry and store.signed
    numbers = tuple(map(float, scales)), tuple(_whole(zero, "y_zero_point") for zero in zeros)
    axis = entry.get("axis")
    return _Encoding(name, store.name, *numbers, symmetric, None if axis is None else int(axis))


def _type_of(found: _Encoding, graph: Graph) -> Uniform:
    store = parse_storage(found.storage)
    scales = tuple(round_scales(found.scales, "f32"))
    axis, rank = found.axis, len(graph.values[found.name].shape or ())
    if axis is None and len(scales) > 1:
        axis = _channel_axis(found.name, graph)
    elif axis is not None and axis < 0:
        axis += rank
    return Uniform(store, scales, found.zeros, "f32", axis)


def _fact(found: _Encoding, kind: Uniform, graph: Graph) -> str | list[str]:
    """The text of a fact: a type, or the range that gives it, with a width that is not the usual one."""
    store = kind.storage
    if found.name in graph.constants and found.symmetric and not _reaches_least(kind, graph, found.name):
        # Files of version 2.0.0 do not say that a symmetric weight leaves the least integer out.
        narrow = parse_storage(f"{store.name}<{store.qmin + 1}:{store.qmax}>") if store.is_full else store
        kind = replace(kind, storage=narrow)
    if found.name not in (*graph.inputs, *graph.outputs):
        return str(kind)
    lo, hi = kind.lo, kind.hi
    if found.symmetric:
        lo, hi = -store.qmax * kind.scale, store.qmax * kind.scale
    seen = str(Calibrated((lo,), (hi,)))
    return [f"!quant.any<{store.name}>", seen] if store.bits > BYTE else seen


def _reaches_least(kind: Uniform, graph: Graph, name: str) -> bool:
    """Whether a number of a constant is stored as the least integer of its type."""
    array = graph.constants[name].array
    if array is None or not array.size:
        return True
    shape = [-1 if axis == kind.axis else 1 for axis in range(array.ndim)]
    scales = np.asarray(kind.scales).reshape(shape if kind.axis is not None else [1] * array.ndim)
    return bool((np.rint(array / scales) <= kind.storage.qmin).any())


def _channel_axis(name: str, graph: Graph) -> int:
    """The axis of a weight's channels, which the older versions leave to the operator."""
    rank = len(graph.values[name].shape or ())
    for op in graph.all_ops():
        if name not in op.inputs:
            continue
        if op.type == "MatMul":
            return rank - 1
        if op.type == "Gemm":
            return 0 if op.attributes.get("transB") else 1
        if op.type == "ConvTranspose":
            return 1
    return 0
