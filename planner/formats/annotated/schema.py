"""Fields of an annotated model, `qplan.annotated/1`, checked on reading; plan files hold a graph of them.

Source: docs/formats.md.
"""

from typing import Any, Final, Literal, NotRequired

from pydantic import TypeAdapter, with_config
from typing_extensions import TypedDict

from planner.formats.annotated.jsontext import STRICT
from planner.formats.annotated.structure import LoopDoc, ScopeDoc

VERSION: Final = "qplan.annotated/1"
"""The `format` of this file."""


@with_config(STRICT)
class ConstantDoc(TypedDict):
    """`range` [lo, hi], or a list of them with `axis`; or `value`, a nested list or a tagged array."""

    range: NotRequired[list[float | list[float]]]
    axis: NotRequired[int]
    value: NotRequired[Any]


@with_config(STRICT)
class ValueDoc(TypedDict):
    """A tensor; `shape` null is an unknown rank, a null or named dimension an unknown size.

    `seen` are its sizes on the largest sample, where `shape` leaves some open; `varies` the axes that had
    others.
    """

    name: str
    shape: NotRequired[list[int | str | None] | None]
    dtype: NotRequired[str]
    seen: NotRequired[list[int]]
    varies: NotRequired[list[int]]
    constraints: NotRequired[list[str]]
    constant: NotRequired[ConstantDoc]


@with_config(STRICT)
class OpDoc(TypedDict):
    """A source op inside a kernel."""

    name: str
    type: str
    inputs: list[str | None]
    outputs: list[str | None]
    attributes: NotRequired[dict[str, Any]]
    captures: NotRequired[list[str]]
    scope: NotRequired[str]


@with_config(STRICT)
class KernelDoc(TypedDict):
    """A logical kernel; null is an absent optional port."""

    name: NotRequired[str]
    kernel: str
    inputs: list[str | None]
    outputs: list[str | None]
    attributes: NotRequired[dict[str, Any]]
    trip_count: NotRequired[int]
    ops: NotRequired[list[OpDoc]]
    input_facts: NotRequired[list[list[str]]]
    output_facts: NotRequired[list[list[str]]]
    reason: NotRequired[str]
    scope: NotRequired[str]
    call: NotRequired[str]
    loop: NotRequired[LoopDoc]
    branches: NotRequired[list[str]]


@with_config(STRICT)
class GraphDoc(TypedDict):
    """The structure of a model, as it also stands in a plan file under `graph`."""

    name: str
    values: list[ValueDoc]
    kernels: list[KernelDoc]
    inputs: list[str]
    outputs: list[str]
    ops: NotRequired[list[OpDoc]]
    opsets: NotRequired[dict[str, int]]
    notes: NotRequired[list[str]]
    scopes: NotRequired[list[ScopeDoc]]
    wanted: NotRequired[dict[str, str | dict[str, list[str]]]]
    caches: NotRequired[list[tuple[str, str]]]
    scaled: NotRequired[list[tuple[str, str, float | None]]]
    modules: NotRequired[dict[str, list[str]]]
    metadata: NotRequired[dict[str, str]]


@with_config(STRICT)
class AnnotatedDoc(GraphDoc):
    """A whole annotated model file."""

    format: Literal["qplan.annotated/1"]
    functions: NotRequired[list[GraphDoc]]


ANNOTATED: Final = TypeAdapter(AnnotatedDoc)
