"""AIMET's quantsim configuration, read and checked; `aimet` makes a target of it.

Source: AIMET's schema (quantsim_config_schema.py) and the documentation of the file.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Final

from planner.target_exchange.jsontree import Item, read_json

SECTIONS: Final = ("defaults", "params", "op_type", "supergroups", "model_input", "model_output")
CHAIN: Final = 8
GROUPS: Final = 256


@dataclass(frozen=True, slots=True)
class Width:
    """Bits of one entry of `supported_kernels`; of floats where `is_float`."""

    bits: int
    is_float: bool = False


@dataclass(frozen=True, slots=True)
class Setting:
    """The settings of an operator: defaults, overridden by its own entry."""

    reads: bool = False
    writes: bool = False
    symmetric: bool = False
    per_channel: bool = False
    kernels: tuple[tuple[Width, Width | None], ...] = ()
    fixed: tuple[Fraction, Fraction] | None = None
    params: Mapping[str, tuple[bool, bool]] = field(default_factory=dict)

    def param(self, name: str) -> tuple[bool, bool]:
        """Whether a parameter is quantized, and whether symmetrically."""
        return self.params.get(name, self.params["*"])


@dataclass(frozen=True, slots=True)
class Config:
    """A whole file, checked."""

    defaults: Setting
    strict: bool
    unsigned: bool
    hw_version: str
    ops: Mapping[str, Setting]
    groups: tuple[tuple[Item, tuple[str, ...]], ...]
    passes: tuple[str, ...]
    quantized_input: bool


def read_config(text: str, name: str) -> Config:
    """Read and check a configuration."""
    root = read_json(text, name)
    found = root.fields((*SECTIONS, "supergroup_pass_list"), required=SECTIONS)
    heads = ("ops", "params", "strict_symmetric", "unsigned_symmetric", "per_channel_quantization")
    defaults = found["defaults"].fields(
        (*heads, "supported_kernels", "hw_version"), required=("ops", "params")
    )
    ops = defaults["ops"].fields(("is_input_quantized", "is_output_quantized", "is_symmetric"))
    base = Setting(
        reads=_truth(ops, "is_input_quantized"),
        writes=_truth(ops, "is_output_quantized"),
        symmetric=_truth(ops, "is_symmetric"),
        per_channel=_truth(defaults, "per_channel_quantization"),
        kernels=_kernels(defaults.get("supported_kernels")),
        params={"*": _param(defaults["params"], (False, False))},
    )
    params = {key: _param(item, base.params["*"]) for key, item in found["params"].entries()}
    base = replace(base, params={**base.params, **params})
    passes = found.get("supergroup_pass_list")
    inputs = found["model_input"].fields(("is_input_quantized",))
    found["model_output"].fields(("is_output_quantized",))
    return Config(
        defaults=base,
        strict=_truth(defaults, "strict_symmetric"),
        unsigned=_truth(defaults, "unsigned_symmetric"),
        hw_version=defaults["hw_version"].text() if "hw_version" in defaults else "",
        ops={key: _setting(item, base) for key, item in found["op_type"].entries()},
        groups=tuple(_groups(found["supergroups"])),
        passes=tuple(item.text() for item in passes.list(most=GROUPS)) if passes else (),
        quantized_input=_truth(inputs, "is_input_quantized"),
    )


def _truth(fields: Mapping[str, Item], key: str) -> bool:
    return key in fields and fields[key].truth()


def _param(item: Item, base: tuple[bool, bool]) -> tuple[bool, bool]:
    fields = item.fields(("is_quantized", "is_symmetric"))
    quantized, symmetric = fields.get("is_quantized"), fields.get("is_symmetric")
    return quantized.truth() if quantized else base[0], symmetric.truth() if symmetric else base[1]


def _kernels(item: Item | None) -> tuple[tuple[Width, Width | None], ...]:
    if item is None:
        return ()
    entries = item.list()
    if not entries:
        item.fail("is empty", accepted="at least one entry, or no such key")
    found = []
    for entry in entries:
        fields = entry.fields(("activation", "param"), required=("activation",))
        param = fields.get("param")
        found.append((_width(fields["activation"]), None if param is None else _width(param)))
    return tuple(found)


def _width(item: Item) -> Width:
    fields = item.fields(("bitwidth", "dtype"), required=("bitwidth", "dtype"))
    bits = fields["bitwidth"].whole(1, 32)
    is_float = fields["dtype"].text(("int", "float")) == "float"
    if is_float and bits not in (16, 32):
        fields["bitwidth"].fail(f"floats of {bits} bits", accepted="16 or 32")
    return Width(bits, is_float)


def _setting(item: Item, base: Setting) -> Setting:
    switches = ("is_input_quantized", "is_output_quantized", "is_symmetric", "per_channel_quantization")
    fields = item.fields((*switches, "params", "supported_kernels", "encoding_constraints"))
    params = dict(base.params)
    if "params" in fields:
        params |= {key: _param(found, base.param(key)) for key, found in fields["params"].entries()}
    return Setting(
        reads=fields["is_input_quantized"].truth() if "is_input_quantized" in fields else base.reads,
        writes=fields["is_output_quantized"].truth() if "is_output_quantized" in fields else base.writes,
        symmetric=fields["is_symmetric"].truth() if "is_symmetric" in fields else base.symmetric,
        per_channel=(
            fields["per_channel_quantization"].truth()
            if "per_channel_quantization" in fields
            else base.per_channel
        ),
        kernels=_kernels(fields["supported_kernels"]) if "supported_kernels" in fields else base.kernels,
        fixed=_fixed(fields.get("encoding_constraints")),
        params=params,
    )


def _fixed(item: Item | None) -> tuple[Fraction, Fraction] | None:
    if item is None:
        return None
    fields = item.fields(("min", "max"), required=("min", "max"))
    low, high = (Fraction(str(fields[key].number())) for key in ("min", "max"))
    if not low < high or low > 0 or high < 0:
        item.fail(f"from {low} to {high}", accepted="min below max, with 0 between them")
    return low, high


def _groups(item: Item) -> Iterator[tuple[Item, tuple[str, ...]]]:
    for entry in item.list(most=GROUPS):
        ops = entry.fields(("op_list",), required=("op_list",))["op_list"]
        names = tuple(op.text() for op in ops.list())
        if not 2 <= len(names) <= CHAIN:
            ops.fail(f"{len(names)} operators", accepted=f"2 to {CHAIN}")
        yield ops, names
