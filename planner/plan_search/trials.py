"""Trials: plans with requests for some kernels, exported, run and evaluated; each is measured once and kept.

A trial runs as its ONNX QDQ file does in onnxruntime, optimisations off, or, where no such file can say the
plan, in the interpreter; the model as given has run once for all trials. Measurements are kept in a file of
state, so that a search which was stopped goes on. Source: docs/search.md.
"""

import hashlib
import json
import math
import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from stat import S_IMODE
from typing import Final, Literal

from planner.accuracy.choices import Choice
from planner.accuracy.coverage import coverage_of
from planner.accuracy.metrics import Metric, metric_name
from planner.accuracy.own_noise import OwnNoise, Part
from planner.accuracy.verdict import Level, level_of
from planner.calibration.samples import Source, open_samples
from planner.errors import Conflict, InputError, ModelError, QTypeError, UnsupportedExport
from planner.formats.onnx.sessions import Optimisation
from planner.interpreter.compare import Comparison, compare
from planner.interpreter.reference import ReferenceKind, Run
from planner.ir.graph import Graph, model_digest
from planner.ir.kernel_requests import with_wanted
from planner.pipeline import export
from planner.plan_model import plan as plan_model
from planner.plan_search.goals import Goal
from planner.plan_search.options import Measure, Wish, mean_weight_bits, weight_bytes
from planner.plans.plan import Plan, Planned
from planner.propagation.selection.conflicts import Concession
from planner.target.records import Target
from planner.version import MADE_BY

FORMAT: Final = "qplan.search/3"
FILE: Final = "onnx-qdq"


@dataclass(frozen=True, slots=True)
class Trial:
    """One plan of a search.

    Attributes:
      origin: what proposed it: `planned`, `all i16`, `greedy`, `program`.
      kernels: what it asks of kernels, as `kernels:` of annotations.
      work: of the plan; see `Plan.work`.
      weight_bits: mean bits of a number in its constants.
      predicted: SQNR of the worst output, dB, by the own noise of its kernels.
      sqnr: measured, dB.
      outputs: SQNR of each output, or of each group of its slices.
      metric: of the quantized file; None where none is requested.
      reference: the metric of the model as given.
      error: why it could not be planned; its figures mean nothing then.
      mac_share, kernel_share: of the multiply-adds and of the kernels that the device has rows for.
      size: bytes of its weights.
      level: of its outputs, as the verdict evaluates them; "" where nothing was measured.
      float_work: of the same kernels in float.
    """

    origin: str
    kernels: Mapping[str, Wish]
    work: float
    weight_bits: float
    predicted: float
    sqnr: float
    outputs: Mapping[str, float] = field(default_factory=dict)
    metric: float | None = None
    reference: float | None = None
    error: str = ""
    mac_share: float = 1.0
    kernel_share: float = 1.0
    size: int = 0
    level: Level | Literal[""] = ""
    float_work: float = 0.0

    @property
    def quality(self) -> float:
        """A figure that is larger for better trials: metric, else SQNR; NaN is worse than anything."""
        found = self.sqnr if self.metric is None else self.metric
        return -math.inf if math.isnan(found) else found


@dataclass(frozen=True, slots=True, eq=False)
class Bench:
    """Everything that a trial needs.

    Attributes:
      model: annotated and flat.
      samples: that can be gone through again.
      metric: name or function; None for SQNR alone.
      known: the reference, opened before; None to open it anew for every trial.
      formats: that plans are to be written in, as `plan` takes them.
      prepare: what is done to the model in front of planning, once kernels are asked: biases corrected, say.
      optimisation: at which onnxruntime loads files; without where it cannot.
    """

    model: Graph
    target: Target
    samples: Source
    metric: str | Metric | None = None
    output: str | None = None
    reference: ReferenceKind = "written"
    known: Run | None = None
    formats: tuple[str, ...] = ()
    prepare: Callable[[Graph], Graph] | None = None
    optimisation: Optimisation = "none"

    @property
    def metric_name(self) -> str:
        """The name of the metric; "" for none."""
        if self.metric is None or isinstance(self.metric, str):
            return self.metric or ""
        return metric_name(self.metric)

    def key(self) -> str:
        """sha256 of all that figures rest on."""
        digest = hashlib.sha256()
        wanted = {key: str(item) for key, item in self.model.wanted.items()}
        parts = [
            FORMAT,
            MADE_BY,
            model_digest(self.model),
            self.target.digest,
            wanted,
            self.metric_name,
            self.output,
        ]
        ways = [self.formats, self.prepare is not None, self.optimisation]
        made = [] if ways == [(), False, "none"] else ways
        digest.update(json.dumps([*parts, self.reference, *made]).encode())
        # A function that was changed is another metric.
        code = getattr(self.metric, "__code__", None)
        if code is not None:
            plain = [item for item in code.co_consts if isinstance(item, bool | int | float | str | None)]
            digest.update(repr((code.co_code, plain, code.co_names)).encode())
        for feed in open_samples(self.samples, self.model, labeled=True).feeds:
            arrays = {**feed.arrays, **({} if feed.labels is None else {"": feed.labels})}
            for name, array in sorted(arrays.items()):
                digest.update(f"{name} {array.dtype} {array.shape}".encode())
                digest.update(array.tobytes())
        return f"sha256:{digest.hexdigest()}"

    def planned(self, kernels: Mapping[str, Wish]) -> Planned:
        """The plan of a trial."""
        asked = with_wanted(self.model, kernels)
        ready = asked if self.prepare is None else self.prepare(asked)
        return plan_model(ready, self.target, formats=self.formats)

    def measured(
        self, origin: str, kernels: Mapping[str, Wish], predicted: float, plan: Planned | None = None
    ) -> Trial:
        """Plan, export and evaluate.

        Options are chosen kernel by kernel, and a row may depend on what its neighbours are asked: wishes
        that planning cannot keep are dropped.

        Args:
          plan: that of these wishes, where it is there already.

        Returns:
          The trial, with the wishes that were kept.
        """
        try:
            while True:
                try:
                    made = self.planned(kernels) if plan is None or self.prepare is not None else plan
                    break
                except Conflict as error:
                    dropped = _unkept(error) & kernels.keys()
                    if not dropped:
                        raise
                    kernels = {name: wish for name, wish in kernels.items() if name not in dropped}
        except (Conflict, QTypeError, UnsupportedExport) as error:
            return Trial(origin, kernels, 0.0, 0.0, predicted, -math.inf, error=error.message)
        file = _runnable(made)
        try:
            found = self._compared(made.annotated, file, self.optimisation)
        except ModelError:
            if self.optimisation == "none":
                raise
            found = self._compared(made.annotated, file, "none")
        return trial_of(made, found, self.metric_name, Trial(origin, kernels, 0.0, 0.0, predicted, 0.0))

    def _compared(self, model: Graph, file: bytes | Planned, optimisation: Optimisation) -> Comparison:
        return compare(
            model,
            file,
            self.samples,
            optimisation=optimisation,
            reference=self.reference,
            known=self.known,
            output=self.output,
            metrics=() if self.metric is None else (self.metric,),
        )


def _unkept(error: Conflict) -> set[str]:
    """Wishes that are to be dropped if a plan is to be had."""
    return set(error.concession.keys) if isinstance(error.concession, Concession) else set()


def trial_of(plan: Plan, found: Comparison, metric: str, proposed: Trial) -> Trial:
    """A trial with the figures of its plan and of a file of it.

    Args:
      metric: the name of the metric that the quality is of; "" for SQNR alone.
      proposed: what it asks, and what proposed it.
    """
    score = found.scores.get(metric)
    sign = 1.0 if score is None or score.larger_is_better else -1.0
    outputs = {
        f"{name}{label}": part.sqnr
        for name, quality in found.outputs.items()
        for label, part in (quality.groups or {"": quality}).items()
    }
    covered = coverage_of(plan)
    return replace(
        proposed,
        work=plan.work.total,
        weight_bits=mean_weight_bits(plan),
        sqnr=found.worst_sqnr,
        outputs=outputs,
        metric=None if score is None else sign * score.quantized,
        reference=None if score is None else sign * score.reference,
        mac_share=covered.mac_share,
        kernel_share=covered.kernel_share,
        size=weight_bytes(plan),
        level=level_of(found.outputs),
        float_work=covered.float_work,
    )


def is_met(goal: Goal, trial: Trial, dearest: float) -> bool:
    """Whether a trial reaches a goal.

    Args:
      dearest: work of the plan with every kernel at its most expensive.
    """
    if trial.error:
        return False
    match goal.kind:
        case "sqnr":
            return trial.sqnr >= goal.bound
        case "metric":
            return trial.quality >= goal.bound
        case "drop":
            given = math.inf if trial.reference is None else trial.reference
            drop = abs(given) * goal.bound / 100 if goal.is_relative else goal.bound
            return trial.quality >= given - drop
        case "work":
            return trial.work <= goal.bound * dearest
        case "coverage":
            return trial.mac_share >= goal.bound
        case "size":
            return trial.size <= goal.bound
    return trial.weight_bits <= goal.bound


def _runnable(plan: Planned) -> bytes | Planned:
    """The file of a plan, or the plan itself where no such file can say it."""
    try:
        return export(plan.annotated, plan, FILE)
    except (QTypeError, UnsupportedExport):
        return plan


class State:
    """All measurements so far, in memory and in a file.

    Own noise is kept by the order in which it was requested, trials by what they ask of kernels: a search
    that is run again asks for the same, and is answered from here.
    """

    def __init__(self, key: str, path: Path | None) -> None:
        """Take up what a file has.

        Raises:
          InputError: a file that cannot be read, or that is another search's.
        """
        self._key, self._path = key, path
        self._noise: list[tuple[list[Part], list[float], list[list[float]], int]] = []
        self.trials: dict[str, Trial] = {}
        if path is not None and not path.parent.is_dir():
            raise InputError(f"{path}: cannot write the state: there is no folder {path.parent}")
        if path is not None and path.exists():
            self._read(path)

    def _read(self, path: Path) -> None:
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
            is_ours = isinstance(found, dict) and found.get("format") == FORMAT
            if is_ours and found["key"] == self._key:
                self._noise = [
                    ([(name, at) for name, at in parts], signal, power, samples)
                    for parts, signal, power, samples in found["noise"]
                ]
                self.trials = {kernels_key(trial["kernels"]): Trial(**trial) for trial in found["trials"]}
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InputError(f"{path}: no state of a search: {error}", hint="name a new file") from error
        if not is_ours or found["key"] != self._key:
            raise InputError(
                f"{path}: the state of a search for another model, target, samples or metric, or by another "
                "planner",
                hint="name a new file",
            )

    def noise(self, at: int, choices: Sequence[Choice], measure: Measure) -> OwnNoise:
        """The own noise of some choices, the `at`-th that this search asks for."""
        if at >= len(self._noise):
            found = measure(choices)
            parts = [*found.signal]
            rows = [[power[part] for part in parts] for power in found.power]
            self._noise.append((parts, [found.signal[part] for part in parts], rows, found.samples))
            self.save()
        parts, signal, rows, samples = self._noise[at]
        return OwnNoise(
            tuple(choices),
            dict(zip(parts, signal, strict=True)),
            tuple(dict(zip(parts, row, strict=True)) for row in rows),
            samples,
        )

    def keep(self, trial: Trial) -> None:
        """Keep a trial."""
        self.trials[kernels_key(trial.kernels)] = trial
        self.save()

    def save(self) -> None:
        """Write the file as a whole, or not at all."""
        if self._path is None:
            return
        trials = [asdict(trial) for trial in self.trials.values()]
        text = json.dumps({"format": FORMAT, "key": self._key, "noise": self._noise, "trials": trials})
        try:
            written = self._path.with_name(f".{self._path.name}-{secrets.token_hex(8)}")
            mode = S_IMODE(self._path.stat().st_mode) if self._path.exists() else 0o644
            # With its mode from the start: a sandbox forbids to change one.
            made = os.open(written, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
            with os.fdopen(made, "w", encoding="utf-8") as file:
                file.write(text)
            written.replace(self._path)
        except OSError as error:
            raise InputError(f"{self._path}: cannot write the state: {error.strerror}") from error


def kernels_key(kernels: Mapping[str, Wish]) -> str:
    """A text that is one for equal wishes."""
    return json.dumps(kernels, sort_keys=True)
