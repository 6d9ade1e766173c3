"""The bits that sums of products need: of the actual weights, or of all that two activations can hold.

Sums are counted over the weights of one scale: per output channel, or per block where a block has a scale.
Averages, additions and other kernels without products are left out. Source: docs/specification.md, section 6.
"""

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from planner.ir.arithmetic.slices import slice_sums
from planner.ir.mapped import let_go
from planner.ir.types.qtypes import Uniform
from planner.ir.types.ranges import farthest
from planner.propagation.network.constant_ranges import observed
from planner.propagation.network.ports import Kernel, Port, present
from planner.propagation.parameters.typed import Typing
from planner.propagation.selection.choice import follows_factors
from planner.target.ports.axes import channel_axis, linear_op, summed_terms

Reals: TypeAlias = npt.NDArray[np.float64]


def accumulator_bits(network: Typing, kernel: Kernel) -> tuple[int | None, int | None]:
    """(bits of the widest sum of a linear kernel, the channel that needs them); None where it has no sum.

    Every partial sum of |weight| x |input| plus the bias fits that many signed bits; both less their zero
    points, so a device that adds up what is stored and takes zero points off later needs more. So does one
    that keeps bits below a step of the products, for a bias on a grid of its own.
    """
    op = linear_op(kernel.choice.region.ops)
    ports = present(network, kernel.inputs)
    if op is None or kernel.choice.row is None or len(ports) < 2:
        return None, None
    x, w = network.types[ports[0].id], network.types[ports[1].id]
    if x is None or w is None:
        return None, None
    if network.values[ports[1].value].constant:
        sums = weight_sums(network, kernel, ports[1], w)
    else:
        terms = summed_terms(network.graph, op)
        sums = None if terms is None else np.array([float(terms * farthest(w))])
    if sums is None:
        return None, None
    sums = sums * farthest(x)
    added = network.types[ports[2].id] if len(ports) > 2 else None
    if added is not None and not w.blocks:
        bias = network.graph.constants.get(network.values[ports[2].value].name)
        if bias is not None and bias.array is not None and bias.array.size:
            numbers = np.abs(bias.array.reshape(-1))
            if follows_factors(kernel.choice, ports[2].name):
                steps = np.rint(numbers / np.asarray(added.scales))
            else:
                steps = np.ceil(numbers / (x.scale * np.asarray(w.scales)))
            alike = not network.values[ports[1].value].constant and network.is_derived(ports[2])
            if alike or steps.size == sums.size:
                sums = sums + steps
    if sums.size == 0:
        return 1, None
    channel = int(np.argmax(sums))
    named = network.values[ports[1].value].constant and not w.blocks
    return int(sums[channel]).bit_length() + 1, channel if named else None


def weight_sums(network: Typing, kernel: Kernel, port: Port, kind: Uniform) -> Reals | None:
    """Sums of |stored weight| that share a scale; None of weights without numbers or cut along their sum."""
    constant = network.graph.constants.get(network.values[port.value].name)
    data = constant.array if constant is not None else None
    if data is None:
        return None
    axis = None if kind.blocks else channel_axis(kernel.choice.region, network.graph)
    if not kind.blocks and kind.axis not in (None, axis):
        return None
    sums = slice_sums(data, kind, axis, cut=observed(network, port) is not None)
    let_go(data)
    return sums


def partial_bits(network: Typing, kernel: Kernel, products: int) -> int | None:
    """Bits that the sum of any so many products of a linear kernel needs, whatever their order.

    None where it has no sum, weights have no numbers, or they have a scale a block.
    """
    op = linear_op(kernel.choice.region.ops)
    ports = present(network, kernel.inputs)
    if op is None or len(ports) < 2:
        return None
    x, w = network.types[ports[0].id], network.types[ports[1].id]
    if x is None or w is None or w.blocks:
        return None
    terms = summed_terms(network.graph, op)
    if not network.values[ports[1].value].constant:
        most = farthest(w) * (products if terms is None else min(products, terms))
        return (most * farthest(x)).bit_length() + 1
    constant = network.graph.constants.get(network.values[ports[1].value].name)
    if constant is None or constant.array is None or not constant.array.size:
        return None
    axis = channel_axis(kernel.choice.region, network.graph)
    if w.axis not in (None, axis):
        return None
    numbers = np.moveaxis(constant.array, axis, 0).reshape(constant.array.shape[axis], -1)
    channels = np.abs(np.rint(numbers / np.reshape(w.scales, (-1, 1))))
    channels = np.minimum(channels, max(-w.storage.qmin, w.storage.qmax))
    first = max(0, channels.shape[1] - products)
    largest = np.partition(channels, first, axis=1)[:, first:] if first else channels
    let_go(constant.array)
    return (int(largest.sum(axis=1, dtype=np.float64).max()) * farthest(x)).bit_length() + 1
