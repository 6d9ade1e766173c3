"""Reading a training spec: `qplan.training/1`, checked by field; `TrainingSpec.to_json` writes it.

`training.schema.json` is `json_schema`, a test compares. Source: docs/howto/train-under-a-plan.md.
"""

import json
import math
from typing import Any, Final, Literal, NotRequired

from pydantic import TypeAdapter, with_config
from typing_extensions import TypedDict

from planner.errors import PlanFormatError, QTypeError
from planner.formats.annotated.jsontext import STRICT, read_checked
from planner.ir.types.typetext import parse_storage
from planner.training.spec import Bias, Edge, Group, Moves, TrainedConstant, TrainingSpec
from planner.training.written import FORMAT


@with_config(STRICT)
class GroupDoc(TypedDict):
    """A scale, or one per slice, that edges share."""

    name: str
    scales: list[float]
    moves: Moves
    why: NotRequired[str]
    of: NotRequired[list[str]]
    power_of_two: NotRequired[bool]
    scale_min: NotRequired[float]
    scale_max: NotRequired[float]
    row: NotRequired[str]
    anchors: NotRequired[list[str]]


@with_config(STRICT)
class EdgeDoc(TypedDict):
    """A value in one type."""

    value: str
    consumers: list[str]
    storage: str
    group: str
    zero_points: list[int]
    made_by: NotRequired[str]
    axis: NotRequired[int]
    blocks: NotRequired[list[tuple[int, int]]]
    grid: NotRequired[list[int]]
    expressed: NotRequired[str]
    symmetric: NotRequired[bool]
    own: NotRequired[bool]


@with_config(STRICT)
class ConstantDoc(EdgeDoc):
    """A constant that is quantized."""

    narrow: bool
    trained: bool


@with_config(STRICT)
class BiasDoc(EdgeDoc):
    """A constant on the grid of the products that it is added to."""

    of: list[str]
    accumulator: str


@with_config(STRICT)
class SpecDoc(TypedDict):
    """A whole file."""

    format: Literal["qplan.training/1"]
    model: str
    plan: str
    target: str
    groups: list[GroupDoc]
    edges: list[EdgeDoc]
    constants: list[ConstantDoc]
    biases: list[BiasDoc]


SPEC: Final = TypeAdapter(SpecDoc)


def json_schema() -> dict[str, Any]:
    """The JSON Schema of the file."""
    schema = SPEC.json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": FORMAT, **schema}


def spec_from_json(text: str | bytes) -> TrainingSpec:
    """Read a spec.

    Raises:
      PlanFormatError: another format or version, an unknown or missing field, an edge of a group that is not
        there, with the path.
    """
    document = read_checked(text, SPEC, FORMAT)
    groups: dict[str, Group] = {}
    for i, entry in enumerate(document["groups"]):
        if entry["name"] in groups:
            raise PlanFormatError(f"groups[{i}].name: two groups are named {entry['name']!r}")
        groups[entry["name"]] = _group_of(entry, f"groups[{i}]")
    for i, entry in enumerate(document["groups"]):
        for name in entry.get("of", ()):
            _known(name, groups, f"groups[{i}].of")
    spec = TrainingSpec(
        document["model"],
        document["plan"],
        document["target"],
        groups,
        tuple(_edge_of(entry, groups, f"edges[{i}]") for i, entry in enumerate(document["edges"])),
        tuple(
            TrainedConstant(
                _edge_of(entry, groups, f"constants[{i}]"), narrow=entry["narrow"], trained=entry["trained"]
            )
            for i, entry in enumerate(document["constants"])
        ),
        tuple(
            Bias(_edge_of(entry, groups, f"biases[{i}]"), tuple(entry["of"]), entry["accumulator"])
            for i, entry in enumerate(document["biases"])
        ),
    )
    for edge in spec.all_edges:
        try:
            spec.type_of(edge)
        except QTypeError as error:
            raise PlanFormatError(f"value {edge.value!r}: {error}") from None
    return spec


def _group_of(entry: GroupDoc, path: str) -> Group:
    limits = entry.get("scale_min"), entry.get("scale_max")
    if not entry["scales"] or not all(math.isfinite(scale) and scale > 0 for scale in entry["scales"]):
        raise PlanFormatError(f"{path}.scales: one or more numbers above 0")
    return Group(
        entry["name"],
        tuple(entry["scales"]),
        entry["moves"],
        entry.get("why", ""),
        tuple(entry.get("of", ())),
        entry.get("power_of_two", False),
        *limits,
        entry.get("row", ""),
        tuple(entry.get("anchors", ())),
    )


def _edge_of(entry: EdgeDoc, groups: dict[str, Group], path: str) -> Edge:
    _known(entry["group"], groups, f"{path}.group")
    try:
        store = parse_storage(entry["storage"])
    except QTypeError as error:
        raise PlanFormatError(f"{path}.storage: {error}") from None
    return Edge(
        entry["value"],
        entry.get("made_by", ""),
        tuple(entry["consumers"]),
        store,
        entry["group"],
        tuple(entry["zero_points"]),
        entry.get("axis"),
        tuple((axis, size) for axis, size in entry.get("blocks", ())),
        tuple(entry.get("grid", ())),
        entry.get("expressed", "f32"),
        symmetric=entry.get("symmetric", False),
        own=entry.get("own", False),
    )


def _known(name: str, groups: dict[str, Group], path: str) -> None:
    if name not in groups:
        raise PlanFormatError(f"{path}: there is no group {name!r}")


def schema_text() -> str:
    """The shipped file."""
    return json.dumps(json_schema(), indent=1, ensure_ascii=False) + "\n"
