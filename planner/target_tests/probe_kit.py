"""Probe kit: a small model for every row of a target, with inputs and the integers a device must answer with.

For a hardware team to run: each item is one kernel with integer inputs and results (floats where the row's
ports are), its float model, its plan, and, where a format can say it, a file. Expected integers are the
reference interpreter's, in the row's own arithmetic. Rows that no small model reaches are listed with the
reason. Source: docs/command.md.
"""

import io
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Final

import numpy as np

from planner.errors import PlannerError, unknown_name
from planner.formats.onnx.read import read_onnx
from planner.formats.onnx.write import write_graph
from planner.formats.table import EXPORTERS, file_name
from planner.fusion.fuse import fuse
from planner.ir.dtypes import NUMPY
from planner.ir.graph import Graph, Region
from planner.ir.types.qtypes import AnyType, FloatType, Storage, Uniform, storage
from planner.ir.types.ranges import uniform_from_range
from planner.ir.types.wanted import Wanted
from planner.pipeline import annotate, calibrate, check, evaluate
from planner.pipeline import plan as plan_model
from planner.plans.plan import Plan
from planner.target.ports.axes import channel_axis
from planner.target.records import PortPattern, PortType, Row, Target, without_formats
from planner.target.rules import expand_ports
from planner.target_tests.small_models import in_half, pruned, small_models, wants_half
from planner.target_tests.templates import POSITIVE

FORMAT: Final = "qplan.kit/1"
WIDEST: Final = 16
ODD: Final = storage("i6")
"""A width that no row names: a weight of this fixed type is left to the row that takes any."""
MOST_TRIES: Final = 6
"""Models that are tried for an alternative of a row that is reached already."""
TOLERANCE: Final = 1e-5
"""Tolerance of float results, as a share of the largest expected: sums have no fixed order."""
HALF_TOLERANCE: Final = 2.0**-10
"""The same of results in float16: a unit in the last place of the largest."""


@dataclass(frozen=True, slots=True, eq=False)
class KitItem:
    """One alternative of a row, exercised.

    Attributes:
      name: folder name, `conv2d-1`; `conv2d-1.2` for the second alternative of the first row.
      covers: its ops, the ports that are there, and the storage where the row takes any.
      row: `file:line`.
      model: the float model, ONNX.
      file: the planned model in the asked format; None where it cannot say the plan, with `refusal`.
      inputs, expected: stored integers by value name; float32 at float ports.
    """

    name: str
    covers: str
    kernel: str
    row: str
    model: bytes
    plan: Plan
    file: bytes | None
    refusal: str
    inputs: Mapping[str, np.ndarray]
    expected: Mapping[str, np.ndarray]


@dataclass(frozen=True, slots=True, eq=False)
class _Reached:
    """A model whose one kernel runs by the row in question, its plan, and its inputs."""

    covers: str
    graph: Graph
    plan: Plan
    inputs: Mapping[str, np.ndarray]


@dataclass(frozen=True, slots=True)
class Skipped:
    """A row that has no item, and why."""

    kernel: str
    row: str
    reason: str


@dataclass(frozen=True, slots=True, eq=False)
class Kit:
    """Items and skipped rows, together as many as the target has rows."""

    target: str
    digest: str
    form: str
    items: tuple[KitItem, ...]
    skipped: tuple[Skipped, ...]


def make_kit(
    target: Target,
    *,
    form: str = "onnx-qoperator",
    seed: int = 0,
    arithmetic: str | None = None,
    kernels: Sequence[str] = (),
) -> Kit:
    """Make the kit of a target.

    Args:
      target: a loaded target.
      form: the format of the planned files, a key of `EXPORTERS`.
      seed: of weights and inputs; the same seed gives the same kit.
      arithmetic: for the expected results, instead of each row's own.
      kernels: of these kernels only; of all without any.

    Raises:
      UnknownName: a kernel without a row.
    """
    for name in kernels:
        if name not in target.rows:
            raise unknown_name("kernel", name, target.rows)
    items: list[KitItem] = []
    skipped: list[Skipped] = []
    chosen = {kernel: rows for kernel, rows in target.rows.items() if not kernels or kernel in kernels}
    for kernel, rows in chosen.items():
        small = _small(target, kernel, seed)
        for number, row in enumerate(rows, 1):
            reached = _reach(target, row, small, seed)
            if isinstance(reached, str):
                skipped.append(Skipped(kernel, row.source, reached))
                continue
            name = f"{kernel.replace('::', '.')}-{number}"
            for count, alternative in enumerate(reached, 1):
                place = name if count == 1 else f"{name}.{count}"
                found = _finished(place, row, alternative, form, arithmetic)
                if isinstance(found, str):
                    skipped.append(Skipped(kernel, row.source, found))
                else:
                    items.append(found)
    return Kit(target.id, target.digest, form, tuple(items), tuple(skipped))


_README: Final = """Small models for rows of the target TARGET, with the integers that its device must answer.

kit.json lists the items and their types. In the folder of each:
  inputs.npz    stored integers, by the names of the model's inputs
  expected.npz  what the device must answer, by the names of its outputs
  FILE  the planned file; an item without one has its refusal in kit.json
  model.onnx, plan.json  the float model and its plan

Run each file on its inputs and save what it answers, by the names of expected.npz, as RESULTS/ITEM.npz or
RESULTS/ITEM/results.npz (numpy.savez). Then compare:

  qplan target kit --check THIS_FOLDER RESULTS
"""


def kit_files(kit: Kit) -> Mapping[str, bytes]:
    """The files of a kit by path: `kit.json`, `README.txt`, and a folder for each item."""
    index = {
        "format": FORMAT,
        "target": kit.target,
        "digest": kit.digest,
        "items": [
            {
                "name": item.name,
                "covers": item.covers,
                "kernel": item.kernel,
                "row": item.row,
                "file": kit.form if item.file is not None else None,
                "refusal": item.refusal or None,
                "inputs": _ports(item, item.inputs),
                "expected": _ports(item, item.expected),
            }
            for item in kit.items
        ],
        "skipped": [{"kernel": s.kernel, "row": s.row, "reason": s.reason} for s in kit.skipped],
    }
    files = {"kit.json": (json.dumps(index, indent=1) + "\n").encode()}
    files["README.txt"] = _README.replace("TARGET", kit.target).replace("FILE", file_name(kit.form)).encode()
    for item in kit.items:
        files[f"{item.name}/model.onnx"] = item.model
        files[f"{item.name}/plan.json"] = item.plan.to_json().encode()
        files[f"{item.name}/inputs.npz"] = _npz(item.inputs)
        files[f"{item.name}/expected.npz"] = _npz(item.expected)
        if item.file is not None:
            files[f"{item.name}/{file_name(kit.form)}"] = item.file
    return files


def _ports(item: KitItem, arrays: Mapping[str, np.ndarray]) -> dict[str, str]:
    return {name: _type_text(item.plan.graph, name) for name in arrays}


def _type_text(graph: Graph, name: str) -> str:
    value = graph.values[name]
    return next((str(fact) for fact in value.facts if isinstance(fact, Uniform)), value.dtype)


def _npz(arrays: Mapping[str, np.ndarray]) -> bytes:
    data = io.BytesIO()
    np.savez(data, **dict(arrays))  # type: ignore[arg-type]
    return data.getvalue()


@dataclass(frozen=True, slots=True, eq=False)
class _Small:
    """A small model that becomes one kernel, before anything is planned."""

    model: Graph
    region: Region


def _small(target: Target, kernel: str, seed: int) -> tuple[tuple[_Small, ...], str]:
    """The small models that become one kernel, for all its rows; and why there are no others."""
    found: list[_Small] = []
    reason = "no small model of this kernel is known"
    models = list(small_models(target, kernel, seed))
    if any(wants_half(row) for row in target.rows.get(kernel, ())):
        models += [in_half(model) for model in models]
    for written in models:
        # Read as a user reads it, so that the plan of an item belongs to its model.
        model = read_onnx(write_graph(written))
        regions = fuse(model, target).regions
        region = next((region for region in regions if region.kernel == kernel), None)
        if region is None or len(regions) != 1:
            reason = f"no small model becomes one {kernel}"
        else:
            found.append(_Small(model, region))
    return tuple(found), reason


def _reach(
    target: Target, row: Row, small: tuple[tuple[_Small, ...], str], seed: int
) -> tuple[_Reached, ...] | str:
    """For each alternative of a row the first small model whose kernel runs by it; or why there is none."""
    if row.float:
        return f"runs in {row.float}"
    every, reason = small
    is_half = wants_half(row)
    models = [one for one in every if is_half == any(v.dtype == "f16" for v in one.model.values.values())]
    found: dict[str, _Reached] = {}
    tries: Counter[str] = Counter()
    own = target.default_port.storage
    # An earlier row takes free weights: those are tried before weights pinned to this row's storage.
    for store, wild, one in product(_data_storages(own, row), (None, own, ODD), models):
        draft = _drafted(row, one, store)
        key = draft if isinstance(draft, str) else draft.covers
        # Once the row is reached, an alternative that a few models do not reach is another row's.
        if key in found or (found and tries[key] >= MOST_TRIES):
            continue
        tries[key] += 1
        try:
            reached = draft if isinstance(draft, str) else _reached(target, row, draft, seed, wild=wild)
        except PlannerError as error:
            reached = str(error)
        if isinstance(reached, str):
            reason = reached if reason.startswith("no small model") else reason
        else:
            found[key] = reached
    return tuple(found.values()) or reason


def _takes_any(row: Row) -> bool:
    return any(port.type.storage is None for port in row.inputs)


def _data_storages(own: Storage | FloatType | None, row: Row) -> tuple[Storage | FloatType | None, ...]:
    """Storages of data: the target's own, and as many again of 16 bits where a row takes any."""
    if isinstance(own, Storage) and own.bits < WIDEST and _takes_any(row):
        return own, storage(f"{'i' if own.signed else 'u'}{WIDEST}")
    return (own,)


@dataclass(frozen=True, slots=True, eq=False)
class _Drafted:
    """A small model whose kernel has a row's ports, with data of a storage; see `KitItem.covers`."""

    covers: str
    model: Graph
    region: Region
    ports: tuple[PortPattern, ...]
    store: Storage | FloatType | None


def _drafted(row: Row, small: _Small, store: Storage | FloatType | None) -> _Drafted | str:
    region = small.region
    ports = expand_ports(row.inputs, region.inputs)
    if ports is None:
        return "small models have other ports"
    words = [" ".join(op.type for op in region.ops)]
    there = {port.name for port, name in zip(ports, region.inputs, strict=True) if name}
    words += [f"without {port.name}" for port in row.inputs if port.optional and port.name not in there]
    words += [str(store)] if _takes_any(row) else []
    return _Drafted(", ".join(words), small.model, region, tuple(ports), store)


def _reached(
    target: Target, row: Row, draft: _Drafted, seed: int, *, wild: Storage | FloatType | None
) -> _Reached | str:
    """The model with integer inputs and results, if its kernel runs by `row`; else a message.

    Weights have fixed types unless `wild` is None, and that one where the row takes any storage.
    """
    region, patterns = draft.region, draft.ports
    model = pruned(draft.model, region, row, patterns)
    rng = np.random.default_rng(seed)
    least = 0.125 if _is_positive(model) else -1.0
    sample = {
        name: rng.uniform(least, 1, _sizes(model, name)).astype(NUMPY[model.values[name].dtype])
        for name in model.inputs
    }
    asks = row.dynamic is not None and not row.is_dynamic_at_will
    known = (
        _asking_for_bits(model, region, row) if asks else annotate(model, stats=calibrate(model, [sample]))
    )
    pins = {
        name: _pin(pattern.type, draft.store)
        for name, pattern in zip(region.inputs, patterns, strict=True)
        if name in model.inputs
    }
    if any(pin is None for pin in pins.values()):
        return "an input is no integer of at most 16 bits, nor float32"
    weights = {
        name: _held(model, name, _pin(pattern.type, wild))
        for name, pattern in zip(region.inputs, patterns, strict=True)
        if wild is not None and name in model.constants and _is_weight(pattern.type)
    }
    fixed = {name: pin for name, pin in pins.items() if not (asks and isinstance(pin, FloatType))}
    graph = _pinned(known, {**fixed, **weights})
    if not row.hands_on_floats:
        graph = _asked(graph, row, region, wild)
    whole = without_formats(target)
    plan = plan_model(graph, whole)
    if plan.kernels[region.name].row != row.key:
        # A row that other rows hide, or that wants a fact, serves where its storages are asked for.
        asked = replace(graph, wanted={**graph.wanted, region.name: _storages(row)})
        with suppress(PlannerError):
            graph, plan = asked, plan_model(asked, whole)
    if plan.kernels[region.name].row != row.key and (slices := _sliced(model, region, row, patterns)):
        # A row of weights per channel behind one of weights per tensor serves where they are pinned so.
        sliced = _pinned(graph, slices)
        with suppress(PlannerError):
            graph, plan = sliced, plan_model(sliced, whole)
    kernel = plan.kernels[region.name]
    if kernel.row is None:
        return str(kernel.reason)
    if kernel.row != row.key:
        return f"{plan.target.rows[kernel.row].source} is chosen first"
    results = {port.value: port.type for port in kernel.outputs if isinstance(port.type, Uniform)}
    graph = _pinned(graph, results)
    plan = plan_model(graph, whole)
    check(plan, graph, target)
    inputs = {
        name: _integers(rng, pin, graph, name) if isinstance(pin, Uniform) else sample[name]
        for name, pin in pins.items()
    }
    inputs |= {name: sample[name] for name in model.inputs if name not in inputs}
    return _Reached(draft.covers, graph, plan, inputs)


def _sliced(model: Graph, region: Region, row: Row, patterns: Sequence[PortPattern]) -> dict[str, Uniform]:
    """Types of symmetric weights with a scale for each slice along the row's axis."""
    found = {}
    for name, pattern in zip(region.inputs, patterns, strict=True):
        store, constant = pattern.type.storage, model.constants.get(name)
        if pattern.type.granularity != "axis" or not isinstance(store, Storage) or not pattern.type.symmetric:
            continue
        if constant is None or constant.array is None or constant.array.ndim < 2:
            continue
        role = row.axis.get(pattern.name, "out_channel")
        axis = role if isinstance(role, int) else channel_axis(region, model)
        others = tuple(i for i in range(constant.array.ndim) if i != axis % constant.array.ndim)
        most = np.abs(constant.array).max(others) / np.float32(store.qmax)
        scales = tuple(map(float, np.where(most > 0, most, 1).astype(np.float32)))
        found[name] = Uniform(store, scales, (0,) * len(scales), axis=axis % constant.array.ndim)
    return found


def _asking_for_bits(model: Graph, region: Region, row: Row) -> Graph:
    """The model without ranges, its first operand as a file has it whose kernels quantize it as they run."""
    name, by = region.inputs[0], row.dynamic
    facts = () if by is None else (AnyType(by.storage),)
    return replace(model, values={**model.values, name: replace(model.values[name], facts=facts)})


def _storages(row: Row) -> Wanted:
    """A wish for a row, by the storages of the ports that are always there."""
    sides = (
        tuple(port.type.storage for port in ports if not port.optional and not port.variadic)
        for ports in (row.inputs, row.outputs)
    )
    inputs, outputs = sides
    return Wanted(inputs=inputs, outputs=outputs)


def _pin(kind: PortType, wild: Storage | FloatType | None) -> Uniform | FloatType | None:
    """A type that a port takes, `wild` where it takes any storage; None: no width that the kit has."""
    store = kind.storage if kind.storage is not None else wild
    if isinstance(store, FloatType):
        return store if store == FloatType("f32") else None
    if store is None or store.bits > WIDEST:
        return None
    found = uniform_from_range(-1.0, 1.0, store, symmetric=kind.symmetric, power_of_two=kind.power_of_two)
    scale = min(max(found.scale, kind.scale_min or 0.0), kind.scale_max or found.scale)
    zero_point = found.zero_point if kind.zero_point is None else kind.zero_point
    return replace(found, scales=(scale,), zero_points=(zero_point,))


def _held(model: Graph, name: str, pin: Uniform | FloatType | None) -> Uniform | FloatType | None:
    """The type of weights; with their own reach where it would make all of them 0, which proves nothing."""
    array = model.constants[name].array
    if not isinstance(pin, Uniform) or array is None or np.any(np.rint(array / pin.scale)):
        return pin
    reach = float(np.abs(array).max(initial=0.0)) / pin.storage.qmax
    return replace(pin, scales=(float(np.float32(reach)) or pin.scale,))


def _asked(graph: Graph, row: Row, region: Region, wild: Storage | FloatType | None) -> Graph:
    """The model with quantized results required in the row's widths: a row with float results does not match.

    Args:
      wild: what a row of any width stores in this item.
    """
    patterns = expand_ports(row.outputs, region.outputs) or ()
    values = dict(graph.values)
    for name, pattern in zip(region.outputs, patterns, strict=False):
        store = pattern.type.storage or wild
        if name and isinstance(store, Storage):
            values[name] = replace(values[name], facts=(*values[name].facts, AnyType(store)))
    return replace(graph, values=values)


def _is_weight(kind: PortType) -> bool:
    store = kind.storage
    fits = store is None or (isinstance(store, Storage) and store.bits <= WIDEST)
    return fits and kind.granularity != "block"


def _pinned(graph: Graph, pins: Mapping[str, Any]) -> Graph:
    values = dict(graph.values)
    for name, pin in pins.items():
        facts = [fact for fact in values[name].facts if not isinstance(fact, Uniform)]
        values[name] = replace(values[name], facts=(*facts, pin))
    return replace(graph, values=values)


def _sizes(graph: Graph, name: str) -> tuple[int, ...]:
    return tuple(int(dim) for dim in graph.values[name].shape or () if isinstance(dim, int))


def _is_positive(graph: Graph) -> bool:
    return any(op.type in POSITIVE for op in graph.all_ops())


def _integers(rng: np.random.Generator, pin: Uniform, graph: Graph, name: str) -> np.ndarray:
    """Stored integers over the whole storage, the extremes among them."""
    store = pin.storage
    least = pin.zero_point + 1 if _is_positive(graph) else store.qmin
    drawn = rng.integers(least, store.qmax, _sizes(graph, name), endpoint=True)
    flat = drawn.reshape(-1)
    flat[: min(2, flat.size)] = (least, store.qmax)[: min(2, flat.size)]
    kind = {(8, True): np.int8, (8, False): np.uint8, (16, True): np.int16, (16, False): np.uint16}
    width = 8 if store.bits <= 8 else WIDEST
    return drawn.astype(kind[width, store.signed])


def _finished(name: str, row: Row, reached: _Reached, form: str, arithmetic: str | None) -> KitItem | str:
    """The item of a row; or why it has no expected integers."""
    graph, plan = reached.graph, reached.plan
    try:
        expected = evaluate(graph, plan, reached.inputs, arithmetic=arithmetic).outputs
    except PlannerError as error:
        return str(error)
    # Of ONNX's formats one alone has activations that are quantized at run time.
    form = "onnx-integer" if row.dynamic is not None and form.startswith("onnx-") else form
    try:
        file, refusal = EXPORTERS[form](graph, plan), ""
    except PlannerError as error:
        file, refusal = None, str(error)
    floats = replace(graph, values={n: replace(v, facts=()) for n, v in graph.values.items()})
    return KitItem(
        name=name,
        covers=reached.covers,
        kernel=row.kernel,
        row=row.source,
        model=write_graph(floats),
        plan=plan,
        file=file,
        refusal=refusal,
        inputs=reached.inputs,
        expected=dict(expected),
    )


def reproduced(item: KitItem, results: Mapping[str, np.ndarray]) -> Iterator[str]:
    """Say where a device's results differ from the expected integers; nothing where they do not."""
    for text in differences(item.expected, results):
        yield f"{item.name}: {text}"


def differences(expected: Mapping[str, np.ndarray], results: Mapping[str, np.ndarray]) -> Iterator[str]:
    """Say where results differ from expected integers, or from floats by more than `TOLERANCE`."""
    for name, wanted in expected.items():
        found = results.get(name)
        if found is None or found.shape != wanted.shape:
            yield f"{name} is missing or has another shape than {list(wanted.shape)}"
        elif not np.allclose(found, wanted, rtol=0, atol=_allowed(wanted)):
            off = np.abs(found.astype(np.float64) - wanted.astype(np.float64))
            count = int((off > _allowed(wanted)).sum())
            yield f"{count} of {off.size} elements of {name} differ, by {off.max():g} at most"


def _allowed(wanted: np.ndarray) -> float:
    share = HALF_TOLERANCE if wanted.dtype == np.float16 else TOLERANCE
    return share * float(np.abs(wanted).max(initial=0.0)) if wanted.dtype.kind == "f" else 0.0
