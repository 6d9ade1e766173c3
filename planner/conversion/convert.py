"""Convert: an ONNX model of any quantized dialect in another one, every number as it was.

No plan and no target: each quantizer of the graph is read into one record and written anew, all other ops
stay as they are. Numbers beyond a format are refused. Source: docs/formats.md; docs/library.md.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias

from planner.conversion.annotations import annotations_of
from planner.conversion.batch import with_batch
from planner.conversion.guards import guard
from planner.conversion.known_ops import refuse_unknown
from planner.conversion.layout import channels_last
from planner.conversion.operators import integer_products, qlinear_products
from planner.conversion.pairs import QCDQ, QDQ, QDQ_2_BITS, TWO_BITS, Containers, needs_2_bits, write_pair
from planner.conversion.pruning import Channels, pruned
from planner.conversion.quants import write_quant
from planner.conversion.rewrites import affine, lowered, matmuls
from planner.conversion.tidy import cleaned, extracted
from planner.conversion.version_2 import in_version_2
from planner.errors import UnsupportedExport, require_name, unknown_name
from planner.formats.onnx.folding import fold_constants
from planner.formats.onnx.normalise import drop_dead, drop_identities, name_apart
from planner.formats.onnx.quantized.dialect import BIPOLAR, ELEMENTWISE, FLOAT_QUANT, QUANT
from planner.formats.onnx.quantized.expand import expand, lift
from planner.formats.onnx.quantized.lowering import Draft, draft_of, lower
from planner.formats.onnx.quantized.quantizers import Found, find_quantizers
from planner.formats.onnx.read import read_written
from planner.formats.onnx.shapes import infer
from planner.formats.onnx.write import write_graph
from planner.ir.graph import Graph, Op

Conversion: TypeAlias = Callable[[Graph], Graph]


def convert(
    source: str | Path | bytes,
    to: str,
    *,
    external: Path | None = None,
    dims: Mapping[str, int] | None = None,
    outputs: Sequence[str] | None = None,
    prune: Mapping[str, Channels] | None = None,
    batch: int | None = None,
) -> bytes:
    """Write a model in another dialect.

    Args:
      source: an ONNX file or its bytes, of any dialect.
      to: a key of `CONVERSIONS`: `onnx-qdq`, `qonnx`, ... (docs/qonnx.md).
      external: a data file beside the result for the weights of models over 2 GB.
      dims: sizes of dimensions that the model leaves open, by name (`batch`) or place (`input[0]`).
      outputs: values to end the model at, instead of its own outputs.
      prune: channels to take out first, by tensor: indices of axis 1, or of axes by number.
      batch: the size of the first axis of every input, whether it is open or not.

    Raises:
      UnsupportedExport: the dialect cannot say these numbers, or its engine does not load them; names the
        op and its needs. Or channels cannot be followed, or the batch contradicts a shape.
      ModelError: no ONNX model.
      UnknownName: no such dialect, or no such open dimension.
    """
    require_name("dialect", to, CONVERSIONS)
    read = read_written(source, dims=dims, outputs=tuple(outputs or ()), opened=to in LOADED)
    read = with_batch(read, batch) if batch is not None else read
    read = pruned(infer(fold_constants(read)), prune) if prune else read
    graph = convert_graph(read, to)
    told = {} if to in LOADED else annotations_of(graph)
    data = write_graph(infer(graph), external=external, with_shapes=True, annotations=told)
    if to in LOADED:
        refuse_unknown(graph, data, to, external)
    return data


def convert_graph(graph: Graph, to: str) -> Graph:
    """The same as `convert`, on a graph as `read_written` gives it."""
    if to not in CONVERSIONS:
        raise unknown_name("dialect", to, CONVERSIONS)
    done = guard(name_apart(drop_dead(CONVERSIONS[to](graph))))
    used = {op.type.rpartition("::")[0] for op in done.ops}
    opsets = {key: number for key, number in done.opsets.items() if not key or key in used}
    opsets |= {domain: 1 for domain in used if domain and domain not in opsets}
    return replace(done, opsets=opsets)


def to_qonnx(graph: Graph) -> Graph:
    """Every quantizer as a QONNX op."""
    plain = lift(infer(expand(_folded(graph))))

    def write(found: Found, op: Op, draft: Draft) -> None:
        if op.type in (QUANT, BIPOLAR, FLOAT_QUANT):
            draft.ops.append(op)
        else:
            write_quant(found, op, draft)

    return _rewritten(plain, write)


def to_qonnx_2(graph: Graph) -> Graph:
    """Every quantizer as a QONNX op of version 2."""
    return in_version_2(to_qonnx(graph))


def to_qcdq(graph: Graph) -> Graph:
    """Every quantizer as QuantizeLinear, Clip, DequantizeLinear."""
    return _to_pairs(graph, QCDQ)


def to_qdq(graph: Graph) -> Graph:
    """Every quantizer as QuantizeLinear and DequantizeLinear of whole integer formats.

    In opset 21, and in 25 where an activation needs integers of 2 bits.
    """
    plain = infer(expand(_folded(graph)))
    if not any(map(partial(needs_2_bits, plain), find_quantizers(plain))):
        return _to_pairs(graph, QDQ)
    done = _to_pairs(graph, QDQ_2_BITS)
    return replace(done, opsets={**done.opsets, "": max(TWO_BITS, done.opsets[""])})


def to_integer(graph: Graph) -> Graph:
    """Products of quantized operands as ConvInteger and MatMulInteger, all else as `to_qcdq`."""
    return integer_products(infer(_to_pairs(cleaned(graph), replace(QCDQ, format="onnx-integer"))))


def to_qoperator(graph: Graph) -> Graph:
    """Products of quantized operands and results as QLinear operators, all else as `to_qcdq`."""
    return qlinear_products(infer(_to_pairs(cleaned(graph), replace(QCDQ, format="onnx-qoperator"))))


def to_plain(graph: Graph) -> Graph:
    """QONNX ops as the plain float ops that compute them.

    Raises:
      UnsupportedExport: an op that has no such form.
    """
    done = lower(graph)
    for op in done.ops:
        if op.type in ELEMENTWISE:
            raise UnsupportedExport(
                f"onnx cannot say {_kind(op)} at {op.name!r} (port {op.name}.in[0]) in plain ops",
                hint="Quant, BipolarQuant, Trunc and MultiThreshold of constant parameters have such a form",
            )
    return done


def _to_pairs(graph: Graph, containers: Containers) -> Graph:
    plain = infer(expand(_folded(graph)))

    def write(found: Found, op: Op, draft: Draft) -> None:
        if op.type in (QUANT, BIPOLAR) or (not containers.clips and _has_clip(found, plain)):
            write_pair(found, op, draft, containers)
        else:
            draft.ops.append(op)

    done = _rewritten(plain, write)
    for op in done.ops:
        if op.type in ELEMENTWISE:
            raise _unsaid(op, containers)
    return done


def _folded(graph: Graph) -> Graph:
    """Parameters may come through Identity, Tile, Reshape or Expand of constants."""
    return fold_constants(drop_identities(graph))


def _has_clip(found: Found, graph: Graph) -> bool:
    return any(graph.ops[at].type == "Clip" for at in found.inner)


def _unsaid(op: Op, containers: Containers) -> UnsupportedExport:
    if op.type == QUANT:
        why = "its scale, zero point or bit width is computed at run time"
    elif op.type == FLOAT_QUANT:
        why = "it rounds to floats"
    else:
        why = "it is no quantization to one grid"
    return UnsupportedExport(
        f"{containers.format} cannot say {_kind(op)} at {op.name!r} (port {op.name}.in[0]): {why}",
        hint=f"{containers.format} takes Quant and BipolarQuant of constant parameters",
    )


def _kind(op: Op) -> str:
    return op.type.rpartition("::")[2]


def _rewritten(graph: Graph, write: Callable[[Found, Op, Draft], None]) -> Graph:
    """Write each quantizer anew; ops that only served it go when nothing reads them any more."""
    found = {item.last: item for item in find_quantizers(graph)}
    draft = draft_of(graph)
    for at, op in enumerate(graph.ops):
        if at in found:
            write(found[at], op, draft)
        else:
            draft.ops.append(op)
    return draft.finish()


LOADED: Final = frozenset({"onnx", "onnx-integer", "onnx-qcdq", "onnx-qdq", "onnx-qoperator"})
"""Dialects whose engine is onnxruntime."""

CONVERSIONS: Final[Mapping[str, Conversion]] = {
    "batchnorm-to-affine": affine,
    "channels-last": channels_last,
    "cleaned": cleaned,
    "convs-lowered": lowered,
    "gemm-to-matmul": matmuls,
    "onnx": to_plain,
    "onnx-integer": to_integer,
    "onnx-qcdq": to_qcdq,
    "onnx-qdq": to_qdq,
    "onnx-qoperator": to_qoperator,
    "qonnx": to_qonnx,
    "qonnx-2": to_qonnx_2,
    "scale-zero-point-extracted": extracted,
}
