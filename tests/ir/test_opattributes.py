"""The table of ONNX's attributes is that of the `onnx` package, and predicates on it hold as they should."""

import numpy as np
import pytest
from onnx import defs, helper

from planner.checker.check import check
from planner.fusion.fuse import fuse
from planner.ir.opattributes import NOTHING, as_written, attribute_names, default_of
from planner.ir.types.qtypes import Calibrated
from planner.propagation.propagate import propagate
from planner.target.load import load_target
from tests.formats.plans import model, op
from tests.propagation.small import HEAD

OPSET = 21


def current_schemas():
    """By op: the schema of the opset that models are read in, and newer ones, newest last."""
    found = {}
    for schema in sorted(defs.get_all_schemas_with_history(), key=lambda item: item.since_version):
        if schema.domain or schema.deprecated:
            continue
        kept = found.setdefault(schema.name, [])
        if schema.since_version <= OPSET:
            kept.clear()
        kept.append(schema)
    return found


def test_the_table_is_what_the_schemas_say():
    for name, schemas in current_schemas().items():
        known = {key: entry for schema in schemas for key, entry in schema.attributes.items()}
        assert {*known} <= {*attribute_names(name)}, name
        assert {*attribute_names(name)} <= {*known, "sequence_lens"}, name
        for key, entry in known.items():
            if not entry.default_value.name or key == "activations":
                continue
            default = helper.get_attribute_value(entry.default_value)
            default = default.decode() if isinstance(default, bytes) else default
            default = as_written(default) if isinstance(default, float) else default
            assert default_of(name, key) == default, (name, key)


def test_what_schemas_say_in_words_only():
    assert default_of("Conv", "strides") == 1
    assert default_of("GRU", "activations") == ["Sigmoid", "Tanh"]
    assert default_of("Conv", "kernel_shape") is NOTHING
    assert default_of("Conv", "grup") is NOTHING
    assert default_of("Conf", "group") is NOTHING


@pytest.mark.parametrize(
    ("held", "said"), [(float(np.float32(0.01)), 0.01), (0.1, 0.1), (1e300, 1e300), (2.0, 2.0)]
)
def test_floats_as_written(held, said):
    assert as_written(held) == said


@pytest.mark.parametrize(
    ("kind", "attributes", "when"),
    [
        ("LeakyRelu", {"alpha": float(np.float32(0.01))}, "LeakyRelu.alpha: 0.01"),
        ("LeakyRelu", {}, "LeakyRelu.alpha: 0.01"),
        ("HardSigmoid", {"alpha": float(np.float32(0.2))}, "HardSigmoid.alpha: '<= 0.2'"),
        ("ThresholdedRelu", {"alpha": float(np.float32(0.1))}, "ThresholdedRelu.alpha: [0.1, 0.7]"),
        ("Celu", {}, "Celu.alpha: 1"),
        ("Hardmax", {}, "Hardmax.axis: -1"),
    ],
)
def test_planner_and_checker_take_an_attribute_as_the_file_says_it(kind, attributes, when):
    """An attribute is float32: 0.01 there is what a description calls 0.01."""
    device = load_target(f"{HEAD}  - {{kernel: {kind}, in: {{x: a8}}, out: {{y: a8}}, when: {{{when}}}}}\n")
    facts = {name: (Calibrated((-1.0,), (1.0,)),) for name in "xy"}
    graph = model(
        [op(kind, "x", "y", **attributes)],
        inputs={"x": (1, 4)},
        outputs={"y": (1, 4)},
        constants={},
        facts=facts,
    )
    plan = propagate(fuse(graph, device), device)
    check(plan)
    assert plan.kernels["op_y"].row
