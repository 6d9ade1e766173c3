"""Sessions of onnxruntime: loading models and nodes, its exceptions, and its messages on one line.

On the CPU, silent, and as written: with its optimisations on its numbers are no oracle, so callers have to
enable them. Operators that it has for wide integers only are widened (`wider_integers`); a model that still
does not load is refused with the node that does not load alone. Source: docs/formats.md.
"""

import ctypes
import math
import os
import re
import tempfile
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias
from weakref import WeakKeyDictionary

import numpy as np
import onnxruntime
from onnxruntime.capi import onnxruntime_pybind11_state as states

from planner.errors import ModelError
from planner.formats.onnx.dtypes import ENUMS, NARROW_BITS, NUMPY, byte_size, dtype_of
from planner.formats.onnx.nodes import Node, op_node
from planner.formats.onnx.structure.functions_to_subgraphs import QPLAN
from planner.formats.onnx.structure.wider_integers import widened
from planner.formats.onnx.tensors import array_of_raw, raw_bytes
from planner.formats.onnx.write import OPSET, write_graph, write_model
from planner.ir.expand import expand
from planner.ir.graph import Graph, Opaque
from planner.ir.mapped import Place, mapped_file

FAILURES: Final = (
    states.Fail,
    states.InvalidArgument,
    states.InvalidGraph,
    states.InvalidProtobuf,
    states.NotImplemented,
    states.RuntimeException,
)
"""Exceptions with which onnxruntime refuses a model or its inputs."""

CONTRIB: Final = "com.microsoft"
EXTERNAL_FOLDER: Final = "session.model_external_initializers_file_folder_path"
"""The option that says where the weights beside a model of bytes are."""

LARGE: Final = 256 << 20
"""Bytes of weights from which on a session reads them where they lie, and makes no copy in its own order."""
_LONGEST: Final = 300
# The file of ours that onnxruntime was given is nothing to the user.
_OWN_FILE: Final = re.compile(r"Load model from \S+ failed: ?")
_UNKNOWN: Final = re.compile(r"is not a registered function/op|No Op registered for")
_OTHER_TYPES: Final = re.compile(r"NOT_IMPLEMENTED|Type Error: Type '")
_CUT: Final = "a plan whose ranges are given needs no run"
# Element types that onnxruntime's Python interface does not pass as arrays, by its names of them.
_BARE: Final[Mapping[str, str]] = {
    **{f"tensor(float8{kind.lower()})": f"f8{kind}" for kind in ("E4M3FN", "E4M3FNUZ", "E5M2", "E5M2FNUZ")},
    "tensor(bfloat16)": "bf16",
    "tensor(float4e2m1)": "f4E2M1FN",
    "tensor(float8e8m0)": "f8E8M0FNU",
    **{f"tensor({sign}int{bits})": f"{sign or 'i'}{bits}" for sign in ("", "u") for bits in (2, 4)},
}
_BARE_NUMPY: Final = frozenset(NUMPY[name] for name in _BARE.values())
_KNOWN_OUTPUTS: Final[MutableMapping[Any, Mapping[str, str]]] = WeakKeyDictionary()

Optimisation: TypeAlias = Literal["none", "basic", "extended", "all"]

_LEVELS: Final[Mapping[Optimisation, Any]] = {
    "none": onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL,
    "basic": onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC,
    "extended": onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    "all": onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL,
}


def session_options(optimisation: Optimisation = "none", *, exact_products: bool = False) -> Any:
    """Options of a silent session, optimisations off by default.

    Its threads do not spin between runs: they would take the cores of our own work, and of the other session
    where two run in turn.

    Args:
      optimisation: a level of onnxruntime; its own default is `all`.
      exact_products: of u8 and i8 in fused kernels, on x86 without VNNI too; that saturates in 16 bits.
    """
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = _LEVELS[optimisation]
    if exact_products:
        options.add_session_config_entry("session.x64quantprecision", "1")
    options.log_severity_level = 4
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return options


def observing_options(threads: int = 0) -> Any:
    """Options of a session on some threads; 0 is one a core."""
    options = session_options()
    options.intra_op_num_threads = threads
    return options


def open_session(source: bytes | str, options: Any = None) -> onnxruntime.InferenceSession:
    """Load a model's bytes or path on the CPU; raises one of `FAILURES`."""
    chosen = session_options() if options is None else options
    return onnxruntime.InferenceSession(source, chosen, providers=["CPUExecutionProvider"])


@lru_cache(maxsize=1)
def contrib_schemas() -> Mapping[str, Any]:
    """Schemas of the operators of onnxruntime's own domain, by name."""
    return {schema.name: schema for schema in states.get_all_operator_schema() if schema.domain == CONTRIB}


def open_graph(graph: Graph, options: Any, *, inline: int) -> onnxruntime.InferenceSession:
    """Load a model; see `open_nodes`.

    Args:
      inline: bytes of weights that go into the model; more go into a file that is mapped, so that no copy of
        them is in memory.
    """
    graph = expand(graph)
    nodes = [op_node(op) for op in graph.all_ops()]
    label = f"model {graph.name!r}"
    arrays = {name: c.array for name, c in graph.constants.items() if c.array is not None}
    total = sum(array.nbytes for array in arrays.values())
    if total <= inline:
        return open_nodes(graph, nodes, lambda found: write_graph(graph, nodes=found), options, label)
    home, places = _places(graph, arrays) if total >= LARGE else (Path(), {})
    if places and total - sum(arrays[name].nbytes for name in places) <= inline:
        # The weights lie in files already: the session maps those, and none of them is written again.
        options.add_session_config_entry(EXTERNAL_FOLDER, str(home))
        options.add_session_config_entry("session.disable_prepacking", "1")
        return open_nodes(
            graph, nodes, lambda found: write_graph(graph, nodes=found, places=places), options, label
        )
    with tempfile.TemporaryDirectory(prefix="qplan-", ignore_cleanup_errors=True) as folder:
        path = Path(folder) / "model.onnx"

        def write(found: Sequence[Node]) -> str:
            path.write_bytes(write_graph(graph, nodes=found, external=path.with_suffix(".data")))
            return str(path)

        return open_nodes(graph, nodes, write, options, label)


def _places(graph: Graph, arrays: Mapping[str, np.ndarray]) -> tuple[Path, dict[str, Place]]:
    """The folder that weights lie in, in mapped files, and their places from there on."""
    found = {name: mapped_file(array) for name, array in arrays.items()}
    placed = {
        name: place
        for name, place in found.items()
        if place is not None and byte_size(graph.values[name].dtype, arrays[name].size) == arrays[name].nbytes
    }
    if not placed:
        return Path(), {}
    folder = Path(os.path.commonpath([place.path.parent for place in placed.values()]))
    return folder, {
        name: Place(place.path.relative_to(folder), place.offset) for name, place in placed.items()
    }


def open_nodes(
    graph: Graph,
    nodes: Sequence[Node],
    write: Callable[[Sequence[Node]], bytes | str],
    options: Any,
    label: str,
) -> onnxruntime.InferenceSession:
    """Load nodes of a graph: as they are, or where that fails with narrow integers widened.

    Args:
      write: the bytes or the path of a model of such nodes.

    Raises:
      ModelError: the first node that onnxruntime does not load.
    """
    try:
        return open_session(write(nodes), options)
    except FAILURES as error:
        failure = error
    wider = widened(nodes, lambda name: graph.values[name].dtype if name in graph.values else "")
    if wider != list(nodes):
        try:
            return open_session(write(wider), options)
        except FAILURES as error:
            failure = error
    for node in nodes:
        reason = _refused(graph, node)
        if reason:
            raise ModelError(reason, hint=_CUT) from failure
    raise ModelError(f"onnxruntime cannot load {label}: {one_line(failure)}") from failure


def _refused(graph: Graph, node: Node) -> str:
    """Why a node does not load alone; "" where it does, or cannot be asked."""
    names = [name for name in (*node.inputs, *node.outputs) if name]
    kinds = {name: graph.values[name].dtype if name in graph.values else "" for name in names}
    has_body = any(isinstance(value, Opaque) for value in node.attributes.values())
    if node.domain == QPLAN or has_body or not all(kinds.values()):
        return ""
    try:
        open_session(_alone(graph, widened([node], kinds.__getitem__), node, kinds))
    except FAILURES as error:
        text = one_line(error)
    else:
        return ""
    first = next(name for name in node.outputs if name)
    said = next((note for note in graph.notes if f" {first!r} stays opaque" in note), "")
    if said:
        return f"{said}, so nothing here can run it"
    kind = f"{node.domain}::{node.op_type}" if node.domain else node.op_type
    place = f"{kind} at {node.name or first!r}"
    if _UNKNOWN.search(text):
        return f"{place}: onnxruntime has no such operator"
    if _OTHER_TYPES.search(text):
        taken = ", ".join(kinds[name] for name in node.inputs if name)
        return f"{place}: onnxruntime does not run it on {taken}"
    return f"{place}: onnxruntime refuses it: {text}"


def _alone(graph: Graph, nodes: Sequence[Node], node: Node, kinds: dict[str, str]) -> bytes:
    return write_model(
        name=node.name,
        nodes=nodes,
        inputs=[(name, kinds[name], None) for name in dict.fromkeys(node.inputs) if name],
        outputs=[(name, kinds[name], None) for name in node.outputs if name],
        constants={},
        opset=graph.opsets.get("", OPSET),
        domains={domain: number for domain, number in graph.opsets.items() if domain},
    )


def run_arrays(session: Any, names: Sequence[str], feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """Run a session: arrays of every element type in and out, by ONNX's own of 16 bits or fewer too.

    Raises:
      one of `FAILURES`: onnxruntime refuses the arrays.
    """
    bare = _bare_outputs(session)
    if bare.keys().isdisjoint(names) and not any(
        getattr(array, "dtype", None) in _BARE_NUMPY for array in feeds.values()
    ):
        found: list[np.ndarray] = session.run(list(names), dict(feeds))
        return found
    values = session.run_with_ort_values(list(names), {name: _value(feeds[name]) for name in feeds})
    return [
        _bare_array(value, bare[name]) if name in bare else value.numpy()
        for name, value in zip(names, values, strict=True)
    ]


def _bare_outputs(session: Any) -> Mapping[str, str]:
    """Outputs that onnxruntime does not give as arrays, with their types; asked once a session."""
    if session not in _KNOWN_OUTPUTS:
        kinds = ((port.name, _BARE.get(port.type)) for port in session.get_outputs())
        _KNOWN_OUTPUTS[session] = {name: kind for name, kind in kinds if kind is not None}
    return _KNOWN_OUTPUTS[session]


def _value(array: np.ndarray) -> Any:
    array = np.ascontiguousarray(array).reshape(array.shape)
    if array.dtype not in _BARE_NUMPY:
        return onnxruntime.OrtValue.ortvalue_from_numpy(array)
    name = dtype_of(array)
    stored = array.view(np.dtype(f"u{array.itemsize}"))
    if name in NARROW_BITS:
        # Several to a byte; the shape counts elements, so what lies behind them is not read.
        packed, stored = np.frombuffer(raw_bytes(array, name), np.uint8), np.zeros(array.shape, np.uint8)
        stored.reshape(-1)[: len(packed)] = packed
    return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(stored, ENUMS[name])


def _bare_array(value: Any, name: str) -> np.ndarray:
    shape = tuple(value.shape())
    size = byte_size(name, math.prod(shape))
    raw = ctypes.string_at(value.data_ptr(), size) if size else b""
    return array_of_raw(np.frombuffer(raw, np.uint8), name, shape).copy()


def one_line(error: Exception) -> str:
    """A message of onnxruntime, without line breaks and without a file of ours."""
    text = " ".join(str(error).split()).removeprefix("[ONNXRuntimeError] : ")
    text = _OWN_FILE.sub("", text)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."
