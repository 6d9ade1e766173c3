"""Examples in the OpenAPI document. Tests send them as they stand, but for `NO_DIGEST`."""

import hashlib
import json
from typing import Any, Final

NO_DIGEST: Final = f"sha256:{'0' * 64}"
"""Stands for a digest that depends on the version of the planner."""

NO_STATS: Final = f"sha256:{'1' * 64}"
"""The same for the digest of statistics."""

ANNOTATED: Final[dict[str, Any]] = {
    "format": "qplan.annotated/1",
    "name": "demo",
    "values": [
        {"name": "x", "shape": [1, 2], "dtype": "f32", "constraints": ["!quant.calibrated<f32<-1.0:1.0>>"]},
        {"name": "w", "shape": [2, 2], "dtype": "f32", "constant": {"value": [[0.5, -0.25], [0.125, 0.5]]}},
        {"name": "y", "shape": [1, 2], "dtype": "f32", "constraints": ["!quant.calibrated<f32<-2.0:2.0>>"]},
    ],
    "kernels": [
        {
            "name": "fc1",
            "kernel": "fully_connected",
            "inputs": ["x", "w", None],
            "outputs": ["y"],
            "ops": [{"name": "product", "type": "MatMul", "inputs": ["x", "w"], "outputs": ["y"]}],
        }
    ],
    "inputs": ["x"],
    "outputs": ["y"],
}
ANNOTATED_TEXT: Final = json.dumps(ANNOTATED)
BLOB: Final = f"sha256:{hashlib.sha256(ANNOTATED_TEXT.encode()).hexdigest()}"

STATS: Final[dict[str, Any]] = {
    "format": "qplan.stats/2",
    "model": NO_DIGEST,
    "method": "minmax",
    "samples": 1,
    "values": {"y": {"min": -2.0, "max": 2.0}},
}

TARGET: Final = """\
apiVersion: planner/v1
kind: Target
id: example-npu
version: 1.0.0
kernels:
  - kernel: fully_connected
    in: {x: {storage: i8}, w: {storage: i8}}
    out: {y: {storage: i8}}
"""

PORT: Final = "fc1.out[0]"
KERNEL: Final = "fc1"
VALUE: Final = "y"
TARGET_NAME: Final = "example-npu@1.0.0"
EDITS: Final[dict[str, Any]] = {"values": {VALUE: "!quant.uniform<i8:f32, 0.03125>"}}
RESCALE: Final = "x#0"
UPLOAD: Final = f"6a000000-{'0' * 32}"
"""Stands for the id of an upload."""
NO_JOB: Final = "0" * 32
"""Stands for the id of a job."""
