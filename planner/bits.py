"""Bits: one width for all weights and one for all activations, asked of a model in one line.

Each becomes a request for a width (`!quant.any<i4>`) at a weight, or at a value that leaves a kernel of the
target, where the model says nothing itself. A target meets it by the rows of that width; one without such a
row takes the next wider storage or runs in float, and `missed_bits` counts these. Source: docs/library.md.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from planner.errors import InputError, expect
from planner.fusion.fuse import fuse
from planner.ir.expand import expand
from planner.ir.graph import Graph, Region
from planner.ir.types.qtypes import AnyType, Bipolar, FloatType, NoneType, Storage, Uniform
from planner.ops import LINEAR
from planner.plans.plan import Plan
from planner.plans.records import KernelPlan
from planner.target.load import TargetSource, as_target

WEIGHTS: Final = "w"
ACTIVATIONS: Final = "a"
MOST: Final = 16
_ENTRY: Final = re.compile(r"\s*([wa])\s*=\s*(\d{1,2})\s*")
_SAID: Final = (AnyType, Bipolar, FloatType, NoneType, Uniform)


def read_bits(text: str) -> dict[str, int]:
    """Read `w=4,a=8`.

    Raises:
      InputError: another form, or a width outside 2 to 16.
    """
    found: dict[str, int] = {}
    for part in text.split(","):
        entry = _ENTRY.fullmatch(part)
        if entry is None or entry[1] in found:
            raise InputError(f"bits {text:.80}: accepted is w=BITS,a=BITS or one of them, such as w=4,a=8")
        found[entry[1]] = int(entry[2])
    return require_bits(found)


def require_bits(bits: Mapping[str, int]) -> dict[str, int]:
    """Widths by `w` and `a`.

    Raises:
      InputError: another key, or a width outside 2 to 16.
    """
    expect(bits, Mapping, "bits are a mapping such as {'w': 4, 'a': 8}")
    for key, width in bits.items():
        if key not in (WEIGHTS, ACTIVATIONS) or type(width) is not int or not 2 <= width <= MOST:
            raise InputError(f"bits {dict(bits)}: accepted are 'w' and 'a', each with 2 to {MOST} bits")
    return dict(bits)


def with_bits(model: Graph, target: TargetSource, bits: Mapping[str, int]) -> Graph:
    """The model with a width asked of weights and activations that say nothing themselves.

    Weights are the constants of convolutions and matrix products, activations the values that kernels of the
    target hand on; the model's own inputs and outputs keep the target's types.

    Args:
      bits: by `w` and `a`; one may be absent.

    Raises:
      InputError: another key, or a width outside 2 to 16.

    Example:
      >>> model = planner.load_model("examples/digits/digits.onnx")
      >>> asked = planner.with_bits(model, "finn-fpga", {"w": 4, "a": 4})
      >>> str(asked.values["stem/relu_out"].facts[0])
      '!quant.any<i4>'
    """
    wanted = require_bits(bits)
    if not wanted:
        return model
    fused = fuse(expand(model), as_target(target))
    constants = {**fused.constants}
    weights = {op.inputs[1] for op in fused.all_ops() if op.type in LINEAR and op.inputs[1] in constants}
    handed = {name for region in fused.regions for name in region.outputs if name}
    ends = {*model.inputs, *model.outputs}
    asked = {WEIGHTS: weights, ACTIVATIONS: handed - ends - weights}
    values = dict(model.values)
    for key, names in asked.items():
        if key not in wanted:
            continue
        fact = AnyType(_signed(wanted[key]))
        for name in sorted(names & values.keys()):
            value = values[name]
            if value.dtype == "f32" and not any(isinstance(told, _SAID) for told in value.facts):
                values[name] = replace(value, facts=(*value.facts, fact))
    return replace(model, values=values)


def missed_bits(plan: Plan, bits: Mapping[str, int]) -> tuple[str, ...]:
    """A sentence for each width that some quantized kernels of a plan do not have, and how many.

    A width that the model or an annotation requests overrides this one.
    """
    found = []
    regions = {region.name: region for region in plan.graph.regions}
    for key, what, side in ((WEIGHTS, "weights", "weights"), (ACTIVATIONS, "results", "activations")):
        if key not in bits:
            continue
        fact = AnyType(_signed(bits[key]))
        held = (_widths(plan, regions[name], kernel, key, fact) for name, kernel in plan.kernels.items())
        widths = [width for of_kernel in held for width in of_kernel]
        others = sorted({width for width in widths if width != bits[key]})
        if others:
            count = sum(width != bits[key] for width in widths)
            told = ", ".join(map(str, others))
            found.append(
                f"{plan.target.id} holds the {what} of {count} of {len(widths)} kernels in {told} bits: none "
                f"of its kernel variants serves {bits[key]}-bit {side} there"
            )
    return tuple(found)


def _widths(plan: Plan, region: Region, kernel: KernelPlan, key: str, fact: AnyType) -> list[int]:
    """Bits of the weights, or of the results that other kernels read, that a width was asked of."""
    ends = {*plan.graph.inputs, *plan.graph.outputs}
    read = {op.inputs[1] for op in region.ops if op.type in LINEAR} & plan.graph.constants.keys()
    ports = (
        [port for port in kernel.inputs if port.value in read]
        if key == WEIGHTS
        else [port for port in kernel.outputs if port.value not in ends]
    )
    return [
        port.type.storage.bits
        for port in ports
        if isinstance(port.type, Uniform) and fact in plan.graph.values[port.value].facts
    ]


def _signed(bits: int) -> Storage:
    return Storage(bits, True, -(1 << bits - 1), (1 << bits - 1) - 1)
