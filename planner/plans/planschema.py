"""Fields of a plan file, `qplan.plan/1`, as checked on reading. Source: docs/formats.md."""

from typing import Any, Final, Literal, NotRequired

from pydantic import TypeAdapter, with_config
from typing_extensions import TypedDict

from planner.formats.annotated.jsontext import STRICT
from planner.formats.annotated.schema import GraphDoc


@with_config(STRICT)
class TargetDoc(TypedDict):
    """The target as the plan saw it."""

    id: str
    version: str
    digest: str
    file: str
    rescale_single_consumer: bool
    costs: dict[str, float | None]
    rows: dict[str, dict[str, Any]]
    float_work: NotRequired[dict[str, float]]
    work_unit: NotRequired[str]
    engines: NotRequired[dict[str, Any]]
    files: NotRequired[dict[str, Any]]
    storages: NotRequired[list[str]]


# `in` and `from` are words of Python, so these two take the functional form.
KernelPlanDoc = TypedDict(
    "KernelPlanDoc",
    {
        "name": str,
        "kernel": str,
        "row": str | None,
        "reason": str | None,
        "inputs": list[str | None],
        "outputs": list[str | None],
        "in": list[str | None],
        "out": list[str | None],
        "accumulator_bits": int | None,
        "trip_count": int,
    },
)
with_config(STRICT)(KernelPlanDoc)

RescaleDoc = TypedDict(
    "RescaleDoc",
    {
        "id": str,
        "value": str,
        "from": str | None,
        "to": str | None,
        "consumers": list[str],
        "kind": str,
        "elements": int,
        "cost": float,
        "to_pin": NotRequired[bool],
    },
)
with_config(STRICT)(RescaleDoc)


@with_config(STRICT)
class ValuePlanDoc(TypedDict):
    """The outcome for one value."""

    type: str | None
    bits_lost: float
    clip: float
    decided_by: int | None


@with_config(STRICT)
class RefusedDoc(TypedDict):
    """An alternative not taken; cost null is infinite."""

    label: str
    cost: float | None
    why: NotRequired[str]


@with_config(STRICT)
class StepDoc(TypedDict):
    """One decision."""

    n: int
    port: str
    type: str
    rule: str
    source: str
    because: list[int]
    refused: list[RefusedDoc]


@with_config(STRICT)
class PlanRestDoc(TypedDict):
    """The parts of a plan that a quantized module does not show; in its `qplan.plan` attribute."""

    format: Literal["qplan.plan/1"]
    key: str
    model: str
    target: TargetDoc
    options: dict[str, Any]
    cost: float
    excused: NotRequired[float]
    optimal: bool
    bound: float
    warnings: list[str]
    words: NotRequired[int]
    values: dict[str, ValuePlanDoc]
    steps: list[StepDoc]
    sources: NotRequired[dict[str, str]]


@with_config(STRICT)
class PlanDoc(PlanRestDoc):
    """A whole plan file."""

    kernels: list[KernelPlanDoc]
    rescales: list[RescaleDoc]
    graph: GraphDoc


PLAN: Final = TypeAdapter(PlanDoc)
PLAN_REST: Final = TypeAdapter(PlanRestDoc)
