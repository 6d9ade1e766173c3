"""Opsets: which version of the ONNX operator set a planned model is written in.

21, or 20 where a value is stored in signed bytes: in opset 21 onnxruntime 1.31 carries a pair of i8 over ops
that move data, which it meets or makes (MatMul and Add of rank 3), with a fixed output type (its pull request
28144), then turns i8 into u8 and refuses its own graph. Files that need 21 have guards there (`guards`). For
what is written here the two sets differ in 16-bit types and GroupNormalization alone. Floats of 4 bits came
with 23, scales that are exponents with 24. A file outside of what a device's compiler reads goes through
ONNX's own converter. Source: probed; ONNX's table of versions and its page VersionConverter.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import onnx
from onnx import checker, version_converter
from onnx.shape_inference import InferenceError

from planner.errors import UnsupportedExport
from planner.formats.onnx.write import OPSET
from planner.ir.types.qtypes import Uniform
from planner.plans.plan import Plan
from planner.plans.records import PortTyped
from planner.plans.rescales import definitions

OLDER_OPSET: Final = 20
NARROW_FLOATS: Final = 23
EXPONENTS: Final = 24
_PLACE: Final = re.compile(r"^\S+: \w+: Assertion `.*` failed: ")
"""The place in the converter's own source where it gave up."""


def choose_opset(plan: Plan, held: Iterable[str] = ()) -> int:
    """The opset of a file: 20 where an activation is stored as i8 and nothing needs 21.

    A model that needs a newer one than 21 keeps its own.

    Args:
      held: what scales of blocks are stored in (`blocked.kept_scales`).
    """
    own = plan.graph.opsets.get("", OPSET)
    kinds = (port.type for kernel in plan.kernels_in_order for port in (*kernel.inputs, *kernel.outputs))
    if any(isinstance(kind, Uniform) and kind.storage.float_name == "f4E2M1FN" for kind in kinds):
        own = max(own, NARROW_FLOATS)
    if "e8m0" in held:
        own = max(own, EXPONENTS)
    if own > OPSET:
        return own
    bases = {**definitions(plan.graph, plan.kernels_in_order), **plan.held_pins}
    is_fragile = any(_is_signed_byte(kind) for kind in _activations(plan, bases))
    limits = plan.target.files.opset
    may_be_older = limits is None or limits[0] <= OLDER_OPSET
    return OLDER_OPSET if is_fragile and may_be_older and not _needs_newer(plan, bases) else OPSET


def _activations(plan: Plan, bases: Mapping[str, PortTyped]) -> Iterator[PortTyped]:
    """Types of values that are no constants, at ports and as fixed types."""
    yield from bases.values()
    for kernel in plan.kernels_in_order:
        for port in (*kernel.inputs, *kernel.outputs):
            if port.value not in plan.graph.constants:
                yield port.type


def _is_signed_byte(kind: PortTyped) -> bool:
    return isinstance(kind, Uniform) and kind.storage.signed and kind.storage.bits <= 8


def _needs_newer(plan: Plan, bases: Mapping[str, PortTyped]) -> bool:
    """Whether a port or a fixed type stores words or blocks, or an op is of opset 21."""
    kinds = [port.type for kernel in plan.kernels_in_order for port in (*kernel.inputs, *kernel.outputs)]
    kinds += bases.values()
    has_words = any(isinstance(kind, Uniform) and 8 < kind.storage.bits <= 16 for kind in kinds)
    has_blocks = any(isinstance(kind, Uniform) and kind.grid for kind in kinds)
    return has_words or has_blocks or any(op.type == "GroupNormalization" for op in plan.graph.all_ops())


def within(data: bytes, limits: tuple[int, int]) -> bytes:
    """The model in the nearest opset between two.

    Raises:
      UnsupportedExport: an operator or type that this opset has not, by name.
    """
    model = onnx.load_from_string(data)
    own = next(item.version for item in model.opset_import if item.domain in ("", "ai.onnx"))
    wanted = min(max(own, limits[0]), limits[1])
    try:
        converted = version_converter.convert_version(model, wanted)
        checker.check_model(converted, full_check=True)
    except (RuntimeError, ValueError, InferenceError, checker.ValidationError) as error:
        said = _PLACE.sub("", str(error).strip().splitlines()[-1])
        raise UnsupportedExport(
            f"the target reads opsets {limits[0]} to {limits[1]}, this plan is written in {own}, and opset "
            f"{wanted} does not say it, or ONNX's converter has no step there: {said}",
            hint="types of 16 bits and blocks need 21; `files.opset` of the target may reach further",
        ) from error
    # The converter knows graphs alone: what stands around them is kept.
    converted.ir_version, converted.producer_name = model.ir_version, model.producer_name
    converted.producer_version, converted.doc_string = model.producer_version, model.doc_string
    del converted.metadata_props[:]
    converted.metadata_props.extend(model.metadata_props)
    del converted.graph.quantization_annotation[:]
    converted.graph.quantization_annotation.extend(model.graph.quantization_annotation)
    return bytes(converted.SerializeToString())
