"""TrainingSpec: what a plan asks of training, as framework-free data. `groups` derives it.

An edge is a value in one type, between the kernel that makes it and those that read it so. Edges of one group
share their scale; zero points stay as the plan has them. Source: docs/howto/train-under-a-plan.md.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from planner.ir.types.qtypes import Storage, Uniform
from planner.training.written import spec_to_json

Moves: TypeAlias = Literal["free", "fixed", "derived"]


@dataclass(frozen=True, slots=True)
class Group:
    """A scale, or one per slice, that edges share.

    Attributes:
      scales: where training starts.
      moves: `free` to learn, `fixed`, or `derived`: the product of the groups in `of`.
      why: the rule or fact that a scale does not move by; "" where it moves.
      power_of_two: whether each scale is one.
      scale_min, scale_max: limits of the device; None where it has none.
      row: of the target (`file:line`) that says the limits, or fixes or derives the scale; "" for none.
      anchors: values whose range alone says the scale when the model is planned again: a cast at the border
        of the model, which has no type of its own.
    """

    name: str
    scales: tuple[float, ...]
    moves: Moves = "free"
    why: str = ""
    of: tuple[str, ...] = ()
    power_of_two: bool = False
    scale_min: float | None = None
    scale_max: float | None = None
    row: str = ""
    anchors: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Edge:
    """A value in one type.

    Attributes:
      made_by: the port that writes the value in this type, `@model` for an input of the model that is stored
        so; "" where consumers are given the type by a cast or a rescale.
      consumers: ports that read it in this type.
      group: name of the group that has its scales.
      axis, blocks, grid: as a uniform type has them.
      symmetric: whether the device wants zero point 0 there.
      own: whether the value itself has this type, so that a fact of the value can fix it.
    """

    value: str
    made_by: str
    consumers: tuple[str, ...]
    storage: Storage
    group: str
    zero_points: tuple[int, ...]
    axis: int | None = None
    blocks: tuple[tuple[int, int], ...] = ()
    grid: tuple[int, ...] = ()
    expressed: str = "f32"
    symmetric: bool = False
    own: bool = False


@dataclass(frozen=True, slots=True)
class TrainedConstant:
    """A constant, quantized once per type that a kernel wants it in.

    Attributes:
      edge: its type; `made_by` is "".
      narrow: whether the storage leaves the least integer out, as i8<-127:127> does.
      trained: whether its numbers may change; rows that ask for sparse weights, say, leave them as they are.
    """

    edge: Edge
    narrow: bool
    trained: bool = True


@dataclass(frozen=True, slots=True)
class Bias:
    """A constant on the grid of the products that it is added to.

    Attributes:
      of: groups whose scales make that grid.
      accumulator: storage of the sums, as text; "" where the row has none.
    """

    edge: Edge
    of: tuple[str, ...]
    accumulator: str


@dataclass(frozen=True, slots=True)
class TrainingSpec:
    """The requirements of a plan on training.

    Attributes:
      model: digest of the annotated model that the plan was made of.
      plan: key of the plan.
      target: id and version of the target.
      groups: by name.
      edges: of activations, in plan order.
    """

    model: str
    plan: str
    target: str
    groups: Mapping[str, Group]
    edges: tuple[Edge, ...]
    constants: tuple[TrainedConstant, ...]
    biases: tuple[Bias, ...]

    def type_of(self, edge: Edge, scales: Mapping[str, tuple[float, ...]] | None = None) -> Uniform:
        """The type of an edge, at its start or with other scales of the groups."""
        found = (scales or {}).get(edge.group) or self.groups[edge.group].scales
        places = (edge.expressed, edge.axis, edge.blocks, edge.grid)
        return Uniform(edge.storage, found, edge.zero_points, *places)

    @property
    def all_edges(self) -> tuple[Edge, ...]:
        """Those of activations, constants and biases."""
        return (*self.edges, *(c.edge for c in self.constants), *(bias.edge for bias in self.biases))

    def to_json(self) -> str:
        """The spec as `qplan.training/1`, for tools of other languages and frameworks."""
        return spec_to_json(self)
