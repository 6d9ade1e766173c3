"""Meaning of each field of a target file, with an example: for the JSON Schema, and for docs.

Keys are `Model.field` of `schema`, fields by the name in the file; descriptions that stand at the field
itself are not repeated. A test asks for a description and an example of every field.
"""

from collections.abc import Mapping
from typing import Any, Final

FIELDS: Final[Mapping[str, tuple[str, Any]]] = {
    "AccumulatorScaleModel.of": ("Ports whose scales are multiplied.", ["x", "w"]),
    "AccumulatorScaleModel.port": ("The accumulator port, a bias.", "b"),
    "CaseModel.expect": ("", {"kernels": {"concat": 1}, "rescales": 0}),
    "CaseModel.name": ("", "concat unifies its inputs"),
    "CostsModel.bit_price": ("Price of a lost bit, per element.", 2.0),
    "CostsModel.free_bits": ("Bits a value may lose for nothing.", 0.5),
    "CostsModel.max_bits_lost": ("Most bits a value may lose; null is no limit.", 2),
    "CostsModel.max_clip": ("Largest share of a range that may be cut off.", 0.01),
    "CostsModel.wanted_db": (
        "Least dB that rounding at a row's ports leaves at the consumers of a value; null: no bound.",
        25,
    ),
    "CostsModel.wanted_float": ("Whether a kernel runs in float where no row leaves `wanted_db`.", True),
    "DefaultsModel.bias": ("Type of accumulator ports that a row leaves open.", "i32"),
    "DefaultsModel.duplicate_constants": (
        "Whether a constant may be stored once in each type that its consumers need.",
        True,
    ),
    "DefaultsModel.asked_widths": ("", False),
    "DefaultsModel.unsigned": ("", False),
    "DefaultsModel.islands": (
        "Whether a kernel without multiply-adds runs in float between float kernels.",
        "float",
    ),
    "DefaultsModel.on_no_kernel": ("How a kernel that no row serves is treated.", "float"),
    "DefaultsModel.port": ("", "a8"),
    "DefaultsModel.when": ("", {"x.rank": "<= 4"}),
    "DefaultsModel.work": ("", {"mac": 0.014, "element": 0.15}),
    "DefaultsModel.requantize": ("Integer arithmetic of rows that do not say.", "tosa_double"),
    "DefaultsModel.rescale_single_consumer": ("Whether a rescale serves one consumer only.", False),
    "DeriveModel.port": ("The port that is decided.", "y"),
    "DeriveModel.scale": ("", "x.scale * 2 ** -7"),
    "DeriveModel.zero_point": ("A number or an expression.", "-128"),
    "Document.apiVersion": ("Version of this format.", "planner/v1"),
    "Document.blocks": (
        "Fusions of norms and activations, recognised whole or not at all.",
        [{"kernel": "Swish", "pattern": "Product(x, Sigmoid(Product(1, x)))"}],
    ),
    "Document.costs": ("The price of lost bits.", {"bit_price": 2.0, "max_clip": 0.01}),
    "Document.defaults": (
        "Defaults of the rows.",
        {"port": "a8", "on_no_kernel": "float"},
    ),
    "Document.extends": (
        "Target to lay this one over: a shipped name, or a file beside it; of several the last on top.",
        "litert-int8",
    ),
    "Document.engines": (
        "Engines that rows run on, where the device has several.",
        {"names": ["npu", "cpu"], "crossing": 2.0},
    ),
    "Document.files": ("Files that the device's compiler reads.", {"opset": [13, 17]}),
    "EnginesModel.crossing": ("", 2.0),
    "EnginesModel.one_way": ("", True),
    "Document.float_work": ("Work of kernels that run in float.", {"mac": 1, "element": 1}),
    "Document.fusions": (
        "Which ops of the model one kernel takes; most ops first, then in order.",
        [{"kernel": "conv2d", "pattern": "Relu?(Conv(x, w, b?))", "where": {"w": "constant"}}],
    ),
    "Document.id": ("Name of the target.", "my-npu"),
    "Document.kernels": (
        "The table: kernels, the types of their ports, and the rules between them; in order of preference.",
        [{"kernel": "MaxPool", "in": {"x": "a8"}, "out": {"y": "a8"}, "rules": [{"same_scale": ["x", "y"]}]}],
    ),
    "Document.kind": ("Kind of this document.", "Target"),
    "Document.legalize": (
        "How regions of coarser kernels than the device's are treated.",
        [{"kernel": "attention", "into": ["matmul", "Softmax"]}],
    ),
    "Document.mode": ("Fixed kernels, or code generated from integer primitives.", "fixed"),
    "Document.op_groups": ("Ops that share rows.", {"view": ["Reshape", "Flatten"]}),
    "Document.parts": (
        "Trees that patterns of `blocks` name as `$NAME`, each with the ways to write it.",
        {"bell": ["Erf(Product(0.7071067812, x))", "Tanh($cubic)"]},
    ),
    "Document.rescale": ("Rescales between kernels, and their prices.", {"cost": {"requantize": 2.0}}),
    "Document.tests": (
        "Small models and expectations of their plans.",
        [{"name": "t", "model": "y = Relu(x) : f32[8] {0, 1}", "expect": {"kernels": {"Relu": 1}}}],
    ),
    "Document.title": ("A line for people.", "My NPU, revision B"),
    "Document.types": (
        "Port types by name.",
        {"a8": {"storage": "i8"}, "w8c": {"storage": "i8", "granularity": "axis", "symmetric": True}},
    ),
    "Document.version": ("Version of the content, SemVer.", "1.0.0"),
    "Document.work_unit": ("A word for the unit of work, in reports.", "cycles"),
    "ExpectModel.error": ("", "no row"),
    "ExpectModel.fully_quantized": ("", True),
    "ExpectTypeModel.per": ("", "axis"),
    "FixedScaleModel.port": ("The port that is decided.", "y"),
    "FixedScaleModel.zero_point": ("In stored units.", -128),
    "FnModel.args": ("Handed to the function.", {"steps": 4}),
    "FnModel.name": ("Name of the function, or module:name.", "my_targets:npu_special"),
    "FreeScaleModel.ports": ("Ports whose scales are free; all of them without any.", ["x", "y"]),
    "BlockModel.kernel": ("Name of the kernel, that of the ONNX operator where there is one.", "Gelu"),
    "BlockModel.pattern": ("Tree of ops; or several.", "Product(0.5, x, Add($bell, 1))"),
    "BlockModel.remove": ("Delete the inherited block of this pattern.", True),
    "BlockModel.where": ("Predicates that must hold.", {"w": "constant"}),
    "FusionModel.kernel": ("Name of the kernel, the target's own.", "conv2d"),
    "FusionModel.pattern": (
        "Tree of ops, scope:GLOB, function:DOMAIN.NAME or linear_chain; or several.",
        "Concat(xs*)",
    ),
    "FusionModel.remove": ("", True),
    "FusionModel.where": ("Predicates that must hold.", {"w": "constant", "Conv.group": 1}),
    "GroupModel.group": ("Name of the group.", "view"),
    "MultiplierScaleModel.of": ("Ports whose scales are multiplied.", ["x", "w"]),
    "MultiplierScaleModel.out": ("The result.", "y"),
    "MultiplierScaleModel.range": ("", ["2 ** -32", 1]),
    "RescaleCostModel.clamp": ("Another range of one storage.", 0.1),
    "RescaleCostModel.dequantize": ("Integer to float.", 1.0),
    "RescaleCostModel.narrow": ("Fewer bits.", 0.5),
    "RescaleCostModel.quantize": ("Float to integer.", 1.0),
    "RescaleCostModel.requantize": ("Another scale.", 1.0),
    "RescaleCostModel.widen": ("More bits.", 0.5),
    "RescaleCostModel.zero_point": ("Another zero point or sign.", 0.25),
    "RescaleModel.allowed": ("Whether anything may be rescaled or cast between kernels.", True),
    "RescaleModel.cost": ("Price per element of each kind.", {"requantize": 1.0, "zero_point": 0.25}),
    "MultiplierModel.rounding": ("", "half_away"),
    "MultiplierModel.too_small": ("", "zero"),
    "AccumulatorModel.overflow": ("", "wrap"),
    "RowModel.axis": ("", {"w": "out_channel"}),
    "RowModel.computes": ("", True),
    "RowModel.float": ("", "bf16"),
    "RowModel.in": ("", {"x": "a8", "w": "w8c", "b?": "b32"}),
    "RowModel.out": ("", {"y": "a8"}),
    "RemoveModel.storage": ("", "i16"),
    "RowModel.remove": ("", True),
    "RowModel.requantize": ("", "tosa_double"),
    "RowModel.rules": ("Rules between the ports.", [{"same_scale": ["x", "y"]}]),
    "RowModel.work": (
        "Work of the device by this row, which `search` minimises.",
        {"mac": 0.0625, "element": 0.25},
    ),
    "RowModel.when": ("", {"x.rank": 4, "min_bits": {"x": 9}}),
    "RuleModel.derive": (
        (
            "The port's parameters are computed from others'. A result that clips is a warning. Without a "
            "result (a scale beyond float32, a division by zero) the kernel takes the next row. Rules may "
            "use each other's results as long as some scales satisfy all; else it is a conflict (lint L036)."
        ),
        {"port": "y", "scale": "x.scale / 4"},
    ),
    "RuleModel.fixed_scale": (
        "The port has this scale and zero point; a warning says how much they clip above `max_clip`.",
        {"port": "y", "scale": "1/256", "zero_point": -128},
    ),
    "RuleModel.fn": (
        "A Python function given to `load_target(functions=...)` or `--functions`.",
        "my_targets:npu_special",
    ),
    "RuleModel.free_scale": ("Scales are free; the kernel rescales inside.", ["x", "y"]),
    "RuleModel.multiplier_accumulator_scale": (
        "The port (a bias) has the product of others' scales and zero point 0, and needs no range.",
        {"port": "b", "of": ["x", "w"]},
    ),
    "RuleModel.multiplier_scale": (
        "The kernel multiplies, with one multiplier per channel that is kept within the device's range.",
        {"out": "y", "of": ["x", "w"]},
    ),
    "RuleModel.requires": (
        (
            "A condition over `PORT.scale`, `PORT.zero_point`, `PORT.qmin` and `PORT.qmax`, for limits of "
            "the arithmetic. A kernel that does not meet it takes the next row, or runs in float. A float "
            "port meets it; each scale of a port has to."
        ),
        "max(a.scale, b.scale) >= 1/256",
    ),
    "RuleModel.same_storage": ("The ports that take any storage have one; scales are their own.", ["x", "y"]),
    "RuleModel.same_scale": ("The ports have one scale and zero point.", ["xs", "y"]),
    "SameScaleModel.direction": ("Side whose ranges count.", "both"),
    "SameScaleModel.ports": ("The ports that share.", ["xs", "y"]),
    "SameScaleModel.prefer": (
        "Range that the scale holds: the hull, the widest, or that of the first port.",
        "hull",
    ),
    "TypeModel.block_size": ("", [32, 64, 128]),
    "TypeModel.granularity": ("", "axis"),
    "TypeModel.power_of_two": ("", True),
    "TypeModel.scale_max": ("", "1/8"),
    "TypeModel.scales": ("", "f16"),
    "TypeModel.short_block": ("", True),
    "TypeModel.symmetric": ("", True),
    "TypeModel.weight_bits_effective": ("", 7),
    "TypeModel.weight_pairs": ("", 128),
    "WorkModel.byte": ("", 0.1),
    "WorkModel.element": ("", 0.25),
    "WorkModel.mac": ("", 0.0625),
    "WorkModel.mac_unsigned": ("", 0.125),
}
"""Description ("" where the field has its own) and an example."""
