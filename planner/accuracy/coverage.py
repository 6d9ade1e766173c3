"""Coverage: how much of a model the device runs in types that it has rows for; the rest falls back to float.

Counted are kernels that compute with floats. Data movement between floats costs little; where all rows of a
plan leave activations as they are (only weights are quantized, or activations at run time), kernels without
weights do not count. Multiply-adds are those of `ops.macs`, an open size as it counts there.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from planner.ir.graph import Graph, Region
from planner.ir.roles import is_movement
from planner.ir.types.qtypes import Uniform
from planner.ops import defined
from planner.plans.fields import PlanFields
from planner.plans.records import KernelPlan
from planner.plans.work import float_work_of, work_of


@dataclass(frozen=True, slots=True)
class Fallback:
    """Why kernels run in float.

    Attributes:
      reason: the same for all of them.
      macs: their multiply-adds in all.
      kinds: how many of which kind.
      kernel: the name of the one with most multiply-adds.
      largest: how many these are.
    """

    reason: str
    macs: int
    kinds: Mapping[str, int]
    kernel: str
    largest: int = 0

    @property
    def kernels(self) -> int:
        """Number of them."""
        return sum(self.kinds.values())


@dataclass(frozen=True, slots=True)
class Coverage:
    """Coverage of a plan.

    Attributes:
      kernels, on_device: kernels that compute with floats, and those of them that a row serves.
      macs, macs_on_device: multiply-adds of these.
      fallbacks: why the others run in float, most multiply-adds first, then most kernels.
      work, float_work: predicted, of the plan and of the same kernels in float.
      size, float_size: bytes of the file and of the float model as a file, where these were compared.
    """

    kernels: int
    on_device: int
    macs: int
    macs_on_device: int
    fallbacks: tuple[Fallback, ...] = ()
    work: float = 0.0
    float_work: float = 0.0
    size: int | None = None
    float_size: int | None = None

    @property
    def kernel_share(self) -> float:
        """Share of the kernels; 1 where there are none."""
        return self.on_device / self.kernels if self.kernels else 1.0

    @property
    def mac_share(self) -> float:
        """Share of the multiply-adds; that of the kernels where nothing multiplies."""
        return self.macs_on_device / self.macs if self.macs else self.kernel_share

    @property
    def largest_float_kernel(self) -> str:
        """The float kernel with most multiply-adds; "" where all are quantized."""
        largest = max(self.fallbacks, key=lambda one: one.largest, default=None)
        return "" if largest is None else largest.kernel

    @property
    def is_nothing(self) -> bool:
        """Whether there is something to quantize, and none of it is."""
        return bool(self.kernels) and not self.on_device

    @property
    def is_slower(self) -> bool:
        """Whether the plan is predicted to take more work than the float model."""
        return self.work > self.float_work

    @property
    def is_bigger(self) -> bool:
        """Whether the file has more bytes than the float model's; False where they were not compared."""
        return self.size is not None and self.float_size is not None and self.size > self.float_size

    @property
    def pays(self) -> bool:
        """Whether there is a reason to take the quantized file rather than the float model.

        There is none where nothing is quantized, where the model multiplies and no product is quantized, or
        where the file is bigger and takes more work.
        """
        if self.is_nothing or (self.macs and not self.macs_on_device):
            return False
        return not (self.is_bigger and self.is_slower)


def coverage_of(plan: PlanFields) -> Coverage:
    """Count what the rows of a plan serve."""
    counted = list(_counted(plan))
    served = [(kernel, macs) for kernel, macs in counted if kernel.row is not None]
    found: dict[str, list[tuple[KernelPlan, int]]] = {}
    for kernel, macs in counted:
        if kernel.row is None:
            found.setdefault(reason_text(kernel), []).append((kernel, macs))
    fallbacks = [_fallback(reason, members) for reason, members in found.items()]
    return Coverage(
        len(counted),
        len(served),
        sum(macs for _, macs in counted),
        sum(macs for _, macs in served),
        tuple(sorted(fallbacks, key=lambda one: (-one.macs, -one.kernels, one.reason))),
        work_of(plan).total,
        float_work_of(plan),
    )


def _fallback(reason: str, members: Sequence[tuple[KernelPlan, int]]) -> Fallback:
    largest, macs = max(members, key=lambda member: member[1])
    kinds = Counter(kernel.kernel for kernel, _ in members)
    return Fallback(reason, sum(macs for _, macs in members), kinds, largest.name, macs)


def kernel_macs(kernel: KernelPlan, region: Region, graph: Graph) -> int:
    """Multiply-adds of a kernel, all its runs together."""
    counts = ((defined(op.type).macs, op) for op in region.ops)
    return kernel.trip_count * sum(count(op, graph).macs for count, op in counts if count is not None)


def reason_text(kernel: KernelPlan) -> str:
    """Why a kernel runs in float, its own kind left out, so that like reasons are one."""
    text = kernel.reason or "its row takes and gives floats"
    text = text.replace(f" for kernel {kernel.kernel!r}", " for the kernel")
    return text.replace(f" names {kernel.kernel} ", " names it ")


def _counted(plan: PlanFields) -> Iterator[tuple[KernelPlan, int]]:
    """The kernels that count, with their multiply-adds."""
    regions = {region.name: region for region in plan.graph.regions}
    values, constants = plan.graph.values, plan.graph.constants
    stored, weights_alone = _stored(plan), counts_weights_alone(plan)
    for kernel in plan.kernels_in_order:
        region = regions[kernel.name]
        named = [port.value for port in (*kernel.inputs, *kernel.outputs) if port.value]
        if not any(values[name].is_float for name in named):
            continue  # shapes and indices
        macs = kernel_macs(kernel, region, plan.graph)
        if kernel.row is None:
            moves = region.ops and all(is_movement(op, plan.graph) for op in region.ops)
            if moves and stored.isdisjoint(named):
                continue
            if weights_alone and not (macs and any(name in constants for name in named)):
                continue
        yield kernel, macs


def counts_weights_alone(plan: PlanFields) -> bool:
    """Whether all rows of a plan leave activations float, so that kernels without weights do not count."""
    return not _stored(plan) and any(kernel.row is not None for kernel in plan.kernels_in_order)


def _stored(plan: PlanFields) -> frozenset[str]:
    """Values that are no constants and that some kernel reads or gives as integers."""
    return frozenset(
        port.value
        for kernel in plan.kernels_in_order
        for port in (*kernel.inputs, *kernel.outputs)
        if isinstance(port.type, Uniform) and port.value not in plan.graph.constants
    )
