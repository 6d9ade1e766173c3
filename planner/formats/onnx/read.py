"""Reading ONNX: a file of any opset becomes a Graph of opset 21 in normal form.

External data is mapped, not copied. Protobuf ends here. Parts left alone are in the graph's
notes. Source: onnx.proto; ONNX versioning.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx import GraphProto, ModelProto, defs, inliner, shape_inference

from planner.errors import ModelError, expect
from planner.file_names import model_name
from planner.foreign_files import foreign_folder, refuse_foreign
from planner.formats.litert.identifier import starts_as_litert
from planner.formats.litert.reader.read import read_litert_written
from planner.formats.onnx.composites.take_apart import has_composites, take_apart
from planner.formats.onnx.decoding import decoded
from planner.formats.onnx.normalise import drop_dead, normalise
from planner.formats.onnx.operators.before_opset_7 import OLDEST, to_opset_7
from planner.formats.onnx.operators.limits import refuse_operands
from planner.formats.onnx.operators.soundness import sound
from planner.formats.onnx.opsets import TARGET, to_opset_21
from planner.formats.onnx.quantized.compound_ops import open_compounds
from planner.formats.onnx.quantized.dialect import canonical
from planner.formats.onnx.quantized.quantizers_to_facts import QUANTIZED_OPS, absorb
from planner.formats.onnx.shapes import infer
from planner.formats.onnx.structure.calls import mark_calls
from planner.formats.onnx.structure.cut import cut_to, tensors_before
from planner.formats.onnx.structure.modules import modules_of, with_modules
from planner.formats.onnx.structure.subgraphs_to_functions import open_bodies
from planner.formats.onnx.write import OWN, SCALED
from planner.ir.dims import named_dims, sizes_of, with_dims
from planner.ir.expand import expand
from planner.ir.graph import Graph, scaled_from_json
from planner.ir.topology import topological
from planner.ir.unknowns import shapeless
from planner.ir.validity import validate

NEWEST: Final = int(defs.onnx_opset_version())
MOST_TOLD: Final = 8
_NAMES_OPSETS: Final = 3
"""The version of the file format from which on files name their opsets."""


def read_onnx(
    source: str | Path | bytes,
    *,
    name: str | None = None,
    dims: Mapping[str, int] | None = None,
    outputs: tuple[str, ...] = (),
) -> Graph:
    """Read a model from a path or from its bytes.

    Args:
      name: the graph's name; by default the file's stem (without `CORRECTED`), or the name in it.
      dims: sizes of open dimensions (`ir.dims`).
      outputs: values to end it at, instead of its own outputs.

    Returns:
      A valid Graph: ops in topological order with the meaning of opset 21, constants as arrays; bodies of
      loops and branches in their place (`Graph.scopes`); a model with quantizers as `Graph.written`, too.

    Raises:
      ModelError: no ONNX model, or one that cannot be read; one line that says where and why.
    """
    graph = _as_written(source, name, outputs)
    sizes = sizes_of(graph, dims or {})
    written = to_opset_21(take_apart(open_compounds(sound(named_dims(graph, sizes))), told=False))
    opened = expand(_normal(written))
    if _has_quantizers(written, opened):
        opened = replace(opened, written=_settled(written))
    opened = replace(opened, made=frozenset(opened.constants.keys() - graph.values.keys()))
    # Sized before, so that what follows from sizes is folded; again, as bodies bring shapes of their own.
    return _settled(with_modules(_with_names(validate(_told(named_dims(opened, sizes)))), graph.modules))


def read_written(
    source: str | Path | bytes,
    *,
    dims: Mapping[str, int] | None = None,
    outputs: tuple[str, ...] = (),
    opened: bool = True,
) -> Graph:
    """Read a model for running or converting: every op of the file, nothing folded, quantization kept.

    Of a LiteRT file the tensors with scales go through QuantizeLinear and DequantizeLinear. Quantization ops
    of all domains are spelled one way (`quantized.dialect`); the opset is 21.

    Args:
      opened: whether QONNX's ops that are several standard ops become these (`quantized.compound_ops`).

    Raises:
      ModelError: no ONNX model, or one that cannot be read; one line that says where and why.
    """
    if starts_as_litert(source):
        if outputs:
            raise ModelError("outputs are chosen of ONNX models, not of LiteRT files")
        return with_dims(read_litert_written(source), dims or {})
    graph = sound(with_dims(_as_written(source, None, outputs), dims or {}))
    if opened:
        graph = open_compounds(graph)
    return _settled(validate(infer(to_opset_21(graph))))


def _normal(graph: Graph) -> Graph:
    """A graph of opset 21, or a body, in normal form, its bodies opened."""
    # First, so that no consumer without a use of its own keeps quantizers, weights or sums apart.
    graph = drop_dead(graph)
    plain = normalise(absorb(take_apart(graph, told=False)))
    if has_composites(plain):
        # Sizes that only folding tells may decide how one is taken apart.
        plain = normalise(absorb(take_apart(plain)))
    # Of a body, and of what follows from sizes that are known by now.
    refuse_operands(plain)
    return open_bodies(plain, _normal)


def _has_quantizers(written: Graph, read: Graph) -> bool:
    """Whether the file quantizes, in a body too: facts of a model just read are those of its quantizers."""
    return any(op.type in QUANTIZED_OPS for op in written.ops) or any(
        value.facts for value in read.values.values()
    )


def _told(graph: Graph) -> Graph:
    """The graph with a note of the ops behind which no shape is known."""
    found = [f"{op.type} at {op.name!r}" for op, _ in shapeless(graph)]
    if not found:
        return graph
    more = f" and {len(found) - MOST_TOLD} more" if len(found) > MOST_TOLD else ""
    note = f"no shape is known behind {', '.join(found[:MOST_TOLD])}{more}: later values count as one element"
    return replace(graph, notes=(*graph.notes, note))


def _with_names(graph: Graph) -> Graph:
    """The graph with those of `Graph.scaled` that its values still bear out."""
    known = {
        old: (new, factor)
        for old, (new, factor) in graph.scaled.items()
        if new in graph.values and old not in graph.values
    }
    return replace(graph, scaled=known) if graph.scaled else graph


def _scaled(model: ModelProto) -> Mapping[str, tuple[str, float]]:
    """The absorbed factors that `onnx.write` stored; none where another tool has written that entry."""
    text = next((entry.value for entry in model.metadata_props if entry.key == SCALED), "[]")
    try:
        return scaled_from_json(json.loads(text))
    except (TypeError, ValueError):
        return {}


def _metadata(model: ModelProto) -> Mapping[str, str]:
    """The file's entries, without those of its writer where that was a planner."""
    entries = {entry.key: entry.value for entry in model.metadata_props}
    return {key: text for key, text in entries.items() if not key.startswith(OWN)}


def _settled(graph: Graph) -> Graph:
    """The graph with read-only numbers, so that its digest is taken once."""
    for constant in graph.constants.values():
        if constant.array is not None:
            constant.array.setflags(write=False)
    return graph


def _as_written(source: str | Path | bytes, name: str | None, outputs: tuple[str, ...] = ()) -> Graph:
    """The file's own graph; its bytes and its protobuf, a copy of every weight each, go once read."""
    label, folder, data = _contents(source)
    parsed = _parsed(data, label, "" if isinstance(source, bytes) else Path(source).name)
    del data
    if outputs:
        cut_to(parsed.graph, outputs)
    opsets = _opsets(parsed, label)
    marked, scopes = mark_calls(parsed) if parsed.functions else (parsed, {})
    model = _without_functions(marked, label)
    stem = model_name(source) if isinstance(source, (str, Path)) else ""
    _check_tensors(model.graph)
    graph = decoded(model.graph, opsets, name or stem or model.graph.name or "model", folder)
    graph = replace(graph, scaled=_scaled(parsed), modules=modules_of(model.graph.node))
    graph = replace(graph, metadata=_metadata(parsed))
    notes = tuple(f"function {function.name} is inlined" for function in parsed.functions)
    sorted_ops = topological(graph.ops)
    return canonical(to_opset_7(validate(replace(graph, ops=sorted_ops, notes=notes, scopes=scopes))))


def _contents(source: str | Path | bytes) -> tuple[str, Path | None, bytes]:
    expect(source, (bytes, str, Path), "a model is read from a path or the bytes of a file")
    if isinstance(source, bytes):
        return "the model", None, source
    path = Path(source)
    if path.is_dir() and (found := foreign_folder(path)) is not None:
        raise ModelError(f"{path} is {found.what}, and no model that is read here", hint=found.advice)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ModelError(f"cannot read {str(path)!r}: {error.strerror}") from error
    return repr(str(path)), path.parent, data


def _parsed(data: bytes, label: str, name: str) -> ModelProto:
    if not data:
        raise ModelError(f"{label} is no ONNX model: it is empty")
    try:
        model: ModelProto = ModelProto.FromString(data)
    except DecodeError as error:
        refuse_foreign(label, data, name)
        raise ModelError(
            f"{label} is no ONNX model, or a truncated one: its {len(data)} bytes do not parse"
        ) from error
    if not model.HasField("graph"):
        refuse_foreign(label, data, name)
        raise ModelError(f"{label} is no ONNX model, or a truncated one: its {len(data)} bytes hold no graph")
    if not model.graph.output:
        raise ModelError(f"{label} has no outputs, so there is nothing to compute")
    return model


def _without_functions(model: ModelProto, label: str) -> ModelProto:
    if not model.functions:
        return model
    for convert in (False, True):
        try:
            # Between opsets the inliner converts, which takes the element types of what is computed.
            typed = shape_inference.infer_shapes(model) if convert else model
            inlined: ModelProto = inliner.inline_local_functions(typed, convert)
        except (RuntimeError, ValueError) as error:
            raise ModelError(
                f"{label}: its functions cannot be inlined: {str(error).splitlines()[0]}"
            ) from error
        if not inlined.functions:
            return inlined
    names = ", ".join(sorted(function.name for function in inlined.functions))
    raise ModelError(f"{label}: these functions cannot be inlined: {names}")


def _opsets(model: ModelProto, label: str) -> dict[str, int]:
    versions = {_domain(entry.domain): entry.version for entry in model.opset_import}
    if "" not in versions and all(_domain(node.domain) for node in model.graph.node):
        versions[""] = TARGET
    if "" not in versions and model.ir_version >= _NAMES_OPSETS:
        raise ModelError(f"{label} names no opset, which a file of IR version {model.ir_version} does")
    version = versions.get("", 1)
    if not OLDEST <= version <= NEWEST:
        age = "old" if version < OLDEST else "new"
        raise ModelError(
            f"{label} is of opset {version}, which is too {age}", hint=f"{OLDEST} to {NEWEST} can be read"
        )
    return versions


def _domain(domain: str) -> str:
    return "" if domain == "ai.onnx" else domain


def _check_tensors(proto: GraphProto) -> None:
    """Lists, maps and optionals cannot cross the model's boundary: samples hold tensors alone."""
    for side, infos in (("input", proto.input), ("output", proto.output)):
        for info in infos:
            kind = info.type.WhichOneof("value")
            if kind not in (None, "tensor_type"):
                ends = tensors_before(proto) if side == "output" else ()
                named = f": outputs={[*ends]} (--cut {','.join(ends)})" if ends else ""
                raise ModelError(
                    f"{side} {info.name!r} is of kind {kind.removesuffix('_type')}; only tensors can be "
                    f"model inputs and outputs here",
                    hint=f"cut the model so that the operators on other kinds stay outside{named}",
                )
