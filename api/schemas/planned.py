"""Planned: answers about plans, and what would change in them."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from .measured import PlanQuality, VerdictRecord
from .requests import Digest


class PlanRecord(BaseModel):
    """A stored plan; `model` and `stats` are null where the request brought them itself, or had none."""

    key: Digest
    bytes: int
    link: str
    model: str | None = None
    stats: str | None = None
    target: str | None = None
    edits: int | None = None
    version: str | None = None
    quality: PlanQuality | None = Field(default=None, description="by the last comparison that named it")


class PlanPage(BaseModel):
    """Some of the plans; `next` is the cursor of the following page."""

    items: list[PlanRecord]
    next: str | None


class OfferRecord(BaseModel):
    """The storages that edits may request for kernels of one kind, and for their inputs and outputs."""

    kernel: list[str]
    inputs: list[list[str]] = Field(alias="in")
    outputs: list[list[str]] = Field(alias="out")


class CardRecord(BaseModel):
    """A card above the drawing: a figure with its unit, lines below it, and causes of float kernels."""

    title: str
    figure: str
    level: Literal["", "good", "fair", "poor"] = Field(description="empty where nothing grades the figure")
    notes: list[str]
    causes: list[str]


class PlanView(BaseModel):
    """The drawing of a plan: columns in place of records, texts by their places in `texts`."""

    model_config = ConfigDict(extra="allow")
    format: Literal["qplan.view/1"]
    kinds: list[str] = Field(description="names that `nodes.kind` indexes")
    depth: int = Field(description="how many steps behind one another an explanation has")
    wordings: dict[str, str] = Field(description="the sentence of a step, by its rule; `` for other rules")
    nodes: dict[str, list[Any]]
    groups: dict[str, list[Any]]
    order: list[int]
    ports: dict[str, list[Any]]
    edges: dict[str, list[Any]]
    rescales: dict[str, list[Any]]
    values: dict[str, list[Any]]
    steps: dict[str, list[Any]]
    texts: list[str]
    log_texts: int = Field(description="the place in `texts` from which on only `steps` needs them")
    offers: list[OfferRecord] = Field(description="edits of the target that `nodes.offer` indexes")
    floats: dict[str, list[Any]] = Field(description="causes of float kernels: a text, and its nodes")
    cards: list[CardRecord]
    changes: dict[str, Any] | None
    before: dict[str, Any] | None = Field(description="the drawing of the plan before, where one is named")
    page: dict[str, Any]


class Explanation(BaseModel):
    """Why a port, value, kernel or rescale is as it is."""

    plan: Digest
    address: str
    lines: list[str]


class PortRecord(BaseModel):
    """A port of a plan; a type of null is float, and the rule is the one that decided last."""

    address: str
    kernel: str
    side: Literal["in", "out"]
    value: str
    type: str | None
    rule: str | None


class PortPage(BaseModel):
    """Some of the ports of a plan, in plan order; `next` is the cursor of the following page."""

    plan: Digest
    items: list[PortRecord]
    next: str | None


class Suggestion(BaseModel):
    """Edits that remove a rescale; pairs are (before, after) of the whole plan."""

    edits: dict[str, Any]
    text: str
    cut: float
    cut_at: str
    lost: float
    lost_at: str
    decibels: float
    price: tuple[float, float]
    rescales: tuple[int, int]
    worst_bits_lost: tuple[float, float]
    excused: tuple[float, float] = Field(description="of the prices, the part that facts excuse")


class Suggestions(BaseModel):
    """Verified edits, smallest first, and the same in words."""

    plan: Digest
    rescale: str
    suggestions: list[Suggestion]
    lines: list[str]


class Tradeoff(BaseModel):
    """One point of a front; `max_bits_lost` as an option gives it."""

    max_bits_lost: float | None
    rescaled_elements: int
    rescales: int
    worst_bits_lost: float
    types: dict[str, str]
    chosen: bool


class Tradeoffs(BaseModel):
    """The front of a component, fewest rescaled elements first, and the same in words."""

    plan: Digest
    component: str
    tradeoffs: list[Tradeoff]
    lines: list[str]


class Change(BaseModel):
    """Something that differs between two plans; empty is on one side only."""

    at: str
    before: str
    after: str
    why: str


class Difference(BaseModel):
    """The differences between two plans, also in words."""

    before: Digest
    after: Digest
    same: bool
    format: Literal["qplan.diff/1"]
    kernels: list[Change]
    ports: list[Change]
    rescales: list[Change]
    totals: dict[str, tuple[float, float]]
    lines: list[str]


class Preview(BaseModel):
    """The changes that edits would make in a plan, at most 1,000 of each kind, also in words."""

    plan: Digest
    same: bool
    touched: list[str] = Field(description="kernels at which something changes, with consumers of rescales")
    kernels: list[Change]
    ports: list[Change]
    rescales: list[Change]
    totals: dict[str, tuple[float, float]]
    lines: list[str]


class PlanSummary(BaseModel):
    """Totals of a plan; `reasons` says why kernels run in float, and how many of them for each reason."""

    plan: Digest
    model: str
    target: str
    kernels: int
    integer: int
    rescales: int
    casts: int
    cost: float
    excused: float = Field(
        description="price of bits that facts force consumers to lose; plans compare by its sum with the cost"
    )
    optimal: bool
    work: float
    work_unit: str
    weight_bytes: tuple[float, float] = Field(description="of the model, and as planned")
    reasons: dict[str, int]
    formats: list[str] = Field(
        default_factory=list, description="that the tools of the target read; none where it names none"
    )
    causes: list[str] = Field(
        default_factory=list, description="the reasons in sentences, those of one cause together"
    )
    warnings: list[str]
    verdict: VerdictRecord | None = Field(
        default=None, description="of the plan alone, by its coverage; `quality` has that of a file"
    )
    quality: PlanQuality | None = Field(default=None, description="null before the first comparison")
