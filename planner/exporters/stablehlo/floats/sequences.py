"""Sequences: TopK as a sort, in floats.

Source: ONNX operator page TopK; StableHLO sort.
"""

from collections.abc import Mapping
from typing import Final

import numpy as np

from planner.exporters.stablehlo.calls import Call, Maker
from planner.exporters.stablehlo.operations import like, part, spread
from planner.exporters.stablehlo.tensors import Tensor, plain
from planner.mlir.generic import Block, Operation, tensor_text

Results = tuple[Tensor, ...]


def _top_k(call: Call) -> Results:
    p, x = call.p, call.x
    count = (call.integers(1) or (0,))[0]
    axis = call.attributes.get("axis", -1) % x.rank
    direction = "GT" if call.attributes.get("largest", 1) else "LT"
    shape = [n if i == axis else 1 for i, n in enumerate(x.shape)]
    places = spread(p, p.constant(np.arange(x.shape[axis]).reshape(shape), "i64"), x.shape)
    scalar, index = tensor_text((), x.element), tensor_text((), "i64")
    told = {"comparison_direction": f"#stablehlo<comparison_direction {direction}>"}
    inner = (
        Operation("stablehlo.compare", ("l", "r"), (("o", tensor_text((), "i1")),), told),
        Operation("stablehlo.return", ("o",)),
    )
    before = Block((("l", scalar), ("r", scalar), ("li", index), ("ri", index)), inner)
    attributes = {"dimension": f"{axis} : i64", "is_stable": "true"}
    found = p.emit_many("sort", [x, places], [like(x, x.shape), plain(x.shape, "i64")], (before,), attributes)
    return tuple(part(p, tensor, axis, 0, count) for tensor in found)


SEQUENCES: Final[Mapping[str, Maker]] = {"TopK": _top_k}
