"""The tables of docs/reference/target-keys.md: every key with its place, default, meaning and an example.

Made from the JSON Schema; `docs/site/reference.py` writes the page.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from planner.target.docs.jsonschema import json_schema
from planner.target.docs.support import value_text

PLACES: Final[Mapping[str, str]] = {
    "Document": "The file",
    "TypeModel": "A type: `types.NAME`, `defaults.port`, or in a row",
    "DefaultsModel": "`defaults`",
    "RescaleModel": "`rescale`",
    "RescaleCostModel": "`rescale.cost`",
    "CostsModel": "`costs`",
    "FusionModel": "An entry of `fusions`",
    "BlockModel": "An entry of `blocks`",
    "LegalizeModel": "An entry of `legalize`",
    "RowModel": "An entry of `kernels`",
    "RemoveModel": "`kernels[].remove`, in part",
    "MultiplierModel": "`requantize`, of multipliers of the device's own",
    "AccumulatorModel": "`kernels[].accumulator`, in full",
    "TableModel": "`kernels[].table`",
    "DynamicModel": "`kernels[].dynamic`",
    "PartialSumsModel": "`partial` of an accumulator",
    "EnginesModel": "`engines`",
    "FilesModel": "`files`",
    "WorkModel": "`kernels[].work`, `defaults.work` and `float_work`",
    "GroupModel": "`kernels[].kernel`, for all ops of a group",
    "RuleModel": "An entry of `rules`: one of",
    "SameScaleModel": "`same_scale`, in full",
    "FixedScaleModel": "`fixed_scale`",
    "MultiplierScaleModel": "`multiplier_scale`",
    "AccumulatorScaleModel": "`multiplier_accumulator_scale`",
    "FreeScaleModel": "`free_scale`, in full",
    "DeriveModel": "`derive`",
    "FnModel": "`fn`, in full",
    "CaseModel": "An entry of `tests`",
    "ExpectModel": "`expect` of a test",
    "ExpectTypeModel": "A type that a test expects, in full",
}
"""Heading of each model's table, in order."""


def key_tables() -> str:
    """Write the tables as Markdown."""
    schema = json_schema()
    models = {"Document": schema, **schema["definitions"]}
    return "\n".join(f"### {PLACES[name]}\n{_table(models[name])}" for name in PLACES)


def _table(model: Mapping[str, Any]) -> str:
    rows = "".join(_rows(model))
    return f"| key | default | meaning | example |\n|---|---|---|---|\n{rows}"


def _rows(model: Mapping[str, Any]) -> Iterator[str]:
    required = model.get("required", ())
    for key, field in model["properties"].items():
        default = "required" if key in required else _default(field)
        example = json.loads(json.dumps(field["examples"][0]))
        words, is_alone = _accepted(field)
        accepted = ", ".join(f"`{value_text(word)}`" for word in words)
        meaning = field["description"] + (f" One of {accepted}." if words and is_alone else "")
        meaning += f" One of {accepted}, or in full." if words and not is_alone else ""
        cells = (f"`{key}`", default, meaning, f"`{value_text(example).strip()}`")
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


def _accepted(field: Mapping[str, Any]) -> tuple[list[Any], bool]:
    """The words of a field that takes no other text, and whether it takes text alone."""
    members = [one for one in field.get("anyOf", field.get("oneOf", [field])) if one.get("type") != "null"]
    members = [more for one in members for more in one.get("oneOf", [one])]
    texts = [one for one in members if "$ref" not in one]
    return (list(texts[0].get("enum", ())) if len(texts) == 1 else []), len(members) == 1


def _default(field: Mapping[str, Any]) -> str:
    default = field.get("default")
    if default is None or default in ([], {}, "") or isinstance(default, dict):
        return "none"
    return f"`{value_text(default)}`"
