"""Bodies: loops and branches as they stand in a plan, and the values that cross their borders.

The items of a body are its owner's: blocks to write, or stages to run. Nothing here computes or writes.
Source: docs/specification.md, section 5; ONNX If, Loop and Scan; `ir.structure`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from planner.errors import UnsupportedExport
from planner.ir.graph import Op
from planner.ir.structure import BORDERS, Scope
from planner.lowering.blocks import Block
from planner.plans.plan import Plan
from planner.plans.records import PortTyped

Known: TypeAlias = Callable[[str], npt.NDArray[Any] | None]
"""The numbers of a value known before running, None where it is not."""

_PASSING: Final = frozenset({"Cast", "Identity"})
DEFAULT_ARITHMETIC: Final = "float32_even"
"""Of borders, and of kernels, that no row serves."""


@dataclass(frozen=True, slots=True, eq=False)
class Border:
    """The hand-over of a value into a body, out of it, or on from the branch that ran.

    Attributes:
      kind: the type the value has on both sides; None: float.
      arithmetic: of a rescale there, for who runs it.
    """

    op: Op
    kind: PortTyped
    arithmetic: str = ""

    @property
    def source(self) -> str:
        """The value handed over; of a join, see `branch`."""
        return self.op.inputs[0]

    @property
    def value(self) -> str:
        """The name of the value behind the border."""
        return self.op.outputs[0]

    @property
    def body(self) -> str:
        """Path of the body; of a join, name of the kernel that branched."""
        return str(self.op.attributes["body"])

    @property
    def index(self) -> int:
        """Which operand or result of the kernel it is."""
        return int(self.op.attributes["index"])

    @property
    def carried(self) -> int:
        """The operand that a loop's next trip has it as; -1: none."""
        return int(self.op.attributes["carried"])

    def branch(self, index: int) -> str:
        """The value that a join hands on from a branch."""
        return self.op.inputs[1 + index]


@dataclass(frozen=True, slots=True, eq=False)
class Branch:
    """One body of a choice: what enters it, and what it runs."""

    begins: tuple[Border, ...]
    items: tuple[Any, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """A kernel that runs one of two bodies: the first where the condition holds."""

    scope: Scope
    branches: tuple[Branch, ...]
    joins: tuple[Border, ...]

    @property
    def place(self) -> str:
        """The kernel as refusals name it."""
        return f"{self.scope.owner} ({self.scope.type})"

    @property
    def condition(self) -> str:
        """The value that chooses."""
        return self.scope.operands[0]

    def taken(self, known: Known) -> int | None:
        """The branch that runs, where that is known before running."""
        found = known(self.condition)
        return None if found is None else int(not found.reshape(-1)[0])


@dataclass(frozen=True, slots=True, eq=False)
class Cycle:
    """A kernel that runs a body again and again."""

    scope: Scope
    begins: tuple[Border, ...]
    items: tuple[Any, ...]
    ends: tuple[Border, ...]

    @property
    def states(self) -> int:
        """How many values one trip hands to the next; slices come behind them, on both sides."""
        return sum(begin.carried >= 0 for begin in self.begins)

    @property
    def slices(self) -> tuple[Border, ...]:
        """Operands of a Scan that hand every trip another slice; captured values come behind them."""
        if self.scope.type != "Scan":
            return ()
        last = self.states + int(self.scope.attributes["num_scan_inputs"])
        return tuple(begin for begin in self.begins if begin.carried < 0 and begin.index < last)

    @property
    def unchanged(self) -> tuple[Border, ...]:
        """Values that enter every trip as they are."""
        slices = self.slices
        return tuple(b for b in self.begins if b.carried < 0 and b not in slices and not self.is_count(b))

    @property
    def collected(self) -> tuple[Border, ...]:
        """Results with a slice of every trip."""
        return tuple(end for end in self.ends if end.carried < 0)

    def is_count(self, begin: Border) -> bool:
        """Whether it is the number of trips so far."""
        return self.scope.type == "Loop" and begin.index == 0

    def is_condition(self, begin: Border) -> bool:
        """Whether it says that there is another trip."""
        return self.scope.type == "Loop" and begin.index == 1

    def pairs(self, *, is_steady: bool) -> tuple[tuple[Border, Border], ...]:
        """Borders where loop-carried values enter and leave, without a condition that always holds."""
        left = {end.carried: end for end in self.ends if end.carried >= 0}
        return tuple(
            (begin, left[begin.index])
            for begin in self.begins
            if begin.carried >= 0 and not (is_steady and self.is_condition(begin))
        )

    def is_steady(self, known: Known) -> bool:
        """Whether no condition ends it: that of a Loop is given as true, and handed on as it is."""
        given = next((begin for begin in self.begins if self.is_condition(begin)), None)
        made = next((end for end in self.ends if given is not None and end.carried == 1), None)
        if given is None or made is None:
            return True
        first = known(given.source) if given.source else np.asarray(True)
        ops = [op for item in self.items if isinstance(item, Block) for op in item.region.ops]
        passed = {op.outputs[0]: op.inputs[0] for op in ops if op.type in _PASSING}
        name = made.source
        while name in passed:
            name = passed[name]
        last = first if name == given.value else known(name)
        return all(part is not None and bool(part.reshape(-1)[0]) for part in (first, last))

    def axis(self, side: str, index: int, rank: int) -> int:
        """The axis of a slice on a side, `input` or `output`: of a Loop the first, of a Scan what it says."""
        axes = self.scope.attributes.get(f"scan_{side}_axes")
        return int(axes[index - self.states]) % rank if axes else 0

    def is_back(self, side: str, index: int) -> bool:
        """Whether the slices of a side go from the last to the first."""
        ways = self.scope.attributes.get(f"scan_{side}_directions")
        return bool(ways[index - self.states]) if ways else False

    def trips(self, known: Known, shape: Callable[[str], tuple[int, ...]]) -> int | None:
        """How many trips there are, where that is known; a condition may end them earlier."""
        if self.scope.type == "Scan":
            sizes = shape(self.slices[0].source)
            return sizes[self.axis("input", self.slices[0].index, len(sizes))]
        found = known(self.scope.operands[0]) if self.scope.operands[0] else None
        return None if found is None else max(0, int(found.reshape(-1)[0]))

    def check(self, form: str, trips: int | None, *, is_steady: bool) -> None:
        """Refuse what has no fixed size, and what never ends.

        Raises:
          UnsupportedExport: naming the loop, the result and what would be accepted.
        """
        if self.collected and (trips is None or not is_steady):
            raise UnsupportedExport(
                f"{self.place}: {self.collected[0].value!r} has a slice of every trip, and their number is "
                f"known only at run time; {form} accepts a constant number of trips and no other end",
                hint="give the loop a constant number of trips, or use an ONNX format",
            )
        if is_steady and trips is None and not self.scope.operands[0]:
            raise UnsupportedExport(f"{self.place}: nothing ends it", hint="give it a number of trips")

    @property
    def place(self) -> str:
        """The kernel as refusals name it."""
        return f"{self.scope.owner} ({self.scope.type})"


def border_arithmetic(plan: Plan) -> str:
    """The arithmetic of a rescale at the border of a body: that of the rows which serve borders."""
    served = (row.requantize for row in plan.target.rows.values() if row.kernel in BORDERS)
    return next(served, DEFAULT_ARITHMETIC)
