"""Records of a target: a table `<kernel, signature> -> rules`, frozen.

No YAML here (that is `load`), no graph. A row's ports are in order; a variadic port stands for all
remaining ports of its side. Source: MLIR quantization RFC, "Target Constraints"; docs/targets/reference.md.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Final, Literal, TypeAlias

from planner.errors import TargetError
from planner.ir.types.held_pins import Storages
from planner.ir.types.qtypes import FloatType, Storage, Uniform

PortId: TypeAlias = tuple[Literal["in", "out"], int]
DYNAMIC_BITS: Final = 16
ASKED: Final = "asked"
"""The predicate of rows that serve on request alone."""
Granularity: TypeAlias = Literal["tensor", "axis", "block"]


@dataclass(frozen=True, slots=True)
class PortType:
    """The types that one port accepts.

    Attributes:
      storage: integer (or float8) storage; None is the wildcard `*`; a FloatType runs there in that float.
      granularity: one scale per tensor, per slice of the row's axis, or per block of `block_size`.
      symmetric: zero point 0.
      power_of_two, scale_min, scale_max, zero_point: demands of the device on the parameters.
      weight_bits_effective: bits of a weight that the arithmetic may use without saturating inside.
      weight_pairs: the most that two weights that follow each other in a sum add up to, in steps.
      short_block: whether the last block may be shorter than the others, where no size divides.
      sparsity: (n, m): of m consecutive weights along the dimension that is summed at most n are not 0.
      scales: what the scales of blocks are stored in: a key of `ir.types.scales.HELD`.
      even: a range takes an even number of steps, so that both ends of one around 0 are exact. No row says
        it: the planner does, of values that are plus or minus a number.
    """

    storage: Storage | FloatType | None = None
    granularity: Granularity = "tensor"
    symmetric: bool = False
    power_of_two: bool = False
    scale_min: float | None = None
    scale_max: float | None = None
    zero_point: int | None = None
    block_size: tuple[int, ...] = ()
    weight_bits_effective: int | None = None
    weight_pairs: int | None = None
    short_block: bool = False
    sparsity: tuple[int, int] | None = None
    scales: str = "f32"
    even: bool = False

    @property
    def is_wildcard(self) -> bool:
        """Whether any storage will do."""
        return self.storage is None

    def __str__(self) -> str:
        if self.storage is None:
            return "*"
        marks = [] if self.granularity == "tensor" else [f"per {self.granularity}"]
        marks += ["symmetric"] if self.symmetric else []
        marks += [f"{self.sparsity[0]}:{self.sparsity[1]} sparse"] if self.sparsity else []
        return " ".join([str(self.storage), *marks])


_F32: Final = PortType(FloatType("f32"))


@dataclass(frozen=True, slots=True)
class PortPattern:
    """One entry of a signature: the author's port name, and the types it accepts."""

    name: str
    type: PortType
    optional: bool = False
    variadic: bool = False


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule of a row: a shorthand of `RULES` (`same_scale`, ...) with its arguments, as written."""

    kind: str
    args: Mapping[str, Any]
    source: str = ""


@dataclass(frozen=True, slots=True)
class WorkRates:
    """Work of a kernel on a device, in elements requantized: what searches minimise, and plans do not.

    Attributes:
      mac: of a multiply-accumulate; None is `bits_a x bits_w / 1024`.
      mac_unsigned: the same where the second operand is stored unsigned; None is `mac`.
      element: of an element read or written; None is `bits / 32`.
      byte: of a byte of weights; None is 0.
    """

    mac: float | None = None
    element: float | None = None
    byte: float | None = None
    mac_unsigned: float | None = None


@dataclass(frozen=True, slots=True)
class PartialSums:
    """Sums of so many products in a storage of their own, on the way into the accumulator."""

    storage: Storage
    products: int


@dataclass(frozen=True, slots=True)
class LookupTable:
    """A function of one tensor from entries at equal distances.

    Attributes:
      low, high: reals of the first and last entry, beyond which these hold; None: the input's whole storage.
      interpolate: bits of the place between two entries; 0 takes the nearest, half up.
    """

    entries: int
    low: float | None = None
    high: float | None = None
    interpolate: int = 0


@dataclass(frozen=True, slots=True)
class DynamicRange:
    """How a kernel quantizes its first input while it runs, by the range of what it reads.

    Attributes:
      per_token: a scale for the numbers along the last axis, not one for the tensor.
      per_batch: a scale and a zero point for each slice along the first axis.
      symmetric: zero point 0, and as many integers below it as above.
    """

    storage: Storage
    per_token: bool = False
    symmetric: bool = False
    per_batch: bool = False

    @property
    def per(self) -> str:
        """Whose numbers share a scale: a `token`'s, a `batch` entry's or the `tensor`'s."""
        return "token" if self.per_token else "batch" if self.per_batch else "tensor"

    def __post_init__(self) -> None:
        if self.storage.float_name or self.storage.bits > DYNAMIC_BITS:
            raise TargetError(f"dynamic takes integers of up to {DYNAMIC_BITS} bits, not {self.storage}")
        if self.symmetric and not self.storage.signed:
            raise TargetError(f"symmetric needs signed storage, {self.storage} has none")
        if self.per_token and not self.symmetric:
            raise TargetError("a zero point per token is nothing integer products have: say symmetric: true")


Reader: TypeAlias = Literal["any", "finn", "onnxruntime", "openvino", "qnn", "tensorrt"]
READERS: Final = frozenset({"any", "finn", "onnxruntime", "openvino", "qnn", "tensorrt"})
ExportFormat: TypeAlias = Literal[
    "encodings",
    "encodings-0.6.1",
    "encodings-2.0.0",
    "finn",
    "hls4ml",
    "litert",
    "mlir",
    "mlir-casts",
    "onnx-integer",
    "onnx-matmulnbits",
    "onnx-qcdq",
    "onnx-qdq",
    "onnx-qoperator",
    "onnx-qoperator-clip",
    "qonnx",
    "stablehlo",
    "stablehlo-int",
    "tosa",
]
"""Formats that plans are written in: keys of `planner.formats.table`, which brings onnx; a test compares."""
Overflow: TypeAlias = Literal["refuse", "saturate", "wrap"]


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the table: a kernel's signature and the rules between its ports.

    Attributes:
      axis: per port name, the quantized axis: a number, or a role such as `out_channel`.
      when: predicates by name, enforced when rows are chosen (`predicates.failing`).
      requantize: integer arithmetic of this row (docs/specification.md, section 8), or the text of an
      `ir.arithmetic`
        Multiplier.
      accumulator: storage of the accumulator, checked against the actual weights.
      overflow: what becomes of sums that may not fit it: the row is left, or the sum saturates or wraps.
      partial: sums of a few products that have to fit a storage of their own.
      table: the function is looked up in.
      dynamic: the first input, float32 in the plan, is quantized so while the kernel runs.
      computes: True denies that a same_scale row merely moves data.
      float: run this kernel in that float.
      work: of the device where it runs by this row.
      runs_on: the engine, "" for the first or only one.
      source: `file:line`.
      mark: tells rows of one kernel apart whose lines are equal (inherited, or on one line); else "".
    """

    kernel: str
    inputs: tuple[PortPattern, ...]
    outputs: tuple[PortPattern, ...]
    rules: tuple[Rule, ...] = ()
    axis: Mapping[str, int | str] = field(default_factory=dict)
    when: Mapping[str, Any] = field(default_factory=dict)
    requantize: str = "float32_even"
    accumulator: Storage | None = None
    overflow: Overflow = "refuse"
    partial: PartialSums | None = None
    table: LookupTable | None = None
    dynamic: DynamicRange | None = None
    computes: bool = False
    float: str | None = None
    work: WorkRates = field(default_factory=WorkRates)
    runs_on: str = ""
    source: str = ""
    mark: str = ""

    @property
    def is_on_request(self) -> bool:
        """Whether it serves only kernels that request it (`when: {asked: true}`)."""
        return self.when.get(ASKED) is True

    @property
    def is_dynamic_at_will(self) -> bool:
        """Whether a request for run-time quantization alone gets this row: no condition on facts' bits."""
        return self.dynamic is not None and not any(key.endswith(".bits") for key in self.when)

    @property
    def hands_on_floats(self) -> bool:
        """Whether it computes on stored integers and its results are float32: a row with float results."""
        reads = self.inputs[:1] if self.float is None else ()
        stored = any(not isinstance(port.type.storage, FloatType) for port in reads)
        return stored and bool(self.outputs) and all(port.type == _F32 for port in self.outputs)

    @property
    def reads_table(self) -> bool:
        """Whether only a constant is quantized, and its results are float32."""
        return self.hands_on_floats and self.when.get(self.inputs[0].name) == "constant"

    @property
    def key(self) -> str:
        """`kernel@line`, the key of this row in a plan file."""
        return f"{self.kernel}@{self.source.rpartition(':')[2]}{self.mark}"


@dataclass(frozen=True, slots=True)
class Engines:
    """Engines of a device; without names there is one, which needs none.

    Attributes:
      names: the preferred one first; kernels in float run on the last.
      crossing: work of an element that another engine reads, in elements requantized.
      one_way: whether what reads from a later engine runs there too.
    """

    names: tuple[str, ...] = ()
    crossing: float = 1.0
    one_way: bool = False

    def of(self, row: Row | None) -> str:
        """The engine of a kernel that a row serves, or none."""
        if row is None:
            return self.names[-1] if self.names else ""
        return row.runs_on or (self.names[0] if self.names else "")


@dataclass(frozen=True, slots=True)
class Files:
    """Files that a device's compiler reads.

    Attributes:
      opset: the least and the greatest version of ONNX's operators; None: any.
      layout: where images have their channels; None: either.
      formats: the formats that the device's own tools read; of a single one, plans keep to what it can write.
      sizes: `fixed` where the compiler takes no dimension whose size it does not know; None: any.
      runtime: the engine installed beside the planner that the device is; figures of files are what that
        engine computes on this machine. None: another device, whose files this processor must not spoil.
      reader: the engine that ONNX files with pairs of QuantizeLinear and DequantizeLinear are written for;
        None: onnxruntime's CPU provider.
    """

    opset: tuple[int, int] | None = None
    layout: Literal["channels_first", "channels_last"] | None = None
    formats: tuple[str, ...] = ()
    sizes: Literal["fixed"] | None = None
    runtime: Literal["onnxruntime"] | None = None
    reader: Reader | None = None

    def __post_init__(self) -> None:
        if self.layout not in (None, "channels_first", "channels_last"):
            raise TargetError(f"layout {self.layout!r} is neither channels_first nor channels_last")
        if self.sizes not in (None, "fixed"):
            raise TargetError(f"sizes {self.sizes!r} are not fixed; accepted: fixed")
        if self.runtime not in (None, "onnxruntime"):
            raise TargetError(f"runtime {self.runtime!r} is not installed here; accepted: onnxruntime")
        if self.reader is not None and self.reader not in READERS:
            raise TargetError(f"reader {self.reader!r} is not known; accepted: {', '.join(sorted(READERS))}")
        if self.opset is None:
            return
        if len(self.opset) != 2 or not all(type(end) is int and end > 0 for end in self.opset):
            raise TargetError(f"opset {list(self.opset)} is not the least and the greatest version")
        if self.opset[0] > self.opset[1]:
            raise TargetError(f"opsets from {self.opset[0]} to {self.opset[1]}; the lesser first")

    @property
    def is_for_cpu_provider(self) -> bool:
        """Whether ONNX files need the guards against the optimizations of onnxruntime's CPU provider."""
        return self.reader in (None, "onnxruntime")

    def to_write(self, requested: Collection[str]) -> tuple[str, ...]:
        """The formats that a plan has to be written in: those requested, else the device's only one."""
        return tuple(requested) or (self.formats if len(self.formats) == 1 else ())


@dataclass(frozen=True, slots=True)
class Fusion:
    """Source ops that become one logical kernel: patterns (text, see `patterns`), and predicates.

    Attributes:
      parts: named trees that the patterns use.
      whole: of a block: whether it is one where no row serves it.
    """

    kernel: str
    patterns: tuple[str, ...]
    where: Mapping[str, Any] = field(default_factory=dict)
    source: str = ""
    parts: tuple[tuple[str, tuple[str, ...]], ...] = ()
    whole: bool = False


UNLIMITED: Final = ("max_bits_lost", "wanted_db")
"""Costs that may be None: without a limit."""


@dataclass(frozen=True, slots=True)
class Costs:
    """Prices per element of a rescale by kind and of lost bits (specification, section 5); floors of rows.

    Attributes:
      wanted_db: the least SQNR (dB) at a value's consumers after rounding at a row's ports, where it was
        measured; None: no limit. Source: docs/specification.md, section 11.
      wanted_float: whether a kernel runs in float where no row leaves as much.
    """

    requantize: float = 1.0
    zero_point: float = 0.25
    clamp: float = 0.1
    widen: float = 0.5
    narrow: float = 0.5
    quantize: float = 1.0
    dequantize: float = 1.0
    bit_price: float = 2.0
    free_bits: float = 0.5
    max_clip: float = 0.01
    max_bits_lost: float | None = None
    wanted_db: float | None = None
    wanted_float: bool = False


@dataclass(frozen=True, slots=True)
class PortView:
    """One port as a QuantFn sees it.

    Attributes:
      id: ("in" | "out", index).
      name: the port's name in the row (a variadic tail shares one).
      spec: the row's type for it, the wildcard already resolved.
      type: the port's type after rescale; None while undecided or float.
      lo, hi: the range in reals the port has to carry; None where unknown.
    """

    id: PortId
    name: str
    spec: PortType
    type: Uniform | None = None
    lo: float | None = None
    hi: float | None = None


QuantFn: TypeAlias = Callable[
    [tuple[PortView, ...], tuple[PortView, ...], Mapping[str, Any]], Mapping[PortId, Uniform]
]


@dataclass(frozen=True, slots=True)
class TestCase:
    """A test in the target file: a model in the small text form, and the expectations on its plan.

    Attributes:
      expect: as written, by key (`schema.ExpectModel`).
      source: `file:line` of the test.
      model_line: line of the file at which the model's text begins.
    """

    __test__ = False

    name: str
    model: str
    expect: Mapping[str, Any]
    source: str = ""
    model_line: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Target:
    """A device: its rows by kernel name in order of preference, its fusions, its prices.

    Attributes:
      file: the name in `Row.source`.
      document: the resolved YAML (after `extends`) as plain data; `digest` is its sha256.
      functions: QuantFns for `fn` rules, by name.
      columns: column (from 1) at which the row, rule, fusion or test of a `file:line` starts.
      texts: the files it was read from, by name, for messages that quote.
      places: file, line and column of `types.NAME`, `op_groups.NAME` and `defaults`.
      groups: op groups that rows take.
      float_work: work of kernels in float.
      work_unit: the word for the unit of work in reports; "" is an element requantized.
      legalize: kernels that a region of a coarser kernel becomes, by that kernel.
      engines: that its rows run on.
      asked_widths, unsigned: whether wildcards that nothing else decides take the width that the model
        requests, and no sign where they need none.
      storages: bits, sign and float of those that results have; None: any (`rules.named_storages`).
      files: that its compiler reads.
      blocks: fusions of norms and activations; one that rows do not serve wholly runs in float as a whole.
      requantize: arithmetic of rows that name none, and of borders of bodies.
    """

    id: str
    version: str
    title: str
    mode: Literal["fixed", "codegen"]
    file: str
    rows: Mapping[str, tuple[Row, ...]]
    fusions: tuple[Fusion, ...]
    costs: Costs
    default_port: PortType
    on_no_kernel: Literal["float", "error"] = "float"
    rescale_allowed: bool = True
    rescale_single_consumer: bool = False
    duplicate_constants: bool = True
    asked_widths: bool = False
    unsigned: bool = False
    islands: Literal["float", "integer"] = "integer"
    bias: str = "i32"
    tests: tuple[TestCase, ...] = ()
    document: Mapping[str, Any] = field(default_factory=dict)
    digest: str = ""
    functions: Mapping[str, QuantFn] = field(default_factory=dict)
    columns: Mapping[str, int] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict, repr=False)
    places: Mapping[str, tuple[str, int, int]] = field(default_factory=dict)
    groups: frozenset[str] = frozenset()
    legalize: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    float_work: WorkRates = field(default_factory=WorkRates)
    work_unit: str = ""
    engines: Engines = field(default_factory=Engines)
    storages: Storages = None
    files: Files = field(default_factory=Files)
    requantize: str = "float32_even"
    blocks: tuple[Fusion, ...] = ()

    def __repr__(self) -> str:
        rows = sum(map(len, self.rows.values()))
        return f"<Target {self.id} {self.version}: {rows} rows for {len(self.rows)} kernels>"


@lru_cache(maxsize=32)
def without_formats(target: Target) -> Target:
    """Return a target whose plans need not be written: only its rows matter, not files.

    The same one again for the same target: what is read from its fusions and rows is kept by the target.
    """
    return replace(target, files=replace(target.files, formats=()))
