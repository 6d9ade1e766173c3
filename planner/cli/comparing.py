"""Comparing files with their source: as users run them, with onnxruntime's own optimisations, and in size."""

from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

from planner.cli.console import warn
from planner.errors import ModelError

if TYPE_CHECKING:
    from planner.accuracy.losses import Losses
    from planner.interpreter.compare import Comparison
    from planner.ir.graph import Graph
    from planner.plans.plan import Plan

LOSS: Final = 1.0
"""dB that nobody has to hear of: kernels fused from pairs round single numbers the other way."""
POOR: Final = 20.0
"""dB of the worst output from which on down a plan ends with where it loses them."""
FEW: Final = 4
"""Samples that this is measured on."""
QUICK: Final = 200_000_000
"""Elements of all values times kernels, up to which it takes seconds; beyond, the command for it is told."""


def compare_as_used(graph: "Graph", name: str, data: bytes, samples: str) -> "Comparison":
    """Compare a file in a format with the float model, and warn where the optimisations lose more."""
    import planner

    written = planner.compare(graph, data, samples)
    try:
        used = planner.compare(graph, data, samples, optimisation="all")
    except ModelError as error:
        warn(f"{name} does not load with onnxruntime's optimisations: {error.message}")
        return written
    if not any(_losses(written, used)):
        return used
    reason = ""
    try:
        exact = planner.compare(graph, data, samples, optimisation="all", exact_products=True)
    except ModelError:  # onnxruntime has no kernels of that kind for i8
        exact = used
    if not any(_losses(written, exact)):
        reason = (
            ": this processor adds products of u8 and i8 in 16 bits, which is not exact "
            "(session.x64quantprecision, or weight_bits_effective: 7 in the target, avoid that)"
        )
    for output, before, after in _losses(written, used):
        figures = f"{after:.1f} dB with onnxruntime's optimisations, {before:.1f} without"
        warn(f"{name}: {output} has {figures}{reason}")
    return used


def poor_losses(
    graph: "Graph", ready: "Graph", planned: "Plan", comparisons: "Mapping[str, Comparison]", samples: str
) -> "Losses | None":
    """Where a plan of poor quality loses it, if that is quickly found."""
    import planner
    from planner.calibration.samples import open_samples

    size = sum(value.elements for value in ready.values.values()) * len(planned.kernels_in_order)
    if not is_poor(comparisons) or size > QUICK:
        return None
    few = [dict(feed.arrays) for feed in islice(open_samples(samples, graph).feeds, FEW)]
    return planner.losses(ready, planned, few, reference=graph)


def is_poor(comparisons: "Mapping[str, Comparison]") -> bool:
    """Whether an output of a file that was compared has few dB."""
    return any(comparison.worst_sqnr < POOR for comparison in comparisons.values())


def lost_text(lost: "Losses | None") -> str:
    """Where a plan of poor quality loses it, and the two changes that would help most."""
    from planner.accuracy.told import remedy_lines, sentence

    return "" if lost is None else "\n".join((sentence(lost), *remedy_lines(lost)[:2]))


def bigger(model: str, files: Mapping[str, bytes]) -> Iterator[str]:
    """Warnings of models that are bigger than the file they come from, weights beside it not counted."""
    source = Path(model).stat().st_size if Path(model).is_file() else 0
    for name, data in files.items():
        if model.endswith(".onnx") and name.endswith(".onnx") and len(data) > source > 0:
            yield f"{name} is bigger than {model}: {len(data):,} bytes, not {source:,}"


def _losses(written: "Comparison", used: "Comparison") -> Iterator[tuple[str, float, float]]:
    """Outputs that the optimisations make worse: with its dB as written and as used."""
    for output, quality in used.outputs.items():
        before = written.outputs[output].sqnr
        if quality.sqnr < before - LOSS:
            yield output, before, quality.sqnr
