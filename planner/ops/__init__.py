"""Operators, one definition each. Frozen data and pure functions of one op; no format is known here."""

from collections.abc import Mapping
from typing import Final

from planner.ops import picks, reshapes, resizing
from planner.ops.definition import OpDef

OPERATORS: Final[Mapping[str, OpDef]] = {
    one.name: one
    for one in (
        OpDef("Concat", picks.joined),
        OpDef("DepthToSpace", reshapes.depth_to_space),
        OpDef("Dropout", reshapes.same),
        OpDef("Expand", picks.expanded),
        OpDef("Flatten", reshapes.reshaped),
        OpDef("Gather", picks.gathered),
        OpDef("GatherElements", picks.gathered_by_elements),
        OpDef("GatherND", picks.gathered_by_tuples),
        OpDef("Identity", reshapes.same),
        OpDef("Pad", picks.padded),
        OpDef("Reshape", reshapes.reshaped),
        OpDef("Resize", resizing.nearest),
        OpDef("Slice", picks.sliced),
        OpDef("SpaceToDepth", reshapes.space_to_depth),
        OpDef("Split", picks.split),
        OpDef("Squeeze", reshapes.reshaped),
        OpDef("Tile", picks.tiled),
        OpDef("Transpose", reshapes.transposed),
        OpDef("Unsqueeze", reshapes.reshaped),
    )
}
