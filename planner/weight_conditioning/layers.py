"""Layers: weights of linear ops as rows, and H, the sum of x x^T over what a row meets in the samples.

A convolution's rows meet patches: the taps of its kernel over the channels of a group, zeros where it pads.
Source: ONNX Conv, Gemm and MatMul.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from planner.calibration.samples import Source
from planner.ir.graph import Graph, Op
from planner.ops.geometry.windows import conv_geometry
from planner.weight_conditioning.activations import activations

Reals = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Patches:
    """The inputs that the rows of a layer multiply: layers with equal ones share an H.

    Attributes:
      value: the layer's input.
      kernel, geometry: of a convolution; empty for a product of matrices.
      groups: of its channels.
    """

    value: str
    kernel: tuple[int, ...] = ()
    geometry: tuple[tuple[int, ...], ...] = ()
    groups: int = 1


def as_rows(op: Op, array: Reals) -> Reals:
    """A weight as `(groups, n_out, n_in)`: what each output of a group sums over is a row."""
    if op.type == "Conv":
        groups = int(op.attributes.get("group", 1))
        return array.reshape(groups, array.shape[0] // groups, -1)
    return (array if op.attributes.get("transB", 0) else array.T)[None]


def from_rows(op: Op, rows: Reals, shape: tuple[int, ...]) -> Reals:
    """The inverse of `as_rows`."""
    if op.type == "Conv":
        return rows.reshape(shape)
    matrix: Reals = rows[0]
    return matrix if op.attributes.get("transB", 0) else matrix.T


def patches_of(graph: Graph, op: Op) -> Patches | None:
    """Return the inputs that the rows of a linear op's weight multiply; None where they are not known."""
    shape, weight = graph.values[op.inputs[0]].shape, graph.values[op.inputs[1]].shape
    if shape is None or weight is None or op.scope or op.inputs[0] in graph.constants:
        return None
    if op.type == "Conv" and all(isinstance(size, int) for size in weight):
        kernel = tuple(size for size in weight[2:] if isinstance(size, int))
        sizes = tuple(size if isinstance(size, int) else 0 for size in shape[2:])
        is_open = not all(isinstance(size, int) for size in shape[2:])
        if is_open and op.attributes.get("auto_pad", "NOTSET").startswith("SAME"):
            return None
        geometry = conv_geometry(op.attributes, sizes, kernel).filled(len(kernel))
        steps = (geometry.strides, geometry.dilations, geometry.pads)
        return Patches(op.inputs[0], kernel, steps, geometry.group)
    if op.type not in ("Gemm", "MatMul") or op.attributes.get("transA", 0) or len(weight) != 2:
        return None
    return Patches(op.inputs[0])


def grams(graph: Graph, samples: Source, wanted: Iterable[Patches]) -> Mapping[Patches, Reals]:
    """H of each of the layers' inputs over the samples, `(groups, n_in, n_in)` in float64.

    One that is NaN or infinite anywhere is missing.
    """
    asked = tuple(dict.fromkeys(wanted))
    found: dict[Patches, Reals] = {}
    for _, arrays in activations(graph, samples, [patches.value for patches in asked]):
        for patches in asked:
            columns = _columns(arrays[patches.value], patches)
            product = (columns @ columns.transpose(0, 2, 1)).astype(np.float64)
            found[patches] = found[patches] + product if patches in found else product
    return {patches: gram for patches, gram in found.items() if np.isfinite(gram).all()}


def _columns(array: Reals, patches: Patches) -> Reals:
    """The inputs that the rows multiply, `(groups, n_in, n_positions)`."""
    array = array.astype(np.float32, copy=False)
    if not patches.kernel:
        return array.reshape(-1, array.shape[-1]).T[None]
    rank = len(patches.kernel)
    strides, dilations, pads = patches.geometry
    around = [(0, 0), (0, 0), *zip(pads[:rank], pads[rank:], strict=True)]
    padded = np.pad(array, around)
    reach = tuple((size - 1) * step + 1 for size, step in zip(patches.kernel, dilations, strict=True))
    windows = np.lib.stride_tricks.sliding_window_view(padded, reach, tuple(range(2, 2 + rank)))
    every = tuple(slice(None, None, step) for step in strides)
    taps = tuple(slice(None, None, step) for step in dilations)
    cut = windows[(slice(None), slice(None), *every, *taps)]
    # (N, C, positions.., taps..) to (C, taps.., N, positions..)
    turned = np.moveaxis(cut, tuple(range(2 + rank, 2 + 2 * rank)), tuple(range(2, 2 + rank)))
    turned = np.moveaxis(turned, 0, 1 + rank)
    channels = array.shape[1] // patches.groups
    size = channels * int(np.prod(patches.kernel))
    return turned.reshape(patches.groups, size, -1)
