"""Quantization specs of PyTorch's PT2E quantizers, written down as JSON, as a target.

A quantizer annotates nodes of an exported program: a spec for each input, one for the output.
`examples/pt2e_specs.py` writes what a quantizer annotated as a file of the format `qplan.pt2e/1`, which is
read here:

    {"format": "qplan.pt2e/1", "quantizer": "XNNPACKQuantizer", "annotations": [
      {"ops": ["aten.conv2d.default", "aten.relu.default"],
       "inputs": [{"kind": "QuantizationSpec", "dtype": "int8", "quant_min": -128, "quant_max": 127,
                   "qscheme": "per_tensor_affine", "ch_axis": null, "is_dynamic": false}, ...],
       "output": null}]}

Source: torchao.quantization.pt2e.quantizer (before: torch.ao.quantization.quantizer), the four kinds of spec.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

from planner.target_exchange.aten import onnx_of
from planner.target_exchange.draft import Imported, RowDraft, TargetDraft, id_of, sentences
from planner.target_exchange.jsontree import Item, read_json
from planner.target_exchange.vocabulary import FORMS, FUSED, fuse_linear, test_of

FORMAT: Final = "qplan.pt2e/1"
KINDS: Final = (
    "QuantizationSpec", "FixedQParamsQuantizationSpec", "SharedQuantizationSpec", "DerivedQuantizationSpec",
)  # fmt: skip
SCHEMES: Final = (
    "per_tensor_affine", "per_tensor_symmetric", "per_channel_affine", "per_channel_symmetric",
    "per_channel_affine_float_qparams",
)  # fmt: skip
DTYPES: Final[Mapping[str, tuple[bool, int]]] = {
    f"{'' if signed else 'u'}int{bits}": (signed, bits)
    for signed in (True, False)
    for bits in (1, 2, 3, 4, 5, 6, 7, 8, 16, 32, 64)
}
FIELDS: Final[Mapping[str, tuple[str, ...]]] = {
    "QuantizationSpec": ("dtype", "quant_min", "quant_max", "qscheme", "ch_axis", "is_dynamic"),
    "FixedQParamsQuantizationSpec": (
        "dtype",
        "scale",
        "zero_point",
        "quant_min",
        "quant_max",
        "qscheme",
        "is_dynamic",
    ),
    "SharedQuantizationSpec": ("with",),
    "DerivedQuantizationSpec": (
        "derived_from",
        "dtype",
        "quant_min",
        "quant_max",
        "qscheme",
        "ch_axis",
        "is_dynamic",
    ),
}
MOST: Final = 8
ANNOTATIONS: Final = 1024


@dataclass(frozen=True, slots=True)
class Spec:
    """One spec: the type it becomes, and its ties to others (`input 0`, `output`)."""

    fields: Mapping[str, Any]
    fixed: tuple[str, int] | None = None
    shared: str = ""
    derived: tuple[str, ...] = ()
    dynamic: bool = False


@dataclass(frozen=True, slots=True)
class Annotation:
    """One annotated pattern."""

    item: Item
    ops: tuple[str, ...]
    inputs: tuple[Spec | None, ...]
    output: Spec | None


def import_pt2e(text: str, name: str, target_id: str = "") -> Imported:
    """Make a target of a quantizer's specs.

    Raises:
      InputError: no JSON, an unknown key, or a value of the wrong kind: its place and the accepted values.
    """
    root = read_json(text, name).fields(
        ("format", "quantizer", "annotations"), required=("format", "annotations")
    )
    root["format"].text((FORMAT,))
    quantizer = root["quantizer"].text() if "quantizer" in root else ""
    draft = TargetDraft(
        target_id or id_of(quantizer, "pt2e"),
        f"PT2E {quantizer or name}",
        f"{quantizer or 'specs'} in {name}",
    )
    draft.defaults = {"islands": "float", "bias": "float"}
    annotations = [_annotation(item) for item in root["annotations"].list(most=ANNOTATIONS)]
    for annotation in annotations:
        _Importer(draft, annotation).run()
    if not draft.rows:
        root["annotations"].fail("give no row", accepted="an operator of ONNX with specs")
    integers = [
        name
        for row in draft.rows
        for name in row.inputs.values()
        if name.startswith("a") and not _axis(draft, name)
    ]
    draft.default_port = integers[0] if integers else draft.type("a8", storage="i8")
    test_of(draft)
    return draft.imported()


def _axis(draft: TargetDraft, name: str) -> bool:
    return draft.types[name].get("granularity") == "axis"


# Reading


def _annotation(item: Item) -> Annotation:
    fields = item.fields(("ops", "inputs", "output"), required=("ops", "inputs", "output"))
    ops = tuple(entry.text() for entry in fields["ops"].list(or_one=True))
    if not 1 <= len(ops) <= MOST:
        fields["ops"].fail(f"{len(ops)} operators", accepted=f"1 to {MOST}")
    inputs = tuple(_spec(entry) for entry in fields["inputs"].list())
    return Annotation(item, ops, inputs, _spec(fields["output"]))


def _spec(item: Item) -> Spec | None:
    if item.is_null:
        return None
    found = dict(item.entries())
    if "kind" not in found:
        item.fail("no 'kind'", accepted=f"one of {', '.join(KINDS)}")
    kind = found["kind"].text(KINDS)
    fields = item.fields(("kind", *FIELDS[kind]))
    if kind == "SharedQuantizationSpec":
        if "with" not in fields:
            item.fail("no 'with'", accepted='"input 0", or another input, or "output"')
        return Spec({}, shared=_port(fields["with"]))
    said = _type(item, fields)
    dynamic = fields["is_dynamic"].truth() if "is_dynamic" in fields else False
    if kind == "DerivedQuantizationSpec":
        if "derived_from" not in fields:
            item.fail("no 'derived_from'", accepted='an array such as ["input 0", "input 1"]')
        return Spec(
            said, derived=tuple(_port(entry) for entry in fields["derived_from"].list()), dynamic=dynamic
        )
    if kind == "FixedQParamsQuantizationSpec":
        for key in ("scale", "zero_point"):
            if key not in fields:
                item.fail(f"no {key!r}")
        scale = Fraction(str(fields["scale"].number()))
        if scale <= 0:
            fields["scale"].fail(f"is {scale}", accepted="a number above 0")
        # 1/256 is written as it is meant; other decimals as they stand.
        shown = str(scale) if scale.denominator & (scale.denominator - 1) == 0 else str(float(scale))
        return Spec(said, fixed=(shown, fields["zero_point"].whole(-(2**31), 2**32)), dynamic=dynamic)
    return Spec(said, dynamic=dynamic)


def _port(item: Item) -> str:
    word = item.text()
    head, _, number = word.partition(" ")
    if word != "output" and not (head == "input" and number.isdigit() and int(number) < 2 * MOST):
        item.fail(f"{word!r} is no port", accepted='"input 0", or another input, or "output"')
    return word


def _type(item: Item, fields: Mapping[str, Item]) -> dict[str, Any]:
    """The port type of a spec: the narrowest storage with its ends, symmetric or not, per tensor or axis."""
    if "dtype" not in fields:
        item.fail("no 'dtype'", accepted=f"one of {', '.join(DTYPES)}")
    word = fields["dtype"].text().removeprefix("torch.").replace("quint", "uint").replace("qint", "int")
    if word not in DTYPES:
        fields["dtype"].fail(f"{word!r} is no integer type", accepted=", ".join(DTYPES))
    signed, bits = DTYPES[word]
    full = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    low, high = (
        fields[key].whole(*full) if key in fields and not fields[key].is_null else end
        for key, end in (("quant_min", full[0]), ("quant_max", full[1]))
    )
    if low >= high:
        fields["quant_max"].fail(f"{low} to {high}", accepted="quant_min below quant_max")
    # An int8 that holds -8 to 7 is an i4 in a byte.
    while bits > 1 and signed and -(2 ** (bits - 2)) <= low and high < 2 ** (bits - 2):
        bits -= 1
    while bits > 1 and not signed and high < 2 ** (bits - 1):
        bits -= 1
    full = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    scheme = SCHEMES[0]
    if "qscheme" in fields and not fields["qscheme"].is_null:
        scheme = fields["qscheme"].text().removeprefix("torch.")
        if scheme not in SCHEMES:
            fields["qscheme"].fail(f"{scheme!r} is no scheme", accepted=", ".join(SCHEMES))
    said: dict[str, Any] = {"storage": f"{'i' if signed else 'u'}{bits}"}
    if (low, high) != full:
        said["range"] = [low, high]
    if scheme.startswith("per_channel"):
        said["granularity"] = "axis"
    if scheme.endswith("symmetric"):
        if signed:
            said["symmetric"] = True
        else:
            said["zero_point"] = 2 ** (bits - 1)
    return said


# Writing


@dataclass(slots=True)
class _Importer:
    draft: TargetDraft
    annotation: Annotation

    def run(self) -> None:
        annotation, draft = self.annotation, self.draft
        ops = tuple(onnx_of(name) for name in annotation.ops)
        if not all(op in FORMS for op in ops):
            strange = [name for name, op in zip(annotation.ops, ops, strict=True) if op not in FORMS]
            draft.not_said(
                f"{annotation.item.path}: {sentences(strange)}: no operator of ONNX with a row of known form"
            )
            return
        if any(spec is not None and spec.dynamic for spec in (*annotation.inputs, annotation.output)):
            draft.not_said(
                f"{annotation.item.path}: {annotation.ops[0]}: scales that are measured while it runs"
            )
            return
        if any(FORMS[op] in ("linear", "binary", "variadic", "split") for op in ops[1:]):
            draft.not_said(f"{annotation.item.path}: {sentences(annotation.ops)}: no chain of one operand")
            return
        ports = self.ports(ops[0])
        if ports is None:
            return
        types = {f"input {i}": spec for i, spec in enumerate(annotation.inputs)} | {
            "output": annotation.output
        }
        names = {f"input {i}": port for i, port in enumerate(ports)} | {"output": "y"}
        kernel = self.kernel(ops)
        row = RowDraft(
            (kernel,),
            {self.written(port, i, ops[0]): self.named(f"input {i}", types) for i, port in enumerate(ports)},
            {("ys*" if FORMS[ops[0]] == "split" else "y"): self.named("output", types)},
            self.rules(types, names),
        )
        row.axis = {
            port: "out_channel"
            for i, port in enumerate(ports)
            if self.draft.types[self.named(f"input {i}", types)].get("granularity") == "axis"
        }
        if all(self.draft.types[name]["storage"] == "f32" for name in row.inputs.values()):
            return
        if FORMS[ops[0]] == "norm":
            row.when = dict.fromkeys(ports[1:], "constant")
        if repr(row) not in map(repr, draft.rows):
            draft.rows.append(row)

    def ports(self, op: str) -> list[str] | None:
        """Names of the ports, one for each spec; a variadic operator has one for all."""
        form, count = FORMS[op], len(self.annotation.inputs)
        names = {
            "linear": ["x", "w", "b"],
            "binary": ["a", "b"],
            "norm": ["x", "w", "b"],
            "slope": ["x", "slope"],
        }
        names |= {"select": ["a", "b"], "compare": ["a", "b"], "variadic": ["xs"]}
        known = names.get(form, ["x"])
        if form == "variadic" and count:
            return known
        least = 1 if form == "norm" else min(2, len(known))
        if not least <= count <= len(known):
            self.annotation.item.fail(f"{count} inputs of {op}", accepted=f"{least} to {len(known)}")
        # A bias without a spec is float, be it in the file as null or not at all.
        return known if form in ("linear", "norm") and op != "MatMul" else known[:count]

    def written(self, port: str, index: int, op: str) -> str:
        if port == "xs":
            return "xs*"
        return f"{port}?" if port == "b" and FORMS[op] in ("linear", "norm") and index == 2 else port

    def named(self, port: str, types: Mapping[str, Spec | None]) -> str:
        """The type's name: of a shared spec that of what it shares with, float where there is none."""
        spec, seen = types.get(port), {port}
        while spec is not None and spec.shared and spec.shared not in seen:
            seen.add(spec.shared)
            spec = types.get(spec.shared)
        if spec is None or not spec.fields:
            return self.draft.type("f32", storage="f32")
        said = dict(spec.fields)
        head = (
            "w" if said.get("granularity") == "axis" or (port == "input 1" and said.get("symmetric")) else "a"
        )
        head = "b" if spec.derived or said["storage"] in ("i32", "i64") else head
        return self.draft.type(f"{head}_{said['storage']}", **said)

    def rules(self, types: Mapping[str, Spec | None], names: Mapping[str, str]) -> list[Mapping[str, Any]]:
        found: list[Mapping[str, Any]] = []
        tied: dict[str, list[str]] = {}
        for port, spec in types.items():
            if spec is None or port not in names:
                continue
            if spec.fixed:
                found.append(
                    {
                        "fixed_scale": {
                            "port": names[port],
                            "scale": spec.fixed[0],
                            "zero_point": spec.fixed[1],
                        }
                    }
                )
            if spec.shared in names:
                tied.setdefault(names[spec.shared], [names[spec.shared]]).append(names[port])
            if spec.derived:
                of = [names[source] for source in spec.derived if source in names]
                found.append({"multiplier_accumulator_scale": {"port": names[port], "of": of}})
                self.draft.not_said(
                    f"{self.annotation.item.path}: {names[port]} is derived by code; the product of "
                    f"{sentences(of)} is written"
                )
        if "xs" in names.values() and types["output"] is not None and types["output"].shared:
            tied = {"xs": ["xs", "y"]}
        found += [{"same_scale": list(dict.fromkeys(ports))} for ports in tied.values()]
        multiplies = {"w", "b"} & set(names.values()) and FORMS[onnx_of(self.annotation.ops[0])] == "linear"
        if multiplies and self.named("output", types) != self.draft.type("f32", storage="f32"):
            pair = [names["input 0"], names["input 1"]]
            if not any("fixed_scale" in rule for rule in found):
                found.append({"multiplier_scale": {"out": "y", "of": pair}})
        return found

    def kernel(self, ops: Sequence[str]) -> str:
        """The kernel of a chain: its head's, with a fusion for each chain."""
        head, draft = ops[0], self.draft
        if head in FUSED and len(self.annotation.inputs) > 1 and self.annotation.inputs[1] is not None:
            made = FUSED[head][0]
            if made == "matmul" and not self.annotation.inputs[1].fields.get("symmetric"):
                return "MatMul"
            if all(fusion["kernel"] != made for fusion in draft.fusions):
                fuse_linear(draft, head)
            own = next(fusion for fusion in draft.fusions if fusion["kernel"] == made)
            base = own["pattern"] if isinstance(own["pattern"], list) else [own["pattern"]]
        elif len(ops) == 1:
            return head
        else:
            operands = {"binary": "a, b", "variadic": "xs*"}.get(FORMS[head], "x")
            made, base, own = "_".join(ops).lower(), [f"{head}({operands})"], {}
        patterns = list(base)
        for op in ops[1:]:
            patterns = [f"{op}({pattern})" for pattern in patterns]
        said: dict[str, Any] = {"kernel": made, "pattern": patterns if len(patterns) > 1 else patterns[0]}
        if own.get("where"):
            said["where"] = own["where"]
        if said not in draft.fusions:
            draft.fusions.append(said)
        return made
