"""Sub-channel types that are per-axis or per-tensor types in disguise become those.

Per tensor: one scale in all. Per axis: one axis with more than one scale, in blocks of one. Every type of
the module is rewritten: results, arguments, signatures. Source: MLIR pass `normalize-quant-types`.
"""

from xdsl.dialects import builtin, func
from xdsl.ir import Attribute
from xdsl.rewriter import Rewriter

from planner.formats.mlir.types import UniformType, element_of, uniform_of, with_element
from planner.formats.mlir.verbatim_types import WrittenUniform, exact


def normalize_quant_types(module: builtin.ModuleOp) -> None:
    """Rewrite the types of every op of a module."""
    for op in module.walk():
        blocks = [block for region in op.regions for block in region.blocks]
        for value in (*op.results, *(argument for block in blocks for argument in block.args)):
            kind = normalized(value.type)
            if kind != value.type:
                Rewriter.replace_value_with_new_type(value, kind)
        if isinstance(op, func.FuncOp):
            header = op.function_type
            op.properties["function_type"] = builtin.FunctionType.from_lists(
                [normalized(kind) for kind in header.inputs], [normalized(kind) for kind in header.outputs]
            )


def normalized(kind: Attribute) -> Attribute:
    """Give the plainest type that says the same; types that are no sub-channel tensor stay."""
    uniform = uniform_of(kind)
    if uniform is None or uniform.blocks is None or element_of(kind) is kind:
        return kind
    wide = [axis for axis, count in enumerate(uniform.grid) if count != 1]
    if len(wide) > 1 or (wide and dict(uniform.blocks).get(wide[0]) != 1):
        return kind
    plain = WrittenUniform(
        uniform.storage,
        uniform.expressed,
        uniform.scales,
        uniform.zero_points,
        wide[0] if wide else None,
    )
    return with_element(kind, UniformType(exact(plain)))
