"""NNCF's hardware configurations (`nncf/common/hardware/configs/*.json`) as a target.

The file lists operations with the quantizers that their activations and weights may have, in order of
priority; an operation without any lets every type pass; `scales: unified` asks for one scale. The format is
NNCF's up to 2.18 (template.md beside the files); later versions hold the same as Python.
Source: that template, and the code that parses it (nncf/common/hardware/config.py).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Final

from planner.target.yamltree import nearest
from planner.target_exchange.draft import Imported, RowDraft, TargetDraft, id_of
from planner.target_exchange.jsontree import Item, read_json
from planner.target_exchange.vocabulary import FORMS, fuse_linear, linear_row, plain_row, test_of

MODES: Final = ("symmetric", "asymmetric")
GRANULARITIES: Final = ("pertensor", "perchannel")
QUANTIZER: Final = (
    "bits", "mode", "granularity", "narrow_range", "signedness_to_force", "level_low", "level_high",
)  # fmt: skip

OPERATIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "Add": ("Add",),
    "AvgPool": ("AveragePool", "GlobalAveragePool"),
    "Broadcast": ("Expand",),
    "Concat": ("Concat",),
    "Convolution": ("Conv",),
    "Crop": ("Slice",),
    "DepthWiseConvolution": ("Conv",),
    "Divide": ("Div",),
    "Embedding": ("Gather",),
    "Equal": ("Equal",),
    "Flatten": ("Flatten",),
    "FloorMod": ("Mod",),
    "GELU": ("Gelu",),
    "Greater": ("Greater",),
    "GreaterEqual": ("GreaterOrEqual",),
    "GroupNormalization": ("GroupNormalization",),
    "Interpolate": ("Resize",),
    "Less": ("Less",),
    "LessEqual": ("LessOrEqual",),
    "MVN": ("LayerNormalization", "InstanceNormalization"),
    "MatMul": ("Gemm", "MatMul"),
    "MaxPool": ("MaxPool", "GlobalMaxPool"),
    "Maximum": ("Max",),
    "Minimum": ("Min",),
    "Multiply": ("Mul",),
    "NormalizeL2": ("LpNormalization",),
    "Pad": ("Pad",),
    "Power": ("Pow",),
    "ReduceL2": ("ReduceL2",),
    "ReduceMax": ("ReduceMax",),
    "ReduceMean": ("ReduceMean",),
    "ReduceSum": ("ReduceSum",),
    "Reshape": ("Reshape",),
    "Slice": ("Slice",),
    "Split": ("Split",),
    "Squeeze": ("Squeeze",),
    "StridedSlice": ("Slice",),
    "Subtract": ("Sub",),
    "Tile": ("Tile",),
    "Transpose": ("Transpose",),
    "Unsqueeze": ("Unsqueeze",),
    "VariadicSplit": ("Split",),
}
"""NNCF's operations that are operators of ONNX with a row of known form."""

OTHERS: Final[Mapping[str, str]] = {
    "Chunk": "it is no operator of ONNX",
    "ConvertLike": "it is no operator of ONNX",
    "EmbeddingBag": "it is no operator of ONNX",
    "GRUSequence": "the file does not say which types its states have",
    "LSTMSequence": "the file does not say which types its states have",
    "LogicalAnd": "its operands are truth values",
    "LogicalNot": "its operands are truth values",
    "LogicalOr": "its operands are truth values",
    "LogicalXor": "its operands are truth values",
    "NotEqual": "it is Not(Equal) in ONNX",
    "ScaledDotProductAttention": "attention is several operators in most files",
    "ShuffleChannels": "it is no operator of ONNX",
}
"""NNCF's other operations, and why they have no row."""


OPERATIONS_AT_MOST: Final = 512
LINEAR: Final = frozenset({"Convolution", "DepthWiseConvolution", "MatMul"})


@dataclass(frozen=True, slots=True)
class Space:
    """One entry of quantizers: the choices that it allows, the first of each being preferred."""

    name: str
    bits: int
    modes: tuple[str, ...]
    granularities: tuple[str, ...]
    narrow: tuple[bool, ...]
    signed: bool | None


@dataclass(frozen=True, slots=True)
class Operation:
    """One entry of `operations`."""

    item: Item
    kind: str
    activations: tuple[Space, ...]
    weights: tuple[Space, ...]
    unified: bool
    mode: str


def import_nncf(text: str, name: str, target_id: str = "") -> Imported:
    """Make a target of NNCF's hardware configuration.

    Raises:
      InputError: no JSON, an unknown key, or a value of the wrong kind: its place and the accepted values.
    """
    root = read_json(text, name).fields(("target_device", "config", "operations"), required=("operations",))
    device = root["target_device"].text() if "target_device" in root else name
    draft = TargetDraft(
        target_id or id_of(f"openvino-{device}", "nncf"), f"OpenVINO {device}", f"NNCF's {name}"
    )
    spaces = _aliases(root.get("config"))
    operations = [
        _operation(item, spaces, draft) for item in root["operations"].list(most=OPERATIONS_AT_MOST)
    ]
    if not operations:
        root["operations"].fail("is empty", accepted="at least one operation")
    _Importer(draft, operations).run()
    return draft.imported()


# Reading


def _aliases(config: Item | None) -> dict[str, Space]:
    if config is None:
        return {}
    fields = config.fields(("quantization",))
    if "quantization" not in fields:
        return {}
    return {key: _space(item, key) for key, item in fields["quantization"].entries()}


def _space(item: Item, name: str) -> Space:
    fields = item.fields(QUANTIZER, required=("bits",))
    signed = fields.get("signedness_to_force")
    return Space(
        name=name,
        bits=fields["bits"].whole(1, 32),
        modes=_words(fields.get("mode"), MODES, MODES[:1]),
        granularities=_words(fields.get("granularity"), GRANULARITIES, GRANULARITIES[:1]),
        narrow=tuple(entry.truth() for entry in fields["narrow_range"].list(or_one=True))
        if "narrow_range" in fields
        else (False,),
        signed=None if signed is None or signed.is_null else signed.truth(),
    )


def _words(item: Item | None, known: Sequence[str], default: Sequence[str]) -> tuple[str, ...]:
    if item is None:
        return tuple(default)
    found = tuple(entry.text(known) for entry in item.list(or_one=True))
    if not found:
        item.fail("is empty", accepted=f"one of {', '.join(known)}, or several")
    return found


def _operation(item: Item, spaces: Mapping[str, Space], draft: TargetDraft) -> Operation:
    fields = item.fields(("type", "attributes", "quantization"), required=("type",))
    kind = fields["type"].text()
    unified, mode = False, ""
    if "attributes" in fields:
        for key, value in fields["attributes"].entries():
            if key == "scales":
                unified = value.text(("unified",)) == "unified"
            elif key == "mode" and kind == "Interpolate":
                mode = value.text(("linear", "nearest", "cubic"))
            else:
                draft.not_said(f"{value.path} of {kind}: {value.node.data} has no equivalent in a target")
    quantization: dict[str, tuple[Space, ...]] = {"activations": (), "weights": ()}
    if "quantization" in fields:
        for key, value in fields["quantization"].fields(("activations", "weights")).items():
            quantization[key] = tuple(_named(entry, spaces) for entry in value.list(or_one=True))
    return Operation(item, kind, quantization["activations"], quantization["weights"], unified, mode)


def _named(item: Item, spaces: Mapping[str, Space]) -> Space:
    if isinstance(item.node.data, str):
        if not spaces:
            item.fail(
                f"{item.node.data!r} names no entry", accepted="config.quantization with entries by name"
            )
        return spaces[item.text(tuple(spaces))]
    return _space(item, "")


# Writing


@dataclass(slots=True)
class _Importer:
    draft: TargetDraft
    operations: Sequence[Operation]

    def run(self) -> None:
        draft = self.draft
        first = next((op.activations[0] for op in self.operations if op.activations), None)
        draft.default_port = self.activation(first) if first else draft.type("a8", storage="u8")
        draft.defaults = {"islands": "float", "bias": "float", "requantize": "float32_even"}
        draft.not_said("biases: the file has none; OpenVINO keeps them in float, and so does this target")
        draft.not_said(
            "activations inside other operations: which ones, NNCF says in code (fused_patterns.py)"
        )
        seen: set[str] = set()
        passing: list[str] = []
        for operation in self.operations:
            kind = operation.kind
            if kind not in OPERATIONS:
                # NNCF itself passes over what it does not know.
                why = OTHERS.get(
                    kind, f"no operation of NNCF's{nearest(kind, tuple(OPERATIONS), listed=False)}"
                )
                draft.not_said(f"{kind}: {why}")
            elif kind in LINEAR and kind in seen:
                draft.not_said(f"{operation.item.path}: {kind} a second time; the first is written")
            elif kind in LINEAR:
                seen.add(kind)
                self.linear(operation)
            else:
                ops = [op for op in OPERATIONS[kind] if operation.mode or op not in seen]
                seen.update(ops)
                says = operation.activations or operation.weights or operation.unified or operation.mode
                if says and ops:
                    self.plain(operation, tuple(ops))
                else:
                    passing += ops
        self.pass_through(passing)
        test_of(draft)

    def activation(self, space: Space) -> str:
        """The widest type of an entry: an asymmetric one holds what a symmetric one does."""
        if "perchannel" in space.granularities:
            self.draft.not_said(
                f"{space.name or 'an entry'}: activations per channel, too; one scale a tensor is written"
            )
        if "asymmetric" in space.modes and space.signed is not True:
            return self.draft.type(f"a{space.bits}", storage=f"u{space.bits}")
        if space.signed is False:
            return self.draft.type(f"a{space.bits}u", storage=f"u{space.bits}", zero_point=0)
        if space.signed is None:
            self.draft.not_said(
                f"{space.name or 'an entry'}: symmetric, unsigned where all is positive; signed is written"
            )
        return self.draft.type(f"a{space.bits}s", storage=f"i{space.bits}", symmetric=True)

    def weight(self, space: Space, *, axis: bool) -> tuple[str, bool]:
        """The preferred type of an entry, and whether it is per channel."""
        per_channel = axis and space.granularities[0] == "perchannel"
        granularity = "axis" if per_channel else "tensor"
        mark = f"{space.bits}{'c' if per_channel else 't'}"
        if space.modes[0] == "asymmetric":
            sign = "i" if space.signed else "u"
            return self.draft.type(
                f"v{mark}", storage=f"{sign}{space.bits}", granularity=granularity
            ), per_channel
        most = 2 ** (space.bits - 1) - 1
        narrow = [-most, most] if space.narrow[0] and space.bits > 1 else None
        name = self.draft.type(
            f"w{mark}", storage=f"i{space.bits}", range=narrow, granularity=granularity, symmetric=True
        )
        return name, per_channel

    def linear(self, operation: Operation) -> None:
        draft = self.draft
        if not operation.activations or not operation.weights:
            draft.not_said(f"{operation.item.path}: {operation.kind} without quantizers has no row")
            return
        f32 = draft.type("f32", storage="f32")
        kernels: list[str] = []
        if operation.kind == "MatMul":
            kernels = [fuse_linear(draft, "Gemm"), fuse_linear(draft, "MatMul")]
        elif operation.kind == "Convolution":
            kernels = [fuse_linear(draft, "Conv"), fuse_linear(draft, "ConvTranspose")]
        else:
            group = {"Conv.group": "== x.shape[1]"}
            kernels = [fuse_linear(draft, "Conv", kernel="depthwise_conv", where=group)]
            draft.fusions.insert(0, draft.fusions.pop())
        for kernel in kernels:
            for activation, weight in product(operation.activations, operation.weights):
                x = self.activation(activation)
                w, per_channel = self.weight(weight, axis=True)
                bias = None if kernel == "matmul" else f32
                row = linear_row(kernel, x, w, bias, x, per_channel=per_channel, product_bias=False)
                self.once(row)
        if operation.kind == "MatMul":
            for activation in operation.activations:
                x = self.activation(activation)
                rule = {"multiplier_scale": {"out": "y", "of": ["a", "b"]}}
                self.once(RowDraft(("MatMul",), {"a": x, "b": x}, {"y": x}, [rule]))

    def plain(self, operation: Operation, ops: tuple[str, ...]) -> None:
        form = FORMS[ops[0]]
        when = {"Resize.mode": operation.mode} if operation.mode else {}
        if not operation.activations and operation.weights:
            for weight in operation.weights:  # Embedding: a table
                w, _ = self.weight(weight, axis=False)
                rules = [{"same_scale": ["x", "y"]}]
                self.once(RowDraft(ops, {"x": w}, {"y": w}, rules, when={"x": "constant"}))
            return
        if not operation.activations:
            row = plain_row(ops, "*", "*", one_scale=True)
            row.when = when
            self.once(row)
            return
        for activation in operation.activations:
            x = self.activation(activation)
            self.once(self.of_form(ops, form, x, operation, when))
            for weight in operation.weights if form == "binary" and not operation.unified else ():
                w, _ = self.weight(weight, axis=False)
                constant = RowDraft(ops, {"a": x, "b": w}, {"y": x}, [{"free_scale": ["a", "b", "y"]}])
                constant.when = {"b": "constant"}
                if self.draft.types[w] != self.draft.types[x]:
                    self.draft.rows.append(constant)

    def of_form(
        self, ops: tuple[str, ...], form: str, x: str, operation: Operation, when: Mapping[str, Any]
    ) -> RowDraft:
        if form == "norm":
            f32 = self.draft.type("f32", storage="f32")
            constant = {"w": "constant", "b": "constant"}
            free = [{"free_scale": ["x", "y"]}]
            return RowDraft(ops, {"x": x, "w": f32, "b?": f32}, {"y": x}, free, when=constant)
        row = plain_row(ops, x, x)
        if operation.unified and form in ("binary", "compare"):
            row.rules = [{"same_scale": ["a", "b"]}]
        elif operation.unified and form == "variadic":
            row.rules = [{"same_scale": ["xs"]}]
        row.when = when
        return row

    def pass_through(self, ops: Sequence[str]) -> None:
        """Operations without quantizers: values pass through, whatever their type."""
        moving = tuple(op for op in dict.fromkeys(ops) if FORMS[op] in ("move", "choice"))
        if moving:
            row = plain_row(moving, "*", "*", one_scale=True)
            row.comment = "no quantizers of their own: every type passes"
            self.draft.rows.append(row)
        for op in dict.fromkeys(ops):
            if FORMS[op] in ("split", "variadic"):
                self.draft.rows.append(plain_row((op,), "*", "*", one_scale=True))
            elif op not in moving:
                self.draft.not_said(f"{op}: computes, and the file gives it no quantizer: no row")

    def once(self, row: RowDraft) -> None:
        """Add a row that is not there yet: several entries may come to one type."""
        said = [(r.kernels, dict(r.inputs), dict(r.outputs), dict(r.when)) for r in self.draft.rows]
        if (row.kernels, dict(row.inputs), dict(row.outputs), dict(row.when)) not in said:
            self.draft.rows.append(row)
