"""ONNX operators by the form of their data operands, so that an importer makes rows of what a file says of
an op.

Only forms stand here; which types go with them is the importers' business, which operators a device has too.
"""

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

from planner.target_exchange.draft import RowDraft, TargetDraft

Form: TypeAlias = Literal[
    "linear",
    "unary",
    "move",
    "choice",
    "binary",
    "variadic",
    "split",
    "compare",
    "norm",
    "index",
    "slope",
    "select",
]

_LISTS: Final[Mapping[Form, str]] = {
    "linear": "Conv ConvTranspose Gemm MatMul",
    "unary": (
        "Abs Acos Asin Atan Ceil Celu Cos Elu Erf Exp Floor Gelu HardSigmoid HardSwish LeakyRelu Log "
        "LogSoftmax LpNormalization Mish Neg Reciprocal Round Selu Sigmoid Sign Sin Softmax Softplus "
        "Softsign Sqrt Tan Tanh ThresholdedRelu AveragePool GlobalAveragePool ReduceL1 ReduceL2 ReduceMean "
        "ReduceProd ReduceSum Resize"
    ),
    "move": (
        "DepthToSpace Expand Flatten Gather Identity Pad Reshape Slice SpaceToDepth Squeeze Tile Transpose "
        "Unsqueeze"
    ),
    "choice": "Clip GlobalMaxPool MaxPool ReduceMax ReduceMin Relu",
    "binary": "Add Div Mod Mul Pow Sub",
    "variadic": "Concat Max Mean Min Sum",
    "split": "Split",
    "compare": "Equal Greater GreaterOrEqual Less LessOrEqual",
    "norm": "BatchNormalization GroupNormalization InstanceNormalization LayerNormalization",
    "index": "ArgMax ArgMin",
    "slope": "PRelu",
    "select": "Where",
}
FORMS: Final[Mapping[str, Form]] = {op: form for form, ops in _LISTS.items() for op in ops.split()}
"""The form of each operator that an importer can make a row of."""

FUSED: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "Conv": ("conv", ("Conv(x, w, b?)",)),
    "ConvTranspose": ("conv_transpose", ("ConvTranspose(x, w, b?)",)),
    "Gemm": ("linear", ("Gemm(x, w, b?)", "Add(MatMul(x, w), b)")),
    "MatMul": ("matmul", ("MatMul(x, w)",)),
}
"""The kernel of each linear operator with a constant weight, and its patterns."""


def same(ports: list[str]) -> list[Mapping[str, object]]:
    """The rule of one scale."""
    return [{"same_scale": ports}]


def free(ports: list[str]) -> list[Mapping[str, object]]:
    """The rule of free scales."""
    return [{"free_scale": ports}]


def fuse_linear(
    draft: TargetDraft, op: str, *, kernel: str = "", where: Mapping[str, object] | None = None
) -> str:
    """Add the fusion that tells a linear operator with constant weights from a product of activations."""
    usual, trees = FUSED[op]
    name = kernel or usual
    said: dict[str, object] = {"w": "constant", "b": "constant"} if op != "MatMul" else {"w": "constant"}
    if op == "Gemm":
        said |= {"w.rank": 2, "b.rank": 1, "Gemm.transA": 0, "Gemm.alpha": 1, "Gemm.beta": 1}
    patterns = list(trees)
    pattern: object = patterns if len(patterns) > 1 else patterns[0]
    draft.fusions.append({"kernel": name, "pattern": pattern, "where": {**said, **(where or {})}})
    return name


def linear_row(
    kernel: str, x: str, w: str, b: str | None, y: str, *, per_channel: bool, product_bias: bool
) -> RowDraft:
    """The row of a linear kernel; `product_bias`: the bias lies on the grid of the product."""
    inputs = {"x": x, "w": w} | ({"b?": b} if b else {})
    rules: list[Mapping[str, object]] = []
    if b and product_bias:
        rules.append({"multiplier_accumulator_scale": {"port": "b", "of": ["x", "w"]}})
    rules.append({"multiplier_scale": {"out": "y", "of": ["x", "w"]}})
    axis = {"w": "out_channel"} if per_channel else {}
    return RowDraft((kernel,), inputs, {"y": y}, rules, axis=axis)


def plain_row(ops: tuple[str, ...], x: str, y: str, *, one_scale: bool = False) -> RowDraft:
    """The row of operators of one form without weights; results may be float (`y` a float type).

    Args:
      ops: operators of one form.
      x: type of the operands.
      y: type of the results.
      one_scale: operands and results share a scale.
    """
    form = FORMS[ops[0]]
    rule = same if one_scale else free
    if form in ("binary", "select"):
        return RowDraft(ops, {"a": x, "b": x}, {"y": y}, rule(["a", "b", "y"]))
    if form == "variadic":
        return RowDraft(ops, {"xs*": x}, {"y": y}, rule(["xs", "y"]))
    if form == "split":
        return RowDraft(ops, {"x": x}, {"ys*": y}, rule(["x", "ys"]))
    if form == "compare":
        return RowDraft(ops, {"a": x, "b": x}, {}, rule(["a", "b"]))
    if form == "index":
        return RowDraft(ops, {"x": x}, {})
    if form == "slope":
        return RowDraft(ops, {"x": x, "slope": x}, {"y": y}, rule(["x", "slope", "y"]))
    return RowDraft(ops, {"x": x}, {"y": y}, rule(["x", "y"]))


def test_of(draft: TargetDraft) -> None:
    """Add one small test that the rows pass, of a linear kernel; where there is none, say so."""
    kernels = {row.kernels[0]: row for row in reversed(draft.rows)}
    for fusion in draft.fusions:
        name = str(fusion["kernel"])
        if "w" in dict(fusion["where"]) and name in ("conv", "linear", "matmul") and name in kernels:
            shape, weight, made = {
                "conv": ("[1,4,4,4]", "[4,4,1,1]", "Conv"),
                "linear": ("[2,4]", "[4,4]", "Gemm"),
                "matmul": ("[2,4]", "[4,4]", "MatMul"),
            }[name]
            model = [f"x : f32{shape} {{-1, 1}}", f"w = constant : f32{weight} {{-0.5, 0.5}}"]
            model.append(f"y = {made}(x, w) : f32{shape} {{-2, 2}}")
            draft.tests.append(
                {"name": f"{name} is quantized", "model": model, "expect": {"kernels": {name: 1}}}
            )
            return
    draft.not_said("tests: no linear kernel that one could be made of (lint L011)")
