"""The shipped JSON Schema: by an independent validator, every shipped file fits it and broken ones do not."""

import json
from pathlib import Path

import pytest
import yaml
from jsonschema import Draft7Validator

from planner.target.docs.keydocs import key_tables

ROOT = Path(__file__).parents[2]
SCHEMA = json.loads((ROOT / "targets" / "target.schema.json").read_text(encoding="utf-8"))
VALIDATOR = Draft7Validator(SCHEMA)
SHIPPED = sorted((ROOT / "targets").glob("*.yaml"))
BROKEN = Path(__file__).parent / "broken"


def read(path):
    return yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)


def test_the_schema_is_one():
    Draft7Validator.check_schema(SCHEMA)
    assert SCHEMA["$schema"] == "http://json-schema.org/draft-07/schema#"


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_a_shipped_target_fits(path):
    assert [error.message for error in VALIDATOR.iter_errors(read(path))] == []


@pytest.mark.parametrize("code", ["T010", "T011", "T012", "T013", "T014"])
def test_a_file_of_another_shape_does_not(code):
    assert not VALIDATOR.is_valid(read(BROKEN / f"{code}.yaml"))


def properties():
    yield from (("Document", name, field) for name, field in SCHEMA["properties"].items())
    for model, schema in SCHEMA["definitions"].items():
        yield from ((model, name, field) for name, field in schema.get("properties", {}).items())


def test_every_field_has_a_description_and_an_example():
    """So that an editor completes and explains."""
    lacking = [f"{m}.{n}" for m, n, f in properties() if not f.get("description") or not f.get("examples")]
    assert lacking == []


@pytest.mark.parametrize(
    ("model", "name", "field"), list(properties()), ids=lambda item: item if isinstance(item, str) else ""
)
def test_every_example_fits_its_field(model, name, field):
    whole = {"definitions": SCHEMA["definitions"], **field}
    for example in field["examples"]:
        assert [e.message for e in Draft7Validator(whole).iter_errors(example)] == [], (model, name)


def test_the_page_of_keys_has_its_tables():
    page = (ROOT / "docs" / "reference" / "target-keys.md").read_text(encoding="utf-8")
    assert page.endswith(key_tables())
