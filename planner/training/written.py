"""Writing a training spec: `qplan.training/1`, one group or edge a line; `document` reads it back.

Fields that say nothing are left out. Source: docs/howto/train-under-a-plan.md.
"""

from typing import TYPE_CHECKING, Any, Final

from planner.formats.annotated.jsontext import Lines, encode, write_lines

if TYPE_CHECKING:
    from planner.training.spec import Edge, Group, TrainingSpec

FORMAT: Final = "qplan.training/1"


def spec_to_json(spec: "TrainingSpec") -> str:
    """Write a spec, one group or edge a line."""
    return (
        write_lines(
            {
                "format": FORMAT,
                "model": spec.model,
                "plan": spec.plan,
                "target": spec.target,
                "groups": Lines(encode(_group_doc(group)) for group in spec.groups.values()),
                "edges": Lines(encode(_edge_doc(edge)) for edge in spec.edges),
                "constants": Lines(
                    encode(_edge_doc(item.edge) | {"narrow": item.narrow, "trained": item.trained})
                    for item in spec.constants
                ),
                "biases": Lines(
                    encode(_edge_doc(item.edge) | {"of": [*item.of], "accumulator": item.accumulator})
                    for item in spec.biases
                ),
            }
        )
        + "\n"
    )


def _says(field: Any) -> bool:
    """Whether a field differs from what a missing one means; axis 0 does."""
    return field is not None and field is not False and field not in ("", [])


def _group_doc(group: "Group") -> dict[str, Any]:
    fields = {
        "why": group.why,
        "of": [*group.of],
        "power_of_two": group.power_of_two,
        "scale_min": group.scale_min,
        "scale_max": group.scale_max,
        "row": group.row,
        "anchors": [*group.anchors],
    }
    head = {"name": group.name, "scales": [*group.scales], "moves": group.moves}
    return head | {key: value for key, value in fields.items() if _says(value)}


def _edge_doc(edge: "Edge") -> dict[str, Any]:
    fields = {
        "made_by": edge.made_by,
        "axis": edge.axis,
        "blocks": [[*block] for block in edge.blocks],
        "grid": [*edge.grid],
        "symmetric": edge.symmetric,
        "own": edge.own,
    }
    head: dict[str, Any] = {
        "value": edge.value,
        "consumers": [*edge.consumers],
        "storage": str(edge.storage),
        "group": edge.group,
        "zero_points": [*edge.zero_points],
    }
    head |= {"expressed": edge.expressed} if edge.expressed != "f32" else {}
    return head | {key: value for key, value in fields.items() if _says(value)}
