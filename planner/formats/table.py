"""Table: the formats a plan can be written in, by their names on the command line."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Final, TypeAlias

from planner.errors import UnsupportedExport, require_name
from planner.formats.encodings import WRITERS
from planner.formats.litert.schema import require_packages
from planner.formats.litert.writer.write import build_litert, write_litert
from planner.formats.onnx.writer import matmulnbits, qcdq, qdq, qoperator
from planner.formats.onnx.writer.integers.integer import write_integer
from planner.formats.onnx.writer.matmulnbits import write_matmulnbits
from planner.formats.onnx.writer.qcdq import write_qcdq
from planner.formats.onnx.writer.qdq import write_qdq
from planner.formats.onnx.writer.qoperator import write_qoperator, write_qoperator_clip
from planner.formats.onnx.writer.write import Form
from planner.formats.own_module import write_own_casts, write_own_types
from planner.formats.qonnx.finn import write_finn
from planner.formats.qonnx.hls4ml import write_hls4ml
from planner.formats.qonnx.qonnx import write_qonnx
from planner.formats.stablehlo.writer.write import write_stablehlo, write_stablehlo_int
from planner.formats.tosa.writer.write import write_tosa
from planner.ir.graph import Graph
from planner.plans.plan import Plan

Exporter: TypeAlias = Callable[[Graph, Plan], bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """A format as the planner knows it.

    Attributes:
      write: gives the bytes of a file.
      build: gives what those bytes are made of, or refuses; None: `write` does.
      form: of an ONNX format whose weights can lie in a file beside the model.
      form_at: the same at an accuracy level, of a format that has levels.
      suffix: of its files.
      has_bodies: whether it says loops and branches.
      channels_last: whether images have their channels last there; else first, as the model has them.
      is_types_alone: whether it says types and computes nothing: it goes with the model as that is, and has a
        word for every plan.
      is_whole: whether its writer looks at the model as a whole: a kernel alone tells nothing.
      in_interpreter: whether onnxruntime does not run its files, and the reference interpreter computes them.
      arithmetic: what the interpreter computes them in; None: in the arithmetic of each row.
    """

    write: Exporter
    build: Callable[[Graph, Plan], object] | None = None
    form: Form | None = None
    form_at: Callable[[int], Form] | None = None
    suffix: str = ".onnx"
    has_bodies: bool = False
    channels_last: bool = False
    is_types_alone: bool = False
    is_whole: bool = False
    in_interpreter: bool = False
    arithmetic: str | None = None


FORMATS: Final[Mapping[str, Format]] = {
    **{
        name: Format(write=write, suffix=".encodings", is_types_alone=True) for name, write in WRITERS.items()
    },
    "finn": Format(write=write_finn, is_whole=True, in_interpreter=True),
    "hls4ml": Format(write=write_hls4ml, suffix=".zip", is_whole=True),
    "litert": Format(
        write=write_litert,
        build=build_litert,
        suffix=".tflite",
        has_bodies=True,
        channels_last=True,
        in_interpreter=True,
    ),
    "mlir": Format(write=write_own_types, suffix=".mlir", has_bodies=True, is_types_alone=True),
    "mlir-casts": Format(write=write_own_casts, suffix=".mlir", has_bodies=True, is_types_alone=True),
    "onnx-integer": Format(write=write_integer, has_bodies=True),
    "onnx-matmulnbits": Format(
        write=write_matmulnbits, form=matmulnbits.FORM, form_at=matmulnbits.form_at, is_whole=True
    ),
    "onnx-qcdq": Format(write=write_qcdq, form=qcdq.FORM, has_bodies=True),
    "onnx-qdq": Format(write=write_qdq, form=qdq.FORM, has_bodies=True),
    "onnx-qoperator": Format(write=write_qoperator, form=qoperator.FORM, has_bodies=True),
    "onnx-qoperator-clip": Format(write=write_qoperator_clip, form=qoperator.CLIP_FORM, has_bodies=True),
    "qonnx": Format(write=write_qonnx),
    "stablehlo": Format(
        write=write_stablehlo,
        suffix=".mlir",
        has_bodies=True,
        in_interpreter=True,
        arithmetic="float32_spec",
    ),
    "stablehlo-int": Format(
        write=write_stablehlo_int,
        suffix=".mlir",
        has_bodies=True,
        in_interpreter=True,
        arithmetic="exact_even",
    ),
    "tosa": Format(
        write=write_tosa, suffix=".mlir", has_bodies=True, channels_last=True, in_interpreter=True
    ),
}
EXPORTERS: Final[Mapping[str, Exporter]] = {name: form.write for name, form in FORMATS.items()}
CHANNELS_LAST: Final = frozenset(name for name, form in FORMATS.items() if form.channels_last)
AS_GIVEN: Final = frozenset(name for name, form in FORMATS.items() if form.is_types_alone)


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


def form_of(name: str, level: int | None) -> Form | None:
    """The form of an ONNX format whose weights can lie beside the model, at an accuracy level or its own.

    Raises:
      UnsupportedExport: the format has no levels, with those that have; or another level than it has.
    """
    if level is None:
        return FORMATS[name].form
    form_at = FORMATS[name].form_at
    if form_at is None:
        accepted = ", ".join(name for name, form in FORMATS.items() if form.form_at)
        raise UnsupportedExport(
            f"{name} has no accuracy levels; accepted: {accepted}", hint="leave accuracy_level away"
        )
    return form_at(level)


def refuse_bodies(plan: Plan, name: str) -> None:
    """Refuse loops and branches where a format has no word for them.

    Raises:
      UnsupportedExport: naming the first one, and the formats that take it.
    """
    found = next((scope for scope in plan.graph.scopes.values() if scope.kind != "call"), None)
    if found is not None and not FORMATS[name].has_bodies:
        accepted = ", ".join(sorted(name for name, form in FORMATS.items() if form.has_bodies))
        raise UnsupportedExport(
            f"{found.owner!r} is a {found.type} with a body, which {name} cannot express here; accepted: "
            f"{accepted}",
            hint="export one of these, or give a model without loops and branches",
        )


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


def misnamed(path: str, name: str) -> Iterator[str]:
    """Say so where a file is named as those of other formats are: `model.tflite` for an ONNX file."""
    suffix = PurePath(path).suffix.lower()
    others = sorted(other for other, form in FORMATS.items() if form.suffix == suffix)
    if others and suffix != FORMATS[name].suffix:
        yield f"{path} is named as files of {' or '.join(others)} are, and it is {name}"


def file_name(name: str) -> str:
    """The name of a file in a format: `onnx-qdq.onnx`, `hls4ml.zip`, `tosa.mlir`."""
    return f"{name}{FORMATS[name].suffix}"
