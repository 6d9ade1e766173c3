"""Re-verify integer islands: kernels that run in float as floats alone are around them, and multiply nothing.

Source: docs/specification.md, section 11.
"""

from collections.abc import Iterable
from typing import Final

from planner.checker.figures.ranges import Ranges, Step
from planner.checker.kernel_ports import refuse
from planner.ir.graph import LINEAR
from planner.target.records import Target

REASON: Final = "integer island: float kernels alone are around it"
MULTIPLYING: Final = LINEAR | {"Attention", "Einsum", "GRU", "LSTM", "RNN"}


def check_islands(ranges: Ranges, target: Target) -> None:
    """Every kernel that is said to be an island is one.

    Raises:
      PlanInvalid: the target does not ask for it, it multiplies and adds, or something stored is next to it.
    """
    islands = [step for step in ranges.steps if step.kernel.reason == REASON]
    if not islands:
        return
    writers = {port.value: step for step in ranges.steps for port in step.kernel.outputs}
    readers: dict[str, list[Step]] = {}
    for step in ranges.steps:
        for port in step.kernel.inputs:
            readers.setdefault(port.value, []).append(step)
    for step in islands:
        name = step.kernel.name
        if target.islands != "float" or any(op.type in MULTIPLYING for op in step.region.ops):
            accepted = "kernels without products, of targets that say so"
            refuse(name, f"runs in float as an {REASON}; accepted: {accepted}")
        before, behind = [*_far(step, writers, {})], [*_far(step, {}, readers)]
        near = [*before, *behind]
        # What a row with float results hands on is as float as what a kernel in float does, and what a
        # kernel reads that quantizes it at run time.
        near_rows = [(other, other.served.row) for other in before if other.served]
        integers = [other for other, row in near_rows if not (row.hands_on_floats or row.dynamic)]
        integers += [other for other in behind if other.served and not other.served.row.dynamic]
        stored = next(iter(integers), None)
        if stored is not None or not near:
            beside = f"{stored.kernel.name!r} is stored" if stored else "no kernel is"
            refuse(name, f"runs in float as an {REASON}, and {beside} there; accepted: its row")


def _far(start: Step, writers: dict[str, Step], readers: dict[str, list[Step]]) -> Iterable[Step]:
    """The kernels that compute on one side of one, past those that move data."""
    seen, waiting = {id(start)}, [start]
    while waiting:
        step = waiting.pop()
        names = step.kernel.inputs if writers else step.kernel.outputs
        others = [writers[port.value] for port in names if port.value in writers] if writers else []
        others += [other for port in names for other in readers.get(port.value, ()) if port.value]
        for other in others:
            if id(other) in seen:
                continue
            seen.add(id(other))
            if other.moves:
                waiting.append(other)
            else:
                yield other
