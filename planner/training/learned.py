"""Learned: the weights and scales that training found, their file, and a model that has them as facts.

Nothing is applied before everything fits: the spec's model, every name, every number, every limit of a row.
Source: docs/howto/train-under-a-plan.md.
"""

import io
import math
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from planner.errors import InputError, expect, unknown_name
from planner.factors.form import with_sizes_fixed
from planner.ir.expand import expand
from planner.ir.graph import Constant, Graph, Value, model_digest
from planner.ir.types.fit import misfit
from planner.ir.types.qtypes import F32_TINY, Calibrated, QType, Uniform, round_scales
from planner.training.document import spec_from_json
from planner.training.spec import Edge, Group, TrainingSpec

Array: TypeAlias = npt.NDArray[Any]
SPEC: Final = "spec"
SCALES: Final = "scales/"
CONSTANTS: Final = "constants/"
MOST_SPEC: Final = 1 << 28
"""Bytes of a spec that is read from a file."""


@dataclass(frozen=True, slots=True, eq=False)
class Learned:
    """The result of training under a spec.

    Attributes:
      scales: of every group but derived ones, by its name.
      constants: the numbers of the constants that changed, by name.
    """

    spec: TrainingSpec
    scales: Mapping[str, tuple[float, ...]]
    constants: Mapping[str, Array]

    def save(self, path: str | Path) -> None:
        """Write a `.npz` that `with_learned` reads."""
        arrays = {SPEC: np.frombuffer(self.spec.to_json().encode(), np.uint8)}
        arrays |= {f"{SCALES}{name}": np.asarray(scales, np.float64) for name, scales in self.scales.items()}
        arrays |= {f"{CONSTANTS}{name}": array for name, array in self.constants.items()}
        buffer = io.BytesIO()
        # `savez` takes names as keywords, which a value called `file` would be in the way of.
        with zipfile.ZipFile(buffer, "w") as archive:
            for name, array in arrays.items():
                entry = io.BytesIO()
                np.save(entry, array, allow_pickle=False)
                archive.writestr(f"{name}.npy", entry.getvalue())
        Path(path).write_bytes(buffer.getvalue())


def read_learned(path: str | Path) -> Learned:
    """Read a file of `Learned.save`.

    Raises:
      InputError: no such file, or one that holds anything else.
      PlanFormatError: its spec is of another version, or breaks the schema.
    """
    try:
        with np.load(Path(path), allow_pickle=False) as archive:
            found = {name: archive[name] for name in archive.files}
    except (OSError, TypeError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise InputError(f"{path}: no file of learned scales and weights: {error}") from error
    text = found.pop(SPEC, None)
    if text is None or text.dtype != np.uint8 or text.nbytes > MOST_SPEC:
        raise InputError(f"{path}: no file of learned scales and weights: it has no {SPEC!r}")
    odd = [name for name in found if not name.startswith((SCALES, CONSTANTS))]
    if odd:
        raise InputError(f"{path}: unknown array {odd[0]!r}; accepted: {SCALES}GROUP and {CONSTANTS}NAME")
    scales = {
        name.removeprefix(SCALES): tuple(array.astype(np.float64).reshape(-1).tolist())
        for name, array in found.items()
        if name.startswith(SCALES)
    }
    constants = {
        name.removeprefix(CONSTANTS): array for name, array in found.items() if name.startswith(CONSTANTS)
    }
    return Learned(spec_from_json(text.tobytes()), scales, constants)


def with_learned(model: Graph, learned: Any) -> Graph:
    """Return the model with learned numbers in its constants and learned scales as fixed types.

    Planning it again for the same target gives the types, rescales and rows of the plan that was trained
    under, with the learned scales.

    Args:
      model: the annotated model that the plan was made of.
      learned: a module of `planner.torch.fake_quantized`, a file that it saved, or a `Learned`.

    Raises:
      InputError: a spec of another model; numbers that are none; a scale that is 0, beyond a limit of its
        row, or moved although it is fixed. Names value, group and row.
      UnknownName: a group or constant that the spec does not have.
    """
    expect(model, Graph, "a model is the result of load_model or annotate")
    found = learned.learned() if hasattr(learned, "learned") else learned
    found = read_learned(found) if isinstance(found, str | Path) else found
    expect(found, Learned, "learned is a module, its file, or a Learned")
    flat = _model_of(expand(model), found.spec)
    scales = _checked_scales(found)
    constants = _checked_constants(flat, found)
    values = {**flat.values, **_facts(flat, found.spec, scales)}
    return replace(flat, values=values, constants={**flat.constants, **constants})


def _model_of(flat: Graph, spec: TrainingSpec) -> Graph:
    """The model with the values that the plan was made of.

    Raises:
      InputError: a spec of another model.
    """
    if model_digest(flat) == spec.model:
        return flat
    sized = with_sizes_fixed(flat)
    if model_digest(sized) == spec.model:
        # Sizes that the plan fixed stay open where the same values are there.
        return flat if all(edge.value in flat.values for edge in spec.all_edges) else sized
    raise InputError(
        f"the spec was made of another model than {flat.name!r} ({spec.model[:19]}, this is "
        f"{model_digest(flat)[:19]})",
        hint="give the annotated model that the plan was made of, as planner.plan got it",
    )


def _checked_scales(learned: Learned) -> dict[str, tuple[float, ...]]:
    groups = learned.spec.groups
    for name in learned.scales:
        if name not in groups:
            raise unknown_name("group of scales", name, groups)
    found: dict[str, tuple[float, ...]] = {}
    for name, group in groups.items():
        if group.moves == "derived":
            continue
        if name not in learned.scales:
            raise InputError(f"{_told(learned.spec, group)}: nothing was learned of it")
        found[name] = _checked(learned.spec, group, learned.scales[name])
    return found


def _checked(spec: TrainingSpec, group: Group, scales: tuple[float, ...]) -> tuple[float, ...]:
    """The scales of a group, each a value of its expressed type."""
    where = _told(spec, group)
    if len(scales) != len(group.scales):
        raise InputError(f"{where}: {len(scales)} scales for {len(group.scales)} slices")
    expressed = next((edge.expressed for edge in spec.all_edges if edge.group == group.name), "f32")
    for scale in scales:
        if not math.isfinite(scale):
            raise InputError(f"{where}: the scale is {scale!r}", hint="train with a smaller learning rate")
        if scale <= 0 or float(np.float32(scale)) < F32_TINY:
            raise InputError(f"{where}: the scale is {scale!r}", hint="a scale is above 0, and of float32")
        if group.scale_min is not None and scale < group.scale_min:
            raise InputError(
                f"{where}: the scale {scale!r} is below the least of its row, {group.scale_min!r}"
            )
        if group.scale_max is not None and scale > group.scale_max:
            raise InputError(
                f"{where}: the scale {scale!r} is above the greatest of its row, {group.scale_max!r}"
            )
        if group.power_of_two and math.frexp(scale)[0] != 0.5:
            raise InputError(f"{where}: the scale {scale!r} is no power of two")
    rounded = tuple(round_scales(scales, expressed))
    if group.moves == "fixed" and rounded != group.scales:
        raise InputError(f"{where}: the scale moved, and is fixed: {group.why}")
    return rounded


def _told(spec: TrainingSpec, group: Group) -> str:
    """Value, group and row, for messages."""
    value = next((edge.value for edge in spec.all_edges if edge.group == group.name), group.name)
    row = f", {spec.target} {group.row}" if group.row else ""
    return f"value {value!r} (group {group.name!r}{row})"


def _checked_constants(model: Graph, learned: Learned) -> dict[str, Constant]:
    frozen = {item.edge.value for item in learned.spec.constants if not item.trained}
    found: dict[str, Constant] = {}
    for name, array in learned.constants.items():
        known = model.constants.get(name)
        if known is None or known.array is None:
            raise unknown_name("constant", name, model.constants)
        if array.shape != known.array.shape or array.dtype.kind != "f":
            raise InputError(
                f"constant {name!r}: {array.dtype} of shape {array.shape}; accepted: floats of shape "
                f"{known.array.shape}"
            )
        if not np.isfinite(array).all():
            raise InputError(
                f"constant {name!r}: {int((~np.isfinite(array)).sum())} numbers are NaN or infinite"
            )
        if name in frozen and not np.array_equal(array, known.array):
            raise InputError(f"constant {name!r}: its numbers changed, and its row leaves them as they are")
        numbers = array.astype(known.array.dtype)
        numbers.flags.writeable = False
        found[name] = replace(known, array=numbers)
    return found


def _facts(model: Graph, spec: TrainingSpec, scales: Mapping[str, tuple[float, ...]]) -> dict[str, Value]:
    """The values with their facts: a fixed type, or for what has none of its own the range that gives it."""
    found: dict[str, Value] = {}
    for edge in (*spec.edges, *(item.edge for item in spec.constants)):
        group, value = spec.groups[edge.group], model.values[edge.value]
        is_constant = edge.value in model.constants
        if edge.value in group.anchors:
            is_only = edge.own or not any(other.own for other in spec.edges if other.value == edge.value)
            facts = _ranged(value, spec, edge, scales) if is_only else value.facts
        elif edge.own or is_constant:
            facts = _pinned(value, spec, edge, scales, is_constant=is_constant)
        else:
            continue
        found[edge.value] = replace(value, facts=facts)
    for edge in spec.edges:
        if not edge.own and edge.value in found:
            value = found[edge.value]
            found[edge.value] = replace(value, facts=_narrowed(value, spec, edge, scales))
    for edge in (*spec.edges, *(item.edge for item in spec.constants)):
        for fact in found[edge.value].facts if edge.value in found else ():
            if problem := misfit(fact, model.values[edge.value]):
                raise InputError(f"{_told(spec, spec.groups[edge.group])}: {problem}")
    return found


def _narrowed(
    value: Value, spec: TrainingSpec, edge: Edge, scales: Mapping[str, tuple[float, ...]]
) -> tuple[QType, ...]:
    """Facts of a value of a fixed type, its range no wider than another type that consumers read it in.

    A scale that shrank would not hold the range, and another one would be made for it, with a rescale more.
    """
    kind = spec.type_of(edge, scales)
    has_type = any(isinstance(fact, Uniform) for fact in value.facts)
    if not has_type or not kind.is_per_tensor or kind.scale >= spec.type_of(edge).scale:
        return value.facts
    lo, hi = _ends(edge, kind)
    return tuple(
        replace(
            fact,
            los=tuple(min(max(number, lo), hi) for number in fact.los),
            his=tuple(min(max(number, lo), hi) for number in fact.his),
        )
        if isinstance(fact, Calibrated)
        else fact
        for fact in value.facts
    )


def _ends(edge: Edge, kind: Uniform) -> tuple[float, float]:
    """The range that gives exactly a type."""
    if not edge.symmetric:
        return kind.lo, kind.hi
    steps = min(-edge.storage.qmin, edge.storage.qmax) * kind.scale
    return (-steps, steps) if edge.storage.signed else (0.0, kind.hi)


def _ranged(
    value: Value, spec: TrainingSpec, edge: Edge, scales: Mapping[str, tuple[float, ...]]
) -> tuple[QType, ...]:
    """Facts of a value whose observed range becomes the one that gives exactly the learned type."""
    if spec.groups[edge.group].moves != "free" or any(isinstance(fact, Uniform) for fact in value.facts):
        return value.facts
    kind = spec.type_of(edge, scales)
    lo, hi = _ends(edge, kind)
    return (*_others(value.facts), Calibrated((lo,), (hi,), edge.expressed))


def _pinned(
    value: Value,
    spec: TrainingSpec,
    edge: Edge,
    scales: Mapping[str, tuple[float, ...]],
    *,
    is_constant: bool,
) -> tuple[QType, ...]:
    kind = spec.type_of(edge, scales)
    old = next((fact for fact in value.facts if isinstance(fact, Calibrated)), None)
    if is_constant or old is None:
        return (kind, *(() if old is None else (old,)))
    times = kind.scale / spec.groups[edge.group].scales[0]
    los, his = (tuple(number * times for number in side) for side in (old.los, old.his))
    return (kind, Calibrated(los, his, old.expressed, old.axis))


def _others(facts: Iterable[QType]) -> tuple[QType, ...]:
    return tuple(fact for fact in facts if not isinstance(fact, Calibrated))
