"""Table: the formats a plan can be written in, by their names on the command line."""

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from planner.errors import UnsupportedExport, require_name
from planner.exporters.encodings import WRITERS
from planner.exporters.litert.write import write_litert
from planner.exporters.onnx.integers.integer import write_integer
from planner.exporters.onnx.matmulnbits import write_matmulnbits
from planner.exporters.onnx.qcdq import write_qcdq
from planner.exporters.onnx.qdq import write_qdq
from planner.exporters.onnx.qoperator import write_qoperator, write_qoperator_clip
from planner.exporters.own_module import write_own_casts, write_own_types
from planner.exporters.qonnx.finn import write_finn
from planner.exporters.qonnx.hls4ml import write_hls4ml
from planner.exporters.qonnx.qonnx import write_qonnx
from planner.exporters.stablehlo.write import write_stablehlo, write_stablehlo_int
from planner.exporters.tosa.write import write_tosa
from planner.ir.graph import Graph
from planner.litert_reader.schema import require_packages
from planner.plans.plan import Plan

Exporter: TypeAlias = Callable[[Graph, Plan], bytes]

EXPORTERS: Final[Mapping[str, Exporter]] = {
    **WRITERS,
    "finn": write_finn,
    "hls4ml": write_hls4ml,
    "litert": write_litert,
    "mlir": write_own_types,
    "mlir-casts": write_own_casts,
    "onnx-integer": write_integer,
    "onnx-matmulnbits": write_matmulnbits,
    "onnx-qcdq": write_qcdq,
    "onnx-qdq": write_qdq,
    "onnx-qoperator": write_qoperator,
    "onnx-qoperator-clip": write_qoperator_clip,
    "qonnx": write_qonnx,
    "stablehlo": write_stablehlo,
    "stablehlo-int": write_stablehlo_int,
    "tosa": write_tosa,
}


def require_format(name: str) -> None:
    """Refuse a name of no format, and a format whose packages are not installed.

    Whoever exports in the end asks this before calibrating and planning.

    Raises:
      InputError: the name, with the nearest ones.
      UnsupportedExport: the packages, with the command that installs them.
    """
    require_name("export format", name, EXPORTERS)
    if name == "litert":
        require_packages("written", UnsupportedExport)


WITH_LEVELS: Final[Mapping[str, Callable[[Graph, Plan, int], bytes]]] = {
    "onnx-matmulnbits": write_matmulnbits,
}
"""Formats with an accuracy level."""


def refuse_level(name: str) -> None:
    """Refuse an accuracy level of a format that has none.

    Raises:
      UnsupportedExport: with the formats that have.
    """
    if name not in WITH_LEVELS:
        raise UnsupportedExport(
            f"{name} has no accuracy levels; accepted: {', '.join(WITH_LEVELS)}",
            hint="leave accuracy_level away",
        )


WITH_BODIES: Final = frozenset(
    {
        "litert",
        "mlir",
        "mlir-casts",
        "onnx-integer",
        "onnx-qcdq",
        "onnx-qdq",
        "onnx-qoperator",
        "onnx-qoperator-clip",
        "stablehlo",
        "stablehlo-int",
        "tosa",
    }
)
"""Formats that say loops and branches."""

# Suffixes of files; ".onnx" where a format is not listed.
SUFFIXES: Final[Mapping[str, str]] = {
    **dict.fromkeys(WRITERS, ".encodings"),
    "hls4ml": ".zip",
    "litert": ".tflite",
    "mlir": ".mlir",
    "mlir-casts": ".mlir",
    "stablehlo": ".mlir",
    "stablehlo-int": ".mlir",
    "tosa": ".mlir",
}


def refuse_bodies(plan: Plan, name: str) -> None:
    """Refuse loops and branches where a format has no word for them.

    Raises:
      UnsupportedExport: naming the first one, and the formats that take it.
    """
    found = next((scope for scope in plan.graph.scopes.values() if scope.kind != "call"), None)
    if found is not None and name not in WITH_BODIES:
        raise UnsupportedExport(
            f"{found.owner!r} is a {found.type} with a body, which {name} has no word for here; accepted: "
            f"{', '.join(sorted(WITH_BODIES))}",
            hint="export one of these, or give a model without loops and branches",
        )


CHANNELS_LAST: Final = frozenset({"litert", "tosa"})
"""Formats whose images have their channels last; those of others have them first, as the model has."""
AS_GIVEN: Final = frozenset({*WRITERS, "mlir", "mlir-casts"})
"""Formats that are or accompany the model as it is, in whatever layout it has."""


def refuse_layout(plan: Plan, name: str) -> None:
    """Refuse a format whose images lie otherwise than the target's compiler reads them.

    Raises:
      UnsupportedExport: with the formats it does read.
    """
    wanted = plan.target.files.layout
    if wanted is None or name in AS_GIVEN or (name in CHANNELS_LAST) == (wanted == "channels_last"):
        return
    accepted = sorted(
        CHANNELS_LAST | AS_GIVEN if wanted == "channels_last" else EXPORTERS.keys() - CHANNELS_LAST
    )
    first, asked = ("channels first", "last") if wanted == "channels_last" else ("channels last", "first")
    raise UnsupportedExport(
        f"{name} has {first}, and {plan.target.id} reads channels {asked}; accepted: {', '.join(accepted)}",
        hint="export one of these",
    )


def file_name(name: str) -> str:
    """The name of a file in a format: `onnx-qdq.onnx`, `hls4ml.zip`, `tosa.mlir`."""
    return f"{name}{SUFFIXES.get(name, '.onnx')}"
