"""Losses: where a plan loses the numbers of its model, kernel by kernel, and what would bring them back.

`values` sees the whole quantized program, `own_noise` each kernel alone; noise adds up, so the shares of the
kernels are shares of what is lost. Source: docs/accuracy.md.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Final

from planner.accuracy.choices import Choice, choices_of, clips_of, weights_of
from planner.accuracy.groups import Groups
from planner.accuracy.own_noise import (
    Job,
    OwnNoise,
    Part,
    Progress,
    decibels,
    own_noise,
    require_float_output,
)
from planner.accuracy.remedies import Measure, Parts, Remedy, remedies
from planner.accuracy.steps import with_reference
from planner.accuracy.values import Seen, values_seen
from planner.calibration.samples import Source
from planner.calibration.sources.foreign import replayable
from planner.checker.origins import check_model
from planner.errors import InputError, expect, require_name
from planner.factors.form import form_of_plan
from planner.ir.graph import Graph
from planner.ir.types.qtypes import Uniform
from planner.notebook import html_of, html_table
from planner.plans.plan import Plan, require_plan

LIMIT: Final = 10
"""Number of kernels whose noise is divided into parts, worst first."""
DROP: Final = 3.0
"""dB between a float kernel's operands and its result from which on the value is marked."""
HALF: Final = 0.5


@dataclass(frozen=True, slots=True)
class OutputLoss:
    """One output of the model, or one group of its slices.

    Attributes:
      output: its name.
      slices: which of its slices, as `[:, :, 4-84]`; "" for all.
      sqnr: of the whole quantized program, dB.
      predicted: from the own noises of all kernels added, dB.
    """

    output: str
    slices: str
    sqnr: float
    predicted: float

    @property
    def label(self) -> str:
        """Name and slices."""
        return f"{self.output}{self.slices}"


@dataclass(frozen=True, slots=True)
class ValueLoss:
    """One value of the whole quantized program against the float model.

    Attributes:
      sqnr: dB.
      kernel: that writes it; "" for an input.
      drop: dB less than the worst operand of its kernel; 0.0 where it has no operand that is computed.
      shows: whether it is much worse than its operands though its kernel runs in float: what it shows, they
        lost.
    """

    value: str
    sqnr: float
    kernel: str
    drop: float = 0.0
    shows: bool = False


@dataclass(frozen=True, slots=True)
class KernelLoss:
    """The effect on the outputs of one kernel, or of the rounding of a model input, alone.

    Attributes:
      name: of the kernel or the input.
      kernel: its kind (`conv2d`); "input" for an input.
      share: of the noise at the evaluated output, all kernels by themselves added.
      sqnr: of the evaluated output, if this were all noise, dB.
      noise: mean power at each output, by its label.
      parts: of its noise at the evaluated output; None where it was not divided into parts.
    """

    name: str
    kernel: str
    share: float
    sqnr: float
    noise: Mapping[str, float]
    parts: Parts | None = None


@dataclass(frozen=True, repr=False)
class Losses:
    """Losses of a plan.

    Attributes:
      model, target: their names.
      samples: number of them.
      outputs: worst first; the first is the evaluated one.
      kernels: worst first, those without noise of their own last.
      values: in plan order.
      begins: the first kernel in plan order among the few that make half of the noise; "" if there is none.
      remedies: the most effective changes, best first.
    """

    model: str
    target: str
    samples: int
    outputs: tuple[OutputLoss, ...]
    kernels: tuple[KernelLoss, ...]
    values: tuple[ValueLoss, ...]
    begins: str
    remedies: tuple[Remedy, ...] = field(default=())

    @property
    def sqnr(self) -> float:
        """SQNR (dB) of the evaluated output."""
        return self.outputs[0].sqnr

    def __repr__(self) -> str:
        judged = self.outputs[0]
        begin = f", begins at {self.begins!r}" if self.begins else ""
        return f"<Losses of {self.model!r} on {self.target}: {judged.label} {judged.sqnr:.1f} dB{begin}>"

    def _repr_html_(self) -> str:
        """The notebook view: the kernels, worst first, and remedies."""
        kernels = [(loss.name, loss.kernel, f"{loss.share:.1%}", f"{loss.sqnr:.1f}") for loss in self.kernels]
        judged = self.outputs[0]
        title = f"Losses of {self.model} on {self.target}: {judged.label} {judged.sqnr:.1f} dB"
        head = ("kernel", "kind", "share of the noise", "dB if alone")
        return html_of(title, html_table(head, kernels))


def losses(
    model: Graph,
    plan: Plan,
    samples: Source,
    *,
    reference: Graph | None = None,
    output: str | None = None,
    limit: int = LIMIT,
    progress: Progress | None = None,
    executor: Executor | None = None,
    parts: int = 4,
) -> Losses:
    """Say where a plan loses the numbers of its model.

    Args:
      model: the plan's, with or without its facts.
      plan: one just made also says where its target has rows of 16 bits.
      samples: a folder of .npz files, one .npz, or an iterable of {input name: array}; 8 are enough to name
        the culprits.
      reference: the float model, if the plan's has corrected biases.
      output: the output to evaluate; the worst by default.
      limit: kernels whose noise is divided into parts.
      progress: called with (runs done, runs in all or None).
      executor: runs `parts` of the samples at once; any of `concurrent.futures`.

    Raises:
      InputError: a model without a float output.
      PlanInvalid: the plan of another model.
      SampleError: no samples, or one that does not fit.
      UnknownName: no such float output.

    Example:
      >>> model = planner.load_model("examples/digits/digits.onnx")
      >>> stats = planner.calibrate(model, "examples/digits/calibration.npz")
      >>> ready = planner.annotate(model, stats=stats)
      >>> plan = planner.plan(ready, "litert-int8")
      >>> planner.losses(ready, plan, "examples/digits/calibration.npz", reference=model).samples
      128
    """
    require_plan(plan)
    expect(limit, int, "limit is a number of kernels")
    if limit < 0:
        raise InputError(f"limit is {limit}; accepted: a number of kernels, 0 or more")
    if progress is not None and not callable(progress):
        raise InputError(f"progress is a function of (runs done, runs in all), not {progress!r}")
    if executor is not None and not hasattr(executor, "submit"):
        raise InputError(f"executor is one of concurrent.futures, with a submit, not {executor!r}")
    flat = form_of_plan(model, plan.graph)
    check_model(plan, flat)
    require_float_output(plan)
    if output is not None:
        require_name(
            "output", output, [name for name in plan.graph.outputs if plan.graph.values[name].is_float]
        )
    held = replayable(samples)
    base = None if reference is None else with_reference(flat, form_of_plan(reference, plan.graph))
    chosen = choices_of(plan)
    job = Job(flat, plan, chosen, held, {}, base)
    seen = values_seen(job, progress=None, executor=executor, parts=parts)
    groups = {name: slices.groups() for name, slices in seen.outputs.items()}

    def measure(choices: Sequence[Choice]) -> OwnNoise:
        return own_noise(
            flat, plan, choices, held, groups=groups, reference=base, executor=executor, parts=parts,
            progress=progress,
        )  # fmt: skip

    noise = measure(chosen)
    judged, outputs = _judged(seen, groups, noise, output)
    order = sorted(range(len(chosen)), key=lambda i: -noise.power[i][judged])
    worst = [i for i in order[:limit] if noise.power[i][judged] > 0]
    apart = dict(
        zip(
            worst,
            _apart(plan, [(chosen[i], noise.power[i][judged]) for i in worst], seen, measure, judged),
            strict=True,
        )
    )
    kinds = ["input" if it.is_input else plan.kernels[it.name].kernel for it in chosen]
    kernels = tuple(_kernel(kinds[i], noise, i, outputs, apart.get(i)) for i in order)
    told = [(chosen[i], noise.power[i][judged], apart[i]) for i in worst]
    return Losses(
        plan.graph.name,
        plan.target.id,
        noise.samples,
        tuple(outputs.values()),
        kernels,
        tuple(_values(plan, seen)),
        _begins(plan, kernels),
        remedies(plan, told, noise, judged, measured=outputs[judged].sqnr, measure=measure),
    )


def _judged(
    seen: Seen, groups: Mapping[str, Groups], noise: OwnNoise, output: str | None
) -> tuple[Part, Mapping[Part, OutputLoss]]:
    """The output and group that counts, and all of them, worst first."""
    found: dict[Part, OutputLoss] = {}
    for name, slices in seen.outputs.items():
        for i, (signal, error, _) in enumerate(slices.sums(groups[name])):
            predicted = decibels(noise.signal[name, i], noise.total((name, i)))
            found[name, i] = OutputLoss(name, groups[name].label(i), decibels(signal, error), predicted)
    order = sorted(found, key=lambda part: (output not in (None, part[0]), found[part].sqnr))
    return order[0], {part: found[part] for part in order}


def _kernel(
    kind: str, noise: OwnNoise, i: int, outputs: Mapping[Part, OutputLoss], parts: Parts | None
) -> KernelLoss:
    choice, powers, judged = noise.choices[i], noise.power[i], next(iter(outputs))
    total = noise.total(judged)
    return KernelLoss(
        choice.name,
        kind,
        powers[judged] / total if total else 0.0,
        decibels(noise.signal[judged], powers[judged]),
        {told.label: powers[part] for part, told in outputs.items()},
        parts,
    )


def _begins(plan: Plan, kernels: Sequence[KernelLoss]) -> str:
    """The first in plan order of the few, worst first, that make half of the noise."""
    places = {name: i for i, name in enumerate(plan.kernels)}
    seen, few = 0.0, []
    for kernel in kernels:
        if seen >= HALF or not kernel.share:
            break
        few.append(kernel)
        seen += kernel.share
    first = min(few, key=lambda one: -1 if one.kernel == "input" else places[one.name], default=None)
    return first.name if first is not None else ""


def _values(plan: Plan, seen: Seen) -> Iterator[ValueLoss]:
    """Every float value that both programs have, in plan order."""
    sqnr = {name: decibels(seen.signal[name], seen.noise[name]) for name in seen.signal}
    for name in plan.graph.inputs:
        if name in sqnr:
            yield ValueLoss(name, sqnr[name], "")
    for kernel in plan.kernels_in_order:
        before = min((sqnr[port.value] for port in kernel.inputs if port.value in sqnr), default=None)
        in_float = not any(isinstance(port.type, Uniform) for port in (*kernel.inputs, *kernel.outputs))
        for port in kernel.outputs:
            if port.value in sqnr:
                # The first rounding of exact numbers is no drop.
                drop = 0.0 if before is None or not math.isfinite(before) else before - sqnr[port.value]
                yield ValueLoss(
                    port.value, sqnr[port.value], kernel.name, drop, shows=in_float and drop >= DROP
                )


def _apart(
    plan: Plan, worst: Sequence[tuple[Choice, float]], seen: Seen, measure: Measure, judged: Part
) -> tuple[Parts, ...]:
    """Powers of weights, rounding and clipping at the evaluated output, of choices with their own noise."""
    weights = [weights_of(choice, plan) for choice, _ in worst]
    clips = [clips_of(choice, plan, seen.ranges) for choice, _ in worst]
    found = [powers[judged] for powers in measure([*weights, *clips]).power] if worst else []
    return tuple(
        Parts(weight, max(0.0, own - weight - clip), clip)
        for (_, own), weight, clip in zip(worst, found[: len(worst)], found[len(worst) :], strict=True)
    )
