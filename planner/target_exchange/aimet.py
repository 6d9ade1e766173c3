"""AIMET's quantsim configuration (`default_config*.json`, `htp_quantsim_config_*.json`) as a target.

The file says where a simulation puts quantizers: on results, on parameters, symmetric or not, per channel
or not; which widths run together (`supported_kernels`), which operators keep nothing between them
(`supergroups`), and which results have fixed ends (`encoding_constraints`). Source: AIMET's documentation,
"Quantization Simulation Configuration", and its schema (quantsim_config_schema.py).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

from planner.target_exchange.aimet_config import Config, Setting, Width, read_config
from planner.target_exchange.draft import Imported, RowDraft, TargetDraft, id_of, sentences
from planner.target_exchange.vocabulary import (
    FORMS,
    FUSED,
    Form,
    fuse_linear,
    linear_row,
    plain_row,
    test_of,
)

ALIASES: Final[Mapping[str, str]] = {
    "Mean": "ReduceMean",
    "LayerNorm": "LayerNormalization",
    "InstanceNorm": "InstanceNormalization",
    "BatchNorm": "BatchNormalization",
    "GroupNorm": "GroupNormalization",
    "AvgPool": "AveragePool",
}
"""Names of AIMET's connected graph that are not ONNX's."""

LESS: Final = frozenset({"Cast", "Dropout"})
"""Operators without a result that could have a scale of its own, or that are gone in inference."""

GROUPED: Final = frozenset(FUSED) | {
    op for op, form in FORMS.items() if form in ("binary", "unary", "choice", "move")
}


def import_aimet(text: str, name: str, target_id: str = "") -> Imported:
    """Make a target of AIMET's configuration.

    Raises:
      InputError: no JSON, an unknown key, or a value of the wrong kind: its place and the accepted values.
    """
    config = read_config(text, name)
    title = f"AIMET {config.hw_version or name}"
    draft = TargetDraft(target_id or id_of(name.rsplit(".", 1)[0], "aimet"), title, f"AIMET's {name}")
    _Importer(config, draft).run()
    return draft.imported()


@dataclass(slots=True)
class _Importer:
    config: Config
    draft: TargetDraft

    def run(self) -> None:
        config, draft = self.config, self.draft
        draft.default_port = self.activation(config.defaults, self.widths(config.defaults)[0][0])
        draft.defaults = {"islands": "float", "bias": "float"}
        self.remarks()
        settings = {ALIASES.get(op, op): setting for op, setting in config.ops.items()}
        for op, setting in settings.items():
            if FORMS.get(op) == "norm" and setting.per_channel != config.defaults.per_channel:
                draft.not_said(
                    f"op_type.{op}.per_channel_quantization: weights of one dimension have one scale here"
                )
        for op in config.ops:
            if ALIASES.get(op, op) not in FORMS and op not in LESS:
                draft.not_said(f"op_type.{op}: no operator of ONNX with a row of known form")
        chains = self.chains()
        for op in FUSED:
            self.linear(op, settings.get(op, config.defaults), [chain for chain in chains if chain[0] == op])
        others = [chain for chain in chains if chain[0] not in FUSED]
        for chain in others:
            self.chain_of_plain(chain, settings.get(chain[0], config.defaults))
        self.plain(settings)
        test_of(draft)

    def remarks(self) -> None:
        config, draft = self.config, self.draft
        if not config.defaults.kernels:
            draft.not_said("widths: arguments of QuantizationSimModel, not of the file; 8 bits are written")
        if config.unsigned:
            draft.not_said("unsigned_symmetric: symmetric types become unsigned where no number is negative")
        if not config.quantized_input and config.defaults.writes:
            draft.not_said(
                "model_input: inputs of the model are float; here the model says so, not the target"
            )
        for name in config.passes:
            if name != "MatmulAdd":
                draft.not_said(
                    f"supergroup_pass_list: {name} is code of AIMET's, its pattern is not in the file"
                )

    def widths(self, setting: Setting) -> tuple[tuple[Width, Width], ...]:
        kernels = setting.kernels or ((Width(8), Width(8)),)
        return tuple((a, a if p is None else p) for a, p in kernels)

    def activation(self, setting: Setting, width: Width) -> str:
        if width.is_float:
            return self.draft.type(f"f{width.bits}", storage=f"f{width.bits}")
        return self._integer(f"a{width.bits}", width.bits, symmetric=setting.symmetric)

    def _integer(self, name: str, bits: int, *, symmetric: bool, granularity: str = "tensor") -> str:
        if not symmetric:
            return self.draft.type(name, storage=f"u{bits}", granularity=granularity)
        most = 2 ** (bits - 1) - 1
        narrow = [-most, most] if self.config.strict and bits > 1 else None
        return self.draft.type(
            name + "s" * (name[0] == "a"),
            storage=f"i{bits}",
            range=narrow,
            granularity=granularity,
            symmetric=True,
        )

    def parameter(self, setting: Setting, width: Width, name: str, *, per_channel: bool) -> str:
        quantized, symmetric = setting.param(name)
        if width.is_float or not quantized:
            bits = width.bits if width.is_float else 32
            return self.draft.type(f"f{bits}", storage=f"f{bits}")
        head = f"{name[0]}{width.bits}{'c' if per_channel else 't'}"
        return self._integer(
            head, width.bits, symmetric=symmetric, granularity="axis" if per_channel else "tensor"
        )

    def result(self, setting: Setting, width: Width) -> str:
        if setting.writes:
            return self.activation(setting, width)
        return self.draft.type("f32", storage="f32")

    def fixed_rule(
        self, op: str, setting: Setting, width: Width, ends: tuple[Fraction, Fraction]
    ) -> list[Mapping[str, Any]]:
        low, high = ends
        most = 2 ** (width.bits - 1) - 1
        if setting.symmetric:
            scale, zero = max(-low, high) / most, Fraction(0)
        else:
            scale = (high - low) / (2**width.bits - 1)
            zero = -low / scale
        if zero.denominator != 1:
            self.draft.not_said(
                f"op_type.{op}.encoding_constraints: {low} to {high} has its zero between two steps of "
                f"{width.bits} bits; the nearest step is written"
            )
        return [{"fixed_scale": {"port": "y", "scale": str(scale), "zero_point": round(zero)}}]

    def linear(self, op: str, setting: Setting, chains: Sequence[tuple[str, ...]]) -> None:
        if not (setting.reads or setting.writes):
            self.draft.not_said(f"{op}: neither read nor written as integers: it runs in float")
            return
        kernel = fuse_linear(self.draft, op)
        if op == "MatMul" and "MatmulAdd" in self.config.passes:
            self.draft.fusions[-1] = {
                "kernel": kernel,
                "pattern": ["MatMul(x, w)", "Add(MatMul(x, w), b)"],
                "where": {"w": "constant", "b": "constant"},
            }
        self.linear_rows(op, kernel, setting, {})
        if op == "MatMul":
            for a, _ in dict.fromkeys(self.widths(setting)):
                if not a.is_float:
                    x = self.activation(setting, a)
                    rule = {"multiplier_scale": {"out": "y", "of": ["a", "b"]}}
                    y = self.result(setting, a)
                    self.draft.rows.append(
                        RowDraft(("MatMul",), {"a": x, "b": x}, {"y": y}, [rule] * setting.writes)
                    )
        for chain in chains:
            self.fuse(chain, kernel, setting)

    def linear_rows(self, op: str, kernel: str, setting: Setting, beside: Mapping[str, str]) -> None:
        for a, p in self.widths(setting):
            if a.is_float:
                self.draft.rows.append(_float_row(self.draft, kernel, a, ("x", "w", "b?", *beside)))
                continue
            per_channel = setting.per_channel and setting.param("weight")[0] and not p.is_float
            w = self.parameter(setting, p, "weight", per_channel=per_channel)
            b = self.parameter(setting, p, "bias", per_channel=False)
            row = linear_row(
                kernel, self.activation(setting, a), w, b, self.result(setting, a),
                per_channel=per_channel, product_bias=False,
            )  # fmt: skip
            row.inputs = {**row.inputs, **dict.fromkeys(beside, self.activation(setting, a))}
            if not setting.writes:
                row.rules = []
            elif setting.fixed:
                row.rules = self.fixed_rule(op, setting, a, setting.fixed)
            self.draft.rows.append(row)

    def chains(self) -> list[tuple[str, ...]]:
        """Supergroups as chains of ONNX operators, each once; other groups are reported."""
        found: dict[tuple[str, ...], None] = {}
        for item, names in self.config.groups:
            ops = tuple(ALIASES.get(name, name) for name in names)
            strange = [name for name in ops if name not in GROUPED and name != "BatchNormalization"]
            if strange:
                self.draft.not_said(f"{item.path}: {sentences(names)}: no pattern with {sentences(strange)}")
                continue
            kept = tuple(op for op in ops if op != "BatchNormalization")
            if kept != ops:
                self.draft.not_said(f"{item.path}: BatchNormalization is folded into its producer on import")
            if len(kept) > 1:
                found[kept] = None
        return sorted(found, key=len, reverse=True)

    def fuse(self, chain: tuple[str, ...], kernel: str, setting: Setting) -> None:
        """The fusion of a chain whose head has a kernel; operands that join on the way are ports more."""
        own = next(fusion for fusion in self.draft.fusions if fusion["kernel"] == kernel)
        heads = own["pattern"] if isinstance(own["pattern"], list) else [own["pattern"]]
        pattern, beside = _wrap(heads, chain[1:])
        name = kernel if not beside else f"{kernel}_{'_'.join(op.lower() for op in chain[1:])}"
        where = dict(own["where"])
        said: Any = pattern if len(pattern) > 1 else pattern[0]
        self.draft.fusions.append({"kernel": name, "pattern": said, "where": where})
        if beside:
            self.linear_rows(chain[0], name, setting, dict.fromkeys(beside, ""))

    def chain_of_plain(self, chain: tuple[str, ...], setting: Setting) -> None:
        """A chain that begins with an operator without weights, such as Add, Relu."""
        if not setting.writes:
            return
        binary = FORMS[chain[0]] == "binary"
        head = f"{chain[0]}(a, b)" if binary else f"{chain[0]}(a)"
        pattern, beside = _wrap([head], chain[1:])
        name = "_".join(op.lower() for op in chain)
        self.draft.fusions.append({"kernel": name, "pattern": pattern[0]})
        ports = ["a", *(["b"] if binary else []), *beside]
        for a, _ in dict.fromkeys(self.widths(setting)):
            if not a.is_float:
                x = self.activation(setting, a)
                rules = [{"free_scale": [*ports, "y"]}]
                self.draft.rows.append(RowDraft((name,), dict.fromkeys(ports, x), {"y": x}, rules))

    def plain(self, settings: Mapping[str, Setting]) -> None:
        """Operators without weights: those of one form and one setting share a row."""
        alike: dict[tuple[Form, str], list[str]] = {}
        for op in FORMS:
            if op not in FUSED:
                setting = settings.get(op, self.config.defaults)
                alike.setdefault((FORMS[op], repr(setting)), []).append(op)
        for (form, _), ops in alike.items():
            setting = settings.get(ops[0], self.config.defaults)
            if setting.writes:
                self.written(form, tuple(ops), setting)
            elif form in ("move", "choice"):
                row = plain_row(tuple(ops), "*", "*", one_scale=True)
                row.comment = "no quantizer of their own: results have the encoding of the input"
                self.draft.rows.append(row)
            elif setting.reads and form == "unary":
                for a, _p in dict.fromkeys(self.widths(setting)):
                    if not a.is_float:
                        f32 = self.draft.type("f32", storage="f32")
                        row = RowDraft(tuple(ops), {"x": self.activation(setting, a)}, {"y": f32})
                        self.draft.rows.append(row)
            elif ops[0] in settings:
                self.draft.not_said(f"{sentences(ops)}: results have no quantizer, so they run in float")

    def written(self, form: Form, ops: tuple[str, ...], setting: Setting) -> None:
        """Rows of operators whose results are quantized."""
        for a, p in dict.fromkeys(self.widths(setting)):
            if a.is_float:
                arity = {"binary": ("a", "b"), "select": ("a", "b"), "slope": ("a", "b")}.get(form, ("x",))
                for op in ops:
                    if form in ("unary", "move", "choice", "binary", "slope", "select"):
                        self.draft.rows.append(_float_row(self.draft, op, a, arity))
                continue
            x = self.activation(setting, a)
            if form == "norm":
                w = self.parameter(setting, p, "weight", per_channel=False)
                b = self.parameter(setting, p, "bias", per_channel=False)
                self.norms(ops, x, w, b)
                continue
            row = plain_row(ops, x, x)
            if setting.fixed:
                row.rules = self.fixed_rule(ops[0], setting, a, setting.fixed)
            self.draft.rows.append(row)

    def norms(self, ops: tuple[str, ...], x: str, w: str, b: str) -> None:
        batch = tuple(op for op in ops if op == "BatchNormalization")
        rest = tuple(op for op in ops if op != "BatchNormalization")
        f32 = self.draft.type("f32", storage="f32")
        free = [{"free_scale": ["x", "y"]}]
        if rest:
            when = {"w": "constant", "b": "constant"}
            self.draft.rows.append(RowDraft(rest, {"x": x, "w": w, "b?": b}, {"y": x}, free, when=when))
        if batch:
            when = {"ps": "constant"}
            self.draft.rows.append(RowDraft(batch, {"x": x, "ps*": f32}, {"y": x}, free, when=when))


def _float_row(draft: TargetDraft, kernel: str, width: Width, ports: Sequence[str]) -> RowDraft:
    name = draft.type(f"f{width.bits}", storage=f"f{width.bits}")
    return RowDraft((kernel,), dict.fromkeys(ports, name), {"y": name}, more={"float": f"f{width.bits}"})


def _wrap(heads: Sequence[str], ops: Sequence[str]) -> tuple[list[str], list[str]]:
    """Patterns of operators around others, and the operands that join on the way."""
    beside: list[str] = []
    patterns = list(heads)
    for op in ops:
        if FORMS[op] == "binary":
            beside.append(f"z{len(beside) + 1}")
            patterns = [f"{op}({pattern}, {beside[-1]})" for pattern in patterns]
        else:
            patterns = [f"{op}({pattern})" for pattern in patterns]
    return patterns, beside
