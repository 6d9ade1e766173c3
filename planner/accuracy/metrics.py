"""Metrics: what a model is for, beside decibels: top-1, top-5, cross entropy, or a function of the user's.

A metric of ours is a mean over labels, added up sample by sample; one of the user's sees all samples at once.
Labels are class numbers; negative ones are not counted (-100 is usual for tokens). Source: docs/accuracy.md.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from planner.accuracy.groups import Array
from planner.errors import InputError, SampleError, quantity, require_name

if TYPE_CHECKING:  # the service words verdicts and holds no reader of models
    from planner.calibration.samples import Feed

Outputs: TypeAlias = Mapping[str, Array]
Metric: TypeAlias = Callable[[Outputs, Array | None], float]
"""`metric(outputs, labels)`: arrays of all samples by name of the output; larger is better."""

SQNR: Final = "sqnr"
LEAST_PROBABILITY: Final = 2.0**-24
"""Below it a stored probability is 0, and its logarithm no number."""
_TOLERANCE: Final = 1e-3


@dataclass(frozen=True, slots=True)
class Score:
    """A metric of the reference and of the quantized file, on the same samples."""

    reference: float
    quantized: float
    larger_is_better: bool = True


@dataclass(frozen=True, slots=True)
class BuiltIn:
    """A metric of ours: of rows of scores and their labels the sum over rows.

    Attributes:
      is_share: its mean is one of the rows.
      reads_logits: probabilities become their logarithms first.
    """

    add_up: Callable[[Array, Array], float]
    larger_is_better: bool = True
    is_share: bool = False
    reads_logits: bool = False


def _hits(most: int) -> Callable[[Array, Array], float]:
    """Rows whose label is among the `most` largest scores; of equal ones the first counts, as in ArgMax."""

    def add_up(rows: Array, labels: Array) -> float:
        own = np.take_along_axis(rows, labels[:, None], 1)
        before = np.arange(rows.shape[1]) < labels[:, None]
        ahead = (rows > own) | ((rows == own) & before)
        return float(np.count_nonzero(ahead.sum(1) < most))

    return add_up


def _minus_log(rows: Array, labels: Array) -> float:
    """Minus the natural logarithms of the labels' probabilities; rows are logits."""
    top = rows.max(1, keepdims=True)
    log_sum = np.log(np.exp(rows - top).sum(1)) + top[:, 0]
    return float((log_sum - np.take_along_axis(rows, labels[:, None], 1)[:, 0]).sum())


BUILT_IN: Final[Mapping[str, BuiltIn]] = {
    "cross_entropy": BuiltIn(_minus_log, larger_is_better=False, reads_logits=True),
    "top1": BuiltIn(_hits(1), is_share=True),
    "top5": BuiltIn(_hits(5), is_share=True),
}
FIVE_OF: Final = 10
"""Classes from which top-5 is reported without a request: of six, nearly every answer is among five."""
_UNASKED: Final = ("top1", "top5")


@dataclass(slots=True)
class Judge:
    """Metrics over the samples seen so far.

    Attributes:
      output: the one that labels are for; "" where none is named and there are several.
      asked: names of metrics that must be there.
      metrics: the user's.
      notes: labels that are for no output, and why.
    """

    output: str
    asked: tuple[str, ...] = ()
    metrics: tuple[Metric, ...] = ()
    notes: dict[str, None] = field(default_factory=dict)
    _sums: dict[str, tuple[float, float]] = field(default_factory=dict)
    _rows: int = 0
    _has_labels: bool | None = None
    _kept: list[tuple[int, Outputs, Outputs, Array | None]] = field(default_factory=list)

    def add(self, feed: "Feed", wanted: Outputs, got: Outputs) -> None:
        """Take one sample.

        Args:
          wanted, got: results of the reference and of the quantized file, by name of the output.

        Raises:
          SampleError: labels that are missing where a metric wants them, or do not fit the output.
        """
        if self._has_labels not in (None, feed.labels is not None):
            raise SampleError(f"{feed.name}: some samples have labels, others have none")
        self._has_labels = feed.labels is not None
        if self.metrics:
            self._kept.append((_batch_of(feed), wanted, got, feed.labels))
        if self.asked and feed.labels is None:
            raise SampleError(
                f"{feed.name}: {self.asked[0]} needs labels",
                hint="an array 'label' or 'labels' beside the inputs",
            )
        if feed.labels is not None and self._judges(feed.labels, wanted):
            self._count(feed.name, feed.labels, wanted[self.output], got[self.output])

    def _judges(self, labels: Array, wanted: Outputs) -> bool:
        """Whether these labels are class numbers of a known output; where not, why is noted or refused."""
        reason = ""
        if not self.output:
            reason = f"the model has several outputs: name the one they are for ({', '.join(wanted)})"
        elif labels.dtype.kind not in "iub":
            reason = f"they are {labels.dtype}, no class numbers: give a metric of your own"
        elif wanted[self.output].dtype.kind != "f" or max(wanted[self.output].shape, default=1) < 2:
            reason = f"{self.output!r} has no scores of classes: give a metric of your own"
        if reason and self.asked:
            raise SampleError(f"{self.asked[0]} cannot use the labels: {reason}")
        if reason and not self.metrics:
            self.notes[f"the labels are not used: {reason}"] = None
        return not reason

    def _count(self, name: str, labels: Array, wanted: Array, got: Array) -> None:
        axis = _class_axis(wanted.shape, labels.shape)
        if axis is None:
            raise SampleError(
                f"{name}: labels of shape {labels.shape} do not fit output {self.output!r} of shape "
                f"{wanted.shape}",
                hint="one class number for each row of scores; classes lie along the last axis or axis 1",
            )
        rows, others = _rows_of(wanted, axis), _rows_of(got, axis)
        flat = labels.reshape(-1).astype(np.int64)
        if flat.size and flat.max() >= rows.shape[1]:
            raise SampleError(
                f"{name}: label {flat.max()}, but output {self.output!r} has "
                f"{quantity(rows.shape[1], 'class')}",
                hint="the first class is 0; is it another output's?",
            )
        counted = flat >= 0
        rows, others, flat = rows[counted], others[counted], flat[counted]
        self._rows += flat.size
        is_probability = _are_probabilities(rows)
        for key in dict.fromkeys((*_UNASKED, *self.asked)):
            if key == "top5" and rows.shape[1] < FIVE_OF and key not in self.asked:
                continue
            rule = BUILT_IN[key]
            pair = (rows, others)
            if rule.reads_logits and is_probability:
                pair = (_logarithms(rows), _logarithms(others))
            sums = self._sums.get(key, (0.0, 0.0))
            self._sums[key] = (sums[0] + rule.add_up(pair[0], flat), sums[1] + rule.add_up(pair[1], flat))

    def scores(self) -> Mapping[str, Score]:
        """Every metric by its name.

        Raises:
          SampleError: all labels negative, or outputs of many shapes for a metric that sees all at once.
          InputError: a metric of the user's that raises, or returns no number.
        """
        if self._sums and not self._rows:
            raise SampleError("every label is negative, so none counts")
        found = {
            name: Score(sums[0] / self._rows, sums[1] / self._rows, BUILT_IN[name].larger_is_better)
            for name, sums in self._sums.items()
        }
        return found | self._of_the_user()

    def _of_the_user(self) -> dict[str, Score]:
        if not self.metrics or not self._kept:
            return {}
        batches = [batch for batch, *_ in self._kept]
        wanted = _joined_outputs([wanted for _, wanted, _, _ in self._kept], batches)
        got = _joined_outputs([got for _, _, got, _ in self._kept], batches)
        labels = [label for *_, label in self._kept if label is not None]
        truth = _joined(labels, batches, "labels") if labels else None
        return {
            metric_name(metric): Score(_asked(metric, wanted, truth), _asked(metric, got, truth))
            for metric in self.metrics
        }


def judge_of(outputs: Sequence[str], output: str | None, metrics: Sequence[str | Metric]) -> Judge:
    """Return a `Judge` for a model's outputs.

    Args:
      outputs: of the model, those that are numbers.
      output: the one that the labels are for; by default the only one.
      metrics: names of ours (`sqnr` is always there), or functions.

    Raises:
      UnknownName: no such output or metric.
      InputError: something else in place of a metric.
    """
    if output is not None:
        require_name("output", output, outputs)
    judged = output or (outputs[0] if len(outputs) == 1 else "")
    asked, own = [], []
    for metric in metrics:
        if isinstance(metric, str):
            require_name("metric", metric, (*BUILT_IN, SQNR))
            asked.append(metric)
        elif callable(metric):
            own.append(metric)
        else:
            raise InputError(f"a metric is a name or a function of (outputs, labels), not {metric!r}")
    return Judge(judged, tuple(name for name in asked if name != SQNR), tuple(own))


def metric_name(metric: Metric) -> str:
    """The name a function goes by in reports."""
    return str(getattr(metric, "__name__", "metric"))


def score_text(name: str, value: float) -> str:
    """`97.3 %` of a share, `0.929` of anything else."""
    is_share = name in BUILT_IN and BUILT_IN[name].is_share
    return f"{100 * value:.1f} %" if is_share else f"{value:.4g}"


def _asked(metric: Metric, outputs: Outputs, labels: Array | None) -> float:
    name = metric_name(metric)
    try:
        value: Any = metric(outputs, labels)
    except Exception as error:
        raise InputError(
            f"metric {name!r} raised {type(error).__name__}: {' '.join(str(error).split())}",
            hint="it is called with {output name: array of all samples} and the labels, None without any",
        ) from error
    is_number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    if isinstance(value, np.ndarray) and value.shape == () and value.dtype.kind in "iuf":
        is_number = True
    if not is_number:
        kind = f"an array of shape {value.shape}" if isinstance(value, np.ndarray) else repr(value)
        raise InputError(f"metric {name!r} returned {kind}; accepted: one number, larger is better")
    return float(value)


def _class_axis(scores: tuple[int, ...], labels: tuple[int, ...]) -> int | None:
    """The axis of the classes: the last, or axis 1 of pictures, whose other sizes are those of the labels."""
    wanted = [size for size in labels if size != 1]
    for axis in (len(scores) - 1, 1):
        if 0 <= axis < len(scores):
            rest = [size for at, size in enumerate(scores) if at != axis and size != 1]
            if rest == wanted:
                return axis
    return None


def _rows_of(scores: Array, axis: int) -> Array:
    """Scores as (rows, classes), in float64; NaN is less than anything."""
    rows = np.moveaxis(scores, axis, -1).reshape(-1, scores.shape[axis]).astype(np.float64)
    return np.where(np.isnan(rows), -np.inf, rows)


def _are_probabilities(rows: Array) -> bool:
    """Whether the rows are what a softmax gives, rather than what it reads."""
    return bool(np.all(rows >= 0) and np.allclose(rows.sum(1), 1.0, atol=_TOLERANCE)) and rows.size > 0


def _logarithms(rows: Array) -> Array:
    return np.log(np.maximum(rows, LEAST_PROBABILITY))


def _batch_of(feed: "Feed") -> int:
    """The size of the first axis of the first input, 0 where it has none."""
    first = next(iter(feed.arrays.values()), None)
    return int(first.shape[0]) if first is not None and first.ndim else 0


def _joined_outputs(samples: Sequence[Outputs], batches: Sequence[int]) -> Outputs:
    return {name: _joined([sample[name] for sample in samples], batches, repr(name)) for name in samples[0]}


def _joined(arrays: Sequence[Array], batches: Sequence[int], what: str) -> Array:
    """All samples in one array: along the batch axis where they have one, else along a new first axis.

    Raises:
      SampleError: samples of other shapes.
    """
    has_batch = all(
        array.ndim and array.shape[0] == batch for array, batch in zip(arrays, batches, strict=True)
    )
    shapes = {array.shape[1:] if has_batch else array.shape for array in arrays}
    if len(shapes) > 1:
        raise SampleError(
            f"a metric sees all samples at once, and {what} differs in shape: {', '.join(map(str, shapes))}",
            hint="give samples of one shape",
        )
    return np.concatenate(arrays) if has_batch else np.stack(arrays)
