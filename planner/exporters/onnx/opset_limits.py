"""Opset limits: a file in an opset that a device's compiler reads, by ONNX's own converter.

What a version of an operator can't say, types above all, is refused; nothing is rewritten here. Source: ONNX
docs/VersionConverter.md.
"""

import re
from typing import Final

import onnx
from onnx import checker, version_converter
from onnx.shape_inference import InferenceError

from planner.errors import UnsupportedExport

_PLACE: Final = re.compile(r"^\S+: \w+: Assertion `.*` failed: ")
"""Where in the converter's own source it gave up."""


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
            f"{wanted} does not say it: {said}",
            hint="a target's rows may ask for what that opset has, types of 8 bits say",
        ) from error
    # The converter knows graphs alone: what stands around them is kept.
    converted.ir_version, converted.producer_name = model.ir_version, model.producer_name
    converted.doc_string = model.doc_string
    del converted.metadata_props[:]
    converted.metadata_props.extend(model.metadata_props)
    del converted.graph.quantization_annotation[:]
    converted.graph.quantization_annotation.extend(model.graph.quantization_annotation)
    return bytes(converted.SerializeToString())
