"""Soundness: a model that onnx's checker or strict inference refuses is refused here, with the op named.

Both see a copy without the weights that holds the ops onnx knows and whose operands have types; the sizes of
tensors are `tensors`' to check. Models that onnx refuses and engines run are accepted:
- a `value_info` that contradicts what is computed, as in files whose batch was edited (engines warn);
- ops of the standard domain that no opset has: plug-ins of TensorRT stand there; they stay opaque;
- ops that onnxruntime has in the standard domain at any opset (`stand_ins`), old ones that `opsets` reads;
- a domain without an import, an output without a shape, nodes out of order, names of a body that are in use.
Source: onnx.checker, onnx.shape_inference.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Final

from onnx import ModelProto, TensorProto, checker, defs, shape_inference

from planner.errors import ModelError
from planner.formats.onnx.operators.contrib import refuse_contrib, refuse_types
from planner.formats.onnx.operators.limits import refuse_attributes, refuse_operands
from planner.formats.onnx.operators.stand_ins import STAND_INS, is_inferred
from planner.formats.onnx.opsets import ADAPTERS
from planner.formats.onnx.quantized.compound_ops import has_compounds, open_compounds
from planner.formats.onnx.quantized.expand import EXPANSIONS, expand
from planner.formats.onnx.quantized.parameters import refuse_parameters
from planner.formats.onnx.shapes import copy_of, infer, without_weights
from planner.formats.onnx.structure.subgraph_nodes import graph_of, op_types, subgraphs
from planner.ir.graph import Graph, Op, Shape, Value

_PAGE: Final = "https://onnx.ai/onnx/operators/onnx__{}.html"
_NODE: Final = re.compile(r"node name: #(\d+)\): (.*)", re.DOTALL)
_CONTEXT: Final = re.compile(r"Name: #(\d+) OpType")
_KINDS: Final = re.compile(r"\[\w+(?:Inference)?Error\] ?")


def sound(graph: Graph) -> Graph:
    """The graph with its shapes known, if onnx takes it.

    Args:
      graph: as the file has it, quantizers spelled one way.

    Raises:
      ModelError: the first op that is refused, and why.
    """
    refuse_attributes(graph)
    refuse_contrib(graph)
    if has_compounds(graph):
        # Their attributes are read to infer what they give; what they are made of is looked at like any op.
        refuse_parameters(graph)
        typed = infer(graph)
        refuse_parameters(typed)
        sound(open_compounds(typed))
        return typed
    opset = graph.opsets[""]
    known = [op for op in graph.ops if _is_known(op, opset)]
    stored = any(op.type in EXPANSIONS for op in graph.ops)
    # The checker writes to the terminal of ops it does not know.
    strange = len(known) < sum(op.type not in STAND_INS for op in graph.ops)
    copy = b"" if stored or strange else copy_of(graph)
    # One copy serves all where nothing is wrong; the ops are looked at apart where something is.
    if not copy or not _passes_checker(copy):
        _refuse_with_checker(graph, known)
    refuse_parameters(graph)
    typed = infer(graph, copy)
    refuse_operands(typed)
    refuse_types(typed)
    refuse_parameters(typed)
    if not copy or not _passes_inference(copy):
        _refuse_with_inference(typed, [op for op in known if _is_typed(op, typed)])
    if stored:
        opened = expand(typed)
        refuse_parameters(opened)
        _refuse_with_inference(
            opened, [op for op in opened.ops if "::" not in op.type and _is_typed(op, opened)]
        )
    for name in graph.outputs:
        _refuse_contradiction(graph, typed, name)
    return typed


def _is_known(op: Op, opset: int) -> bool:
    """Whether an op is one of onnx's, as it is in this opset.

    Raises:
      ModelError: it is, and not in the opset that the model is of.
    """
    found = _age(op.type, opset)
    if found > opset:
        raise ModelError(
            f"{op.type} at {op.name!r} is no operator of opset {opset}, which the model imports",
            hint=f"ONNX has it from opset {found} on",
        )
    return found > 0


@lru_cache(maxsize=1024)
def _age(kind: str, opset: int) -> int:
    """The opset from which on ONNX has an op; 0 where that is not to be asked."""
    if "::" in kind or not defs.has(kind):
        return 0
    try:
        schema = defs.get_schema(kind, opset)
    except defs.SchemaError:
        if kind in ADAPTERS or kind in STAND_INS:
            return 0
        every = [schema for schema in defs.get_all_schemas_with_history() if not schema.domain]
        return min(int(schema.since_version) for schema in every if schema.name == kind)
    return 0 if schema.deprecated and kind in ADAPTERS else int(schema.since_version)


def _is_typed(op: Op, graph: Graph) -> bool:
    """Whether onnx infers an op and knows what it works on, in its bodies too."""
    inner = {kind for body in subgraphs(op).values() for kind in op_types(graph_of(body))}
    return all(graph.values[name].dtype for name in (*op.inputs, *op.captures) if name) and all(
        is_inferred(kind, graph.opsets[""]) for kind in (op.type, *inner)
    )


def _for_checker(copy: bytes) -> ModelProto:
    """The copy as the checker takes it: with a type and a shape of each input, at which it does not look."""
    model: ModelProto = ModelProto.FromString(copy)
    for info in model.graph.input:
        info.type.tensor_type.elem_type = TensorProto.FLOAT
        info.type.tensor_type.shape.SetInParent()
    del model.graph.output[:]
    return model


def _passes_checker(copy: bytes) -> bool:
    try:
        checker.check_model(_for_checker(copy))
    except checker.ValidationError:
        return False
    return True


def _passes_inference(copy: bytes) -> bool:
    try:
        shape_inference.infer_shapes(copy, check_type=True, strict_mode=True)
    except (shape_inference.InferenceError, ValueError):
        return False
    return True


def _refuse_with_checker(graph: Graph, ops: Sequence[Op]) -> None:
    """Refuse unknown attributes and too few or too many operands; bodies are left to inference.

    The checker refuses a body for names that are in use around it, which engines take.
    """
    plain = [op for op in ops if not subgraphs(op)]
    try:
        checker.check_model(_for_checker(_copy(graph, plain)))
    except checker.ValidationError as error:
        raise _refused(plain, str(error), _CONTEXT) from error


def _refuse_with_inference(graph: Graph, ops: Sequence[Op]) -> None:
    try:
        shape_inference.infer_shapes(_copy(graph, ops), check_type=True, strict_mode=True)
    except (shape_inference.InferenceError, ValueError) as error:
        raise _refused(ops, str(error), _NODE) from error


def _copy(graph: Graph, ops: Sequence[Op]) -> bytes:
    """A model of these ops alone, each named by its place; what others write are inputs of it."""
    made = {out for op in ops for out in op.outputs}
    read = dict.fromkeys(name for op in ops for name in (*op.inputs, *op.captures) if name)
    given = (*graph.inputs, *(n for n in read if n not in made and n not in graph.constants))
    return without_weights(
        replace(
            graph,
            ops=tuple([replace(op, name=f"#{i}") for i, op in enumerate(ops)]),
            inputs=tuple(dict.fromkeys(given)),
            outputs=(),
        )
    )


def _refused(ops: Sequence[Op], text: str, where: re.Pattern[str]) -> ModelError:
    """Word onnx's refusal, of its first op, on one line."""
    found = where.search(text)
    if found is None:
        return ModelError(f"onnx refuses the model: {_plain(text)}")
    op = ops[int(found[1])]
    said = found[2] if where is _NODE else text.partition("==> Context")[0]
    accepted = f"accepted is what {_PAGE.format(op.type)} says"
    if "tensor(bfloat16)" in said:
        # An operator of a later opset may have it; that the model's library exports it otherwise is sure.
        accepted = f"export the model in float32 from its library; {accepted}"
    return ModelError(
        f"{op.type} at {op.name!r} is refused by onnx: {_plain(said).replace(f'#{found[1]}', op.name)}",
        hint=accepted,
    )


def _plain(text: str) -> str:
    first = _KINDS.sub("", text).strip().split("\n(op_type", 1)[0]
    return " ".join(first.split()).rstrip(". ")


def refuse_unsound(model: Graph) -> None:
    """Refuse a model that ONNX would not take; all its types are declared, as in the test of a target file.

    Ops that ONNX has not are left alone, with the types that are declared for their results.

    Raises:
      ModelError: the first op that is refused, or the first result that is declared otherwise than it is
        computed.
    """
    # To onnx a constant of which only the range is known is an input: it has a shape and no numbers.
    ranges = tuple(name for name, constant in model.constants.items() if constant.array is None)
    computed = [name for op in model.ops if defs.has(op.type) for name in op.outputs if name]
    bare = replace(
        model,
        inputs=(*model.inputs, *ranges),
        outputs=(),
        constants={name: constant for name, constant in model.constants.items() if name not in ranges},
        values={**model.values, **{name: Value(name, None, "") for name in computed}},
    )
    typed = sound(bare)
    for name in computed:
        _refuse_contradiction(model, typed, name)


def _refuse_contradiction(graph: Graph, typed: Graph, name: str) -> None:
    """Refuse a value that is declared otherwise than it is computed."""
    told, found = graph.values[name], typed.values[name]
    if told.dtype and found.dtype and told.dtype != found.dtype:
        what, declared, computed = "element type", told.dtype, found.dtype
    elif told.shape is not None and found.shape is not None and not _agree(told.shape, found.shape):
        what, declared, computed = "shape", _listed(told.shape), _listed(found.shape)
    else:
        return
    writer = next((op for op in graph.ops if name in op.outputs), None)
    by = "" if writer is None else f" by {writer.type} at {writer.name!r}"
    kind = "output" if name in graph.outputs else "value"
    raise ModelError(
        f"{kind} {name!r} is declared with the {what} {declared}, and is computed{by} with {computed}",
        hint=f"declare {computed}, or no {what} at all",
    )


def _agree(told: Shape, found: Shape) -> bool:
    if len(told) != len(found):
        return False
    sizes = zip(told, found, strict=True)
    return all(a == b or not (isinstance(a, int) and isinstance(b, int)) for a, b in sizes)


def _listed(shape: Shape) -> str:
    return "[" + ", ".join("?" if dim is None else str(dim) for dim in shape) + "]"
