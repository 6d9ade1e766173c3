"""Remedies: what is done about a row that a kernel cannot keep once numbers are known, and the reasons.

Labels have to be known before anybody can say whether sums fit an accumulator or multipliers lie in their
range. So a plan is tried, and tried again with the remedies that it asks for, each of them for good: a port
grows, a row is left for the next one, a kernel is taken apart. There are finitely many of each, so this ends.
Data only: `propagate` tries, `fit` finds what does not fit, `fusion.split` splits kernels.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from planner.errors import RuleError
from planner.ir.graph import Region
from planner.ir.types.qtypes import Uniform
from planner.plans.plan import Plan
from planner.target.records import PortId


@dataclass(frozen=True, slots=True)
class Left:
    """Why a kernel could not keep a row; `seen`: types at its ports then, as the log tells them."""

    why: str
    seen: str = ""


@dataclass(frozen=True, slots=True)
class Grown:
    """The least scale that a port is to have, and why; `times`: how often it was raised."""

    scale: float
    why: str
    times: int = 1


@dataclass(frozen=True, slots=True)
class Remedies:
    """The remedies so far, by the kernel's name.

    Attributes:
      left: rows by their key.
      let_go: rows by their key that could not be kept with the types that weights had in training, and no
        other row was left: only the width of these weights is requested now, and the rows are tried again.
      grown: ports.
      apart: for a part of a kernel that was taken apart, that one and why no row served it; several where
        the part was one of a part.
    """

    left: Mapping[str, Mapping[str, Left]] = field(default_factory=dict)
    grown: Mapping[str, Mapping[PortId, Grown]] = field(default_factory=dict)
    apart: Mapping[str, tuple[tuple[Region, str], ...]] = field(default_factory=dict)
    let_go: Mapping[str, Mapping[str, Left]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.left or self.grown or self.apart or self.let_go)

    def __or__(self, other: "Remedies") -> "Remedies":
        left = {name: {**self.left.get(name, {}), **rows} for name, rows in other.left.items()}
        grown = {name: {**self.grown.get(name, {}), **ports} for name, ports in other.grown.items()}
        # What grew for the sake of a row has no reason to once the row is left.
        kept = {name: ports for name, ports in self.grown.items() if name not in other.left}
        return Remedies(
            {**self.left, **left},
            {**kept, **grown},
            {**self.apart, **other.apart},
            {**self.let_go, **other.let_go},
        )

    def without(self, names: Collection[str]) -> "Remedies":
        """The remedies of other kernels than these, which are no more."""
        return Remedies(
            {name: rows for name, rows in self.left.items() if name not in names},
            {name: ports for name, ports in self.grown.items() if name not in names},
            {name: whole for name, whole in self.apart.items() if name not in names},
            {name: rows for name, rows in self.let_go.items() if name not in names},
        )

    def letting_go(self, names: Collection[str]) -> "Remedies":
        """Return the remedies in which these kernels give up trained types for the rows they left."""
        rows = {name: left for name, left in self.left.items() if name in names}
        left = {name: left for name, left in self.left.items() if name not in names}
        return replace(self, left=left, let_go={**self.let_go, **rows})


class Inapplicable(RuleError):
    """A row's rule for a port has no answer at the types, or for the numbers, that its kernel has.

    Attributes:
      remedy: the row is left.
    """

    def __init__(self, kernel: str, key: str, left: Left) -> None:
        super().__init__(f"{kernel!r}: {left.why}")
        self.remedy = Remedies({kernel: {key: left}})


NO_REMEDIES: Final = Remedies()


def rows_left(plan: Plan, refused: Mapping[str, str]) -> Mapping[str, Mapping[str, Left]]:
    """The rows that kernels of a plan leave, each with its reason and the types at their ports."""
    found: dict[str, Mapping[str, Left]] = {}
    for name, why in refused.items():
        kernel = plan.kernels[name]
        seen = [
            f"{side}[{i}] {port.type}"
            for side, ports in (("in", kernel.inputs), ("out", kernel.outputs))
            for i, port in enumerate(ports)
            if isinstance(port.type, Uniform) and port.type.is_per_tensor
        ]
        if kernel.row is not None:
            found[name] = {kernel.row: Left(why, ", ".join(seen))}
    return found
