"""Known ops: a file for onnxruntime is loaded in onnxruntime before anybody has it.

Ops of other domains, QONNX's that no conversion reads for one, are refused by name; the engine says the rest.
"""

from pathlib import Path
from typing import Final

from planner.errors import UnsupportedExport
from planner.formats.onnx.sessions import EXTERNAL_FOLDER, FAILURES, one_line, open_session, session_options
from planner.ir.graph import Graph

DOMAINS: Final = frozenset({"", "ai.onnx", "ai.onnx.ml", "com.microsoft", "com.ms.internal.nhwc"})


def refuse_unknown(graph: Graph, data: bytes, form: str, external: Path | None = None) -> None:
    """Refuse a file that onnxruntime does not load.

    Raises:
      UnsupportedExport: naming the op, or with the engine's words.
    """
    for op in graph.all_ops():
        domain, _, kind = op.type.rpartition("::")
        if domain not in DOMAINS:
            raise UnsupportedExport(
                f"{form} cannot say {kind} of {domain} at {op.name!r}: onnxruntime has no such op",
                hint="Quant, BipolarQuant, Trunc and MultiThreshold of constant parameters have a form there",
            )
    options = session_options("all")
    if external is not None:
        options.add_session_config_entry(EXTERNAL_FOLDER, str(external.resolve().parent))
    try:
        open_session(data, options)
    except FAILURES as error:
        raise UnsupportedExport(
            f"onnxruntime does not load this model as {form}: {one_line(error)}",
            hint="other ops may belong to another engine; qonnx keeps every op",
        ) from error
