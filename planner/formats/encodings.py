"""Formats `encodings`: the types of a plan as AIMET and Qualcomm's converters read them, one per tensor.

`--quantization_overrides` takes such a file beside the float model. Versions 0.6.1 and 1.0.0 count stored
values from 0 (`real = (stored + offset) * scale`), 2.0.0 as QuantizeLinear does. A type that a consumer needs
other than the value's own is left out: a file has one encoding for each tensor. So is a bias that folding a
BatchNorm made, of which the float model has no tensor: converters work it out. A graph that was not read from
ONNX does not say which biases are made; the name tells there.
Source: AIMET, encoding specification; docs/formats.md.
"""

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from planner.errors import InputError, UnsupportedExport
from planner.formats.onnx.naming import is_made_bias
from planner.ir.graph import Graph
from planner.plans.plan import Plan
from planner.training.groups import training_spec
from planner.training.spec import Edge, TrainingSpec

MOST_BITS: Final = 32


def write_encodings(graph: Graph, plan: Plan) -> bytes:
    """Write version 1.0.0."""
    spec, tables = _tables(graph, plan)
    document = {key: [_entry_1(spec, edge) for edge in edges] for key, edges in tables.items()}
    return _text({"version": "1.0.0", **document})


def write_encodings_0(graph: Graph, plan: Plan) -> bytes:
    """Write version 0.6.1."""
    spec, tables = _tables(graph, plan)
    document = {key: {edge.value: _entry_0(spec, edge) for edge in edges} for key, edges in tables.items()}
    return _text({"version": "0.6.1", **document})


def write_encodings_2(graph: Graph, plan: Plan) -> bytes:
    """Write version 2.0.0."""
    spec, tables = _tables(graph, plan)
    return _text(
        {
            "version": "2.0.0",
            "encodings": [_entry_2(spec, edge) for edges in tables.values() for edge in edges],
        }
    )


WRITERS: Final[Mapping[str, Callable[[Graph, Plan], bytes]]] = {
    "encodings": write_encodings,
    "encodings-0.6.1": write_encodings_0,
    "encodings-2.0.0": write_encodings_2,
}
"""The formats."""


def _text(document: Mapping[str, Any]) -> bytes:
    return (json.dumps(document, indent=1) + "\n").encode()


def _tables(graph: Graph, plan: Plan) -> tuple[TrainingSpec, Mapping[str, Sequence[Edge]]]:
    """The edges to write: of activations and of parameters, each tensor once.

    Raises:
      UnsupportedExport: loops, kernels that quantize at run time, scales of blocks, more than 32 bits.
    """
    try:
        spec = training_spec(plan)
    except InputError as error:
        raise UnsupportedExport(f"encodings cannot express this plan: {error.message}") from error
    own: dict[str, Edge] = {}
    for edge in spec.edges:
        if edge.own or edge.value not in own:
            own[edge.value] = edge
    biases = Counter(bias.edge.value for bias in spec.biases)
    # A bias that several kernels read has the grid of each, which converters work out by themselves.
    made = graph.made
    left_out = {
        name
        for name, count in biases.items()
        if count > 1 or (is_made_bias(name) if made is None else name in made)
    }
    params = [edge for edge in spec.all_edges if edge.value in graph.constants and edge.value not in left_out]
    for edge in (*own.values(), *params):
        store = edge.storage
        if edge.grid or store.float_name or store.bits > MOST_BITS or spec.type_of(edge).ranges:
            raise UnsupportedExport(
                f"{edge.consumers[0] if edge.consumers else edge.value}: encodings cannot express "
                f"{store} of {edge.value!r}; accepted: integers of up to {MOST_BITS} bits, a scale for "
                "the tensor or each channel"
            )
    return spec, {"activation_encodings": [*own.values()], "param_encodings": params}


def _is_symmetric(edge: Edge) -> bool:
    return edge.symmetric and edge.storage.signed and not any(edge.zero_points)


def _offsets(edge: Edge) -> list[int]:
    """Offsets of values counted from 0; of a symmetric one the least value, which may be left out."""
    if _is_symmetric(edge):
        # An offset of 0 would say that there is no sign, whatever the range of the type is.
        half = 1 << edge.storage.bits - 1
        least = edge.storage.qmin if edge.storage.qmin <= 1 - half else -half
        return [least] * len(edge.zero_points)
    up = 1 << edge.storage.bits - 1 if edge.storage.signed else 0
    return [-(zero + up) for zero in edge.zero_points]


def _entry_1(spec: TrainingSpec, edge: Edge) -> dict[str, Any]:
    return {
        "name": edge.value,
        "enc_type": "PER_TENSOR" if edge.axis is None else "PER_CHANNEL",
        "dtype": "INT",
        "bw": edge.storage.bits,
        "is_sym": _is_symmetric(edge),
        "scale": [*spec.groups[edge.group].scales],
        "offset": _offsets(edge),
    }


def _entry_0(spec: TrainingSpec, edge: Edge) -> list[dict[str, Any]]:
    steps = (1 << edge.storage.bits) - 1
    return [
        {
            "bitwidth": edge.storage.bits,
            "dtype": "int",
            "is_symmetric": str(_is_symmetric(edge)),
            "max": (edge.storage.qmax if _is_symmetric(edge) else steps + offset) * scale,
            "min": offset * scale,
            "offset": offset,
            "scale": scale,
        }
        for scale, offset in zip(spec.groups[edge.group].scales, _offsets(edge), strict=True)
    ]


def _entry_2(spec: TrainingSpec, edge: Edge) -> dict[str, Any]:
    scales, zeros = [*spec.groups[edge.group].scales], [*edge.zero_points]
    entry: dict[str, Any] = {
        "name": edge.value,
        "output_dtype": f"{'' if edge.storage.signed else 'u'}int{edge.storage.bits}",
        "y_scale": scales[0] if edge.axis is None else scales,
    }
    if any(zeros) or not _is_symmetric(edge):
        entry["y_zero_point"] = zeros[0] if edge.axis is None else zeros
    return entry if edge.axis is None else entry | {"axis": edge.axis}
