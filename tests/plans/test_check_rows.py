"""What the shipped example does not touch: every kind of port type, rule and predicate, broken one by one."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from planner.checker.check import check
from planner.errors import PlanInvalid
from planner.ir.types.qtypes import (
    AnyType,
    Calibrated,
    FloatType,
    NoneType,
    QType,
    Storage,
    Uniform,
    storage,
    sub_channel,
    uniform,
)
from planner.plans.plan import Plan
from planner.target.load import load_target
from planner.target.records import PortType
from tests.formats.plans import model, op
from tests.plans.planned import Case, altered, forged, keyed, planned, ports_of, with_fact, with_kernel

TARGET = {
    "apiVersion": "planner/v1",
    "kind": "Target",
    "id": "rows",
    "version": "1.0.0",
    "title": "One row of each sort",
    "types": {
        "a8": {"storage": "i8"},
        "z8": {"storage": "i8", "symmetric": True},
        "p8": {"storage": "i8", "power_of_two": True, "symmetric": True},
        "m8": {"storage": "i8", "scale_min": "1/64", "scale_max": "1/2"},
        "k8": {"storage": "u8", "zero_point": 128},
        "half": {"storage": "bf16"},
    },
    "defaults": {"port": "a8"},
    "fusions": [{"kernel": "square", "pattern": "Mul(x, x)"}],
    "kernels": [
        {
            "kernel": "square",
            "in": {"x": "z8"},
            "out": {"y": "a8"},
            "rules": [{"derive": {"port": "y", "scale": "x.scale ** 2 * 64", "zero_point": "-128"}}],
        },
        {"kernel": "Exp", "in": {"x": "p8"}, "out": {"y": "m8"}},
        {"kernel": "Abs", "in": {"x": "k8"}, "out": {"y": "a8"}},
        {"kernel": "Neg", "in": {"x": "a8"}, "out": {"y": "a8"}},
        {"kernel": "Tanh", "in": {"x": "half"}, "out": {"y": "half"}},
        {
            "kernel": "Mul",
            "in": {"a": "a8", "b": "a8"},
            "out": {"y": "a8"},
            "rules": [{"multiplier_scale": {"out": "y", "of": ["a", "b"], "range": ["1/65536", 1]}}],
        },
        {"kernel": "Reshape", "in": {"x": "*"}, "out": {"y": "*"}, "rules": [{"same_scale": ["x", "y"]}]},
        {
            "kernel": "Concat",
            "in": {"xs*": "a8"},
            "out": {"y": "a8"},
            "when": {
                "Concat.axis": [1, 2],
                "xs.rank": 2,
                "y.shape[1]": ">= 2",
                "xs.shape[0]": "== y.shape[0]",
            },
            "rules": [{"same_scale": ["xs*", "y"]}],
        },
    ],
}


def ranged(lo: float, hi: float) -> tuple[Calibrated]:
    return (Calibrated((lo,), (hi,)),)


def make() -> Case:
    """`square`, `Exp`, `Abs`, `Tanh`, `Mul`, `Concat`, `Reshape`, `Neg`; `Sin` has no row."""
    graph = model(
        [
            op("Mul", "x x", "sq"),
            op("Exp", "sq", "ex"),
            op("Abs", "ex", "ab"),
            op("Tanh", "ab", "th"),
            op("Mul", "ex ab", "mu"),
            op("Concat", "mu ex", "co", axis=1),
            op("Reshape", "co shape", "re"),
            op("Neg", "re", "ne"),
            op("Sin", "th", "y"),
        ],
        inputs={"x": (1, 8)},
        outputs={"ne": (16,), "y": (1, 8)},
        constants={"shape": np.array([16], np.int64)},
        facts={
            "x": ranged(-1, 1),
            "sq": ranged(0, 1),
            "ex": ranged(0, 3),
            "ab": ranged(0, 3),
            "th": ranged(0, 1),
            "mu": ranged(0, 9),
            "co": ranged(0, 9),
            "re": ranged(0, 9),
            "ne": ranged(-9, 0),
        },
        shapes={
            "sq": (1, 8), "ex": (1, 8), "ab": (1, 8), "th": (1, 8), "mu": (1, 8), "co": (1, 16), "re": (16,),
        },
    )  # fmt: skip
    return planned(graph, load_target(TARGET))


@pytest.fixture(scope="module")
def made() -> Case:
    return make()


def refused(plan: Plan) -> PlanInvalid:
    with pytest.raises(PlanInvalid) as caught:
        check(plan)
    return caught.value


def kind_of(case: Case, address: str) -> Uniform:
    found = ports_of(case.plan)[address].type
    assert isinstance(found, Uniform)
    return found


def test_the_plan_passes_and_has_every_kernel(made):
    check(made.plan, made.model, made.target)
    served = {kernel.kernel for kernel in made.plan.kernels_in_order if kernel.row}
    assert served == {"square", "Exp", "Abs", "Tanh", "Mul", "Concat", "Reshape", "Neg"}


@pytest.mark.parametrize(
    ("address", "changes", "said"),
    [
        ("op_sq.in[0]", {"zero_points": (1,)}, "its zero point is not 0"),
        ("op_sq.out[0]", {"scales": (0.5,)}, "derive at"),
        ("op_sq.out[0]", {"zero_points": (-127,)}, "derive at"),
        ("op_ex.in[0]", {"scales": (float(np.float32(0.01)),)}, "its scale is no power of two"),
        ("op_ex.out[0]", {"scales": (0.75,)}, "its scale is above 0.5"),
        ("op_ex.out[0]", {"scales": (0.0078125,)}, "its scale is below 0.015625"),
        ("op_ab.in[0]", {"zero_points": (127,)}, "its zero point is not 128"),
        ("op_ab.in[0]", {"storage": storage("i8"), "zero_points": (0,)}, "its storage is not u8"),
        ("op_mu.out[0]", {"scales": (2.0**-20,)}, "lies outside"),
        ("op_mu.out[0]", {"scales": (2.0**20,)}, "lies outside"),
        ("op_co.in[0]", {"scales": (0.5,)}, "same_scale of"),
        ("op_re.out[0]", {"storage": storage("i8", -128, 126)}, "joins it to ports stored as i8"),
        ("op_re.out[0]", {"expressed": "bf16", "scales": (0.5,)}, "expressed type bf16"),
    ],
)
def test_a_type_that_its_row_does_not_take(made, address, changes, said):
    """The log agrees with the lie, so the row alone gives it away."""
    error = refused(forged(made.plan, {address: altered(kind_of(made, address), **changes)}))
    assert error.port == address
    assert said in error.message
    assert error.row == made.plan.row_of(address.split(".")[0]).source or "expressed" in said


@pytest.mark.parametrize("kind", [uniform(storage("i8"), 0.5), FloatType("f16")])
def test_a_port_that_runs_in_a_float_takes_only_that(made, kind):
    error = refused(forged(made.plan, {"op_th.in[0]": kind}))
    assert (error.port, "runs in bf16" in error.message) == ("op_th.in[0]", True)


@pytest.mark.parametrize(
    ("when", "holds"),
    [
        ({"Concat.axis": 1}, True),
        ({"Concat.axis": [0, 2]}, False),
        ({"Concat.axis": "!= 1"}, False),
        ({"Concat.axis": "< y.shape[1]"}, True),
        ({"Concat.no_such": 1}, False),
        ({"Conv.group": 5}, True),  # names an op that is not there
        ({"xs": "dynamic"}, True),
        ({"xs": "constant"}, False),
        ({"xs": "present", "y": "present"}, True),
        ({"xs": "absent"}, False),
        ({"xs": "shiny"}, False),
        ({"zs": "constant"}, False),
        ({"zs.rank": 2}, False),
        ({"xs.rank": [2, 4]}, True),
        ({"xs.rank": "> 2"}, False),
        ({"xs.shape[-1]": 8}, True),
        ({"xs.shape[4]": 8}, False),
        ({"xs.dtype": "f32"}, True),
        ({"xs.colour": "red"}, False),
        ({"y.shape[1]": "== xs.shape[1]"}, False),
        ({"min_bits": {"xs": 1}}, False),
        ({"xs.bits": 0}, True),
        ({"xs.bits": "!= 0"}, False),
    ],
)
def test_predicates_are_judged_again(made, when, holds):
    key = made.plan.kernels["op_co"].row
    rows = {**made.plan.target.rows, key: replace(made.plan.target.rows[key], when=when)}
    plan = replace(made.plan, target=replace(made.plan.target, rows=rows))
    if holds:
        check(plan)
    else:
        assert refused(plan).port == "op_co"


def test_min_bits_asks_the_facts(made):
    """A row for wide data serves a port whose value asks for it, and no other."""
    key = made.plan.kernels["op_mu"].row
    for when, said in (
        ({"min_bits": {"a": 6}}, "needs a fact of at least 6 bits"),
        ({"a.bits": ">= 6"}, "port a: facts ask for no bits"),
    ):
        wide = replace(made.plan.target.rows[key], when=when)
        plan = replace(made.plan, target=replace(made.plan.target, rows={**made.plan.target.rows, key: wide}))
        assert said in refused(plan).message
        check(with_fact(plan, "ex", AnyType(storage("i8", -20, 20))))


def with_spec(case: Case, kernel: str, spec: PortType) -> Plan:
    """The plan with another type at the first input of a kernel's row."""
    key = case.plan.kernels[kernel].row
    row = case.plan.target.rows[key]
    row = replace(row, inputs=(replace(row.inputs[0], type=spec), *row.inputs[1:]), axis={"x": 1})
    return replace(case.plan, target=replace(case.plan.target, rows={**case.plan.target.rows, key: row}))


def blocks(size: int, *, of: int = 8, scales: int | None = None) -> Uniform:
    count = scales or of // size
    return sub_channel(storage("u8"), [0.5] * count, 128, blocks={0: 1, 1: size}, grid=(1, count))


@pytest.mark.parametrize(
    ("kind", "granularity", "said"),
    [
        (blocks(2), "block", None),
        (blocks(4), "block", None),
        (blocks(8), "block", "its blocks are not of 2 or 3 or 4"),
        (blocks(3, scales=3), "block", "its last block is shorter"),
        (blocks(2, scales=3), "block", "axis 1 of size 8 in blocks of 2 needs 4 scales, not 3"),
        (blocks(2), "axis", "it has a scale per block"),
        (uniform(storage("u8"), 0.5, 128), "block", "its blocks are not of 2 or 3 or 4"),
        (uniform(storage("u8"), 0.5, 128), "axis", None),
        (uniform(storage("u8"), [0.5] * 8, 128, axis=1), "axis", None),
        (uniform(storage("u8"), [0.5], 128, axis=0), "axis", "its axis is 0, not 1"),
        (uniform(storage("u8"), [0.5] * 7, 128, axis=1), "axis", "7 scales for axis 1 of size 8"),
        (uniform(storage("u8"), [0.5] * 8, 128, axis=2), "axis", "it has no axis 2"),
        (uniform(storage("u8"), [0.5] * 8, 128, axis=1), "tensor", "it has more than one scale"),
    ],
)
def test_granularity_and_shape(made, kind, granularity, said):
    sizes = (2, 3, 4) if granularity == "block" else ()
    spec = PortType(storage("u8"), granularity=granularity, zero_point=128, block_size=sizes)
    plan = forged(with_spec(made, "op_ab", spec), {"op_ab.in[0]": kind})
    if said is None:
        check(plan)
        return
    error = refused(plan)
    assert (error.port, said in error.message) == ("op_ab.in[0]", True), error.message


def test_an_unknown_rule_is_refused(made):
    key = made.plan.kernels["op_co"].row
    row = made.plan.target.rows[key]
    odd = replace(row, rules=(replace(row.rules[0], kind="magic"),))
    plan = replace(made.plan, target=replace(made.plan.target, rows={**made.plan.target.rows, key: odd}))
    assert "rule 'magic' is unknown" in refused(plan).message


@pytest.mark.parametrize(
    ("changes", "port", "said"),
    [
        ({"reason": ""}, "op_y", "neither a row nor a reason"),
        ({"accumulator_bits": 9}, "op_y", "runs in float and has sums"),
    ],
)
def test_a_float_kernel_says_why(made, changes, port, said):
    error = refused(with_kernel(made.plan, "op_y", **changes))
    assert (error.port, said in error.message) == (port, True)


def test_a_float_kernel_stores_nothing(made):
    error = refused(forged(made.plan, {"op_y.in[0]": uniform(storage("i8"), 0.5)}))
    assert (error.port, "without a row" in error.message) == ("op_y.in[0]", True)


def saying_of_y(plan: Plan, fact: QType) -> Plan:
    values = {**plan.graph.values, "y": replace(plan.graph.values["y"], facts=(fact,))}
    return keyed(replace(plan, graph=replace(plan.graph, values=values)))


def test_a_width_lost_in_float_is_reported(made):
    """A float fallback never drops a width in silence (01 section 4)."""
    plan = saying_of_y(made.plan, AnyType(storage("i4")))
    assert refused(plan).port == "op_y.out[0]"
    check(replace(plan, warnings=("op_y.out[0] is float",)))


def test_a_type_holds_behind_a_kernel_in_float(made):
    """Its result is quantized to the pin, so that nothing is lost and nothing has to be said."""
    kind = uniform(storage("i8"), 0.25)
    plan = saying_of_y(made.plan, kind)
    check(plan)
    assert [(r.kind, r.to_type, r.to_pin) for r in plan.rescales if r.value == "y"] == [
        ("quantize", kind, True)
    ]


@pytest.mark.parametrize(
    ("number", "inputs"),
    [((), 3), ((), 1), ((0,), 2)],
)
def test_arity(made, number, inputs):
    """Ports that the row does not take, in plan and region alike."""
    index = next(i for i, region in enumerate(made.plan.graph.regions) if region.name == "op_mu")
    region = made.plan.graph.regions[index]
    names: list[Any] = ["ex", "ab", "sq"][:inputs]
    for i in number:
        names[i] = ""
    kernel = made.plan.kernels["op_mu"]
    template = kernel.inputs[0]
    ports = tuple(
        replace(template, address=f"op_mu.in[{i}]", value=name, type=template.type if name else None)
        for i, name in enumerate(names)
    )
    regions = list(made.plan.graph.regions)
    regions[index] = replace(region, inputs=tuple(names))
    plan = with_kernel(made.plan, "op_mu", inputs=ports)
    error = refused(replace(plan, graph=replace(plan.graph, regions=tuple(regions))))
    assert (error.port, "which takes other ports" in error.message) == ("op_mu", True), error.message


def test_none_on_an_activation_is_a_matter_of_edges(made):
    """The kernel may store what the model keeps in float: casts stand around it (tests/cases, case 29)."""
    plan = with_fact(made.plan, "mu", NoneType())
    check(plan)
    assert {r.kind for r in plan.rescales if r.value == "mu"} == {"dequantize", "quantize"}


def test_storages_of_64_bits_are_exact():
    """A zero point at the end of a wide storage must not be rounded by a double."""
    wide = Storage(64, False, 0, (1 << 64) - 1)
    assert uniform(wide, 0.5, (1 << 64) - 1).zero_point == wide.qmax


def test_the_preferred_row_serves():
    """Two rows fit: the first one in the file, unless a pin's storage is the other's."""
    wide = {"storage": "i16", "symmetric": True}
    rows = [
        {"kernel": "Neg", "in": {"x": "a8"}, "out": {"y": "a8"}},
        {"kernel": "Neg", "in": {"x": "a16"}, "out": {"y": "a16"}},
    ]
    device = load_target(TARGET | {"types": TARGET["types"] | {"a16": wide}, "kernels": rows, "fusions": []})
    graph = model(
        [op("Neg", "x", "y")],
        inputs={"x": (1, 8)},
        outputs={"y": (1, 8)},
        constants={},
        facts={"x": ranged(-1, 1), "y": ranged(-1, 1)},
    )
    pins = {"x": replace(graph.values["x"], facts=(uniform(storage("i16"), 0.5),))}
    narrow = planned(graph, device)
    pinned = planned(replace(graph, values={**graph.values, **pins}), device)
    assert narrow.plan.kernels["op_y"].row != pinned.plan.kernels["op_y"].row
    for case in (narrow, pinned):
        check(case.plan, case.model, device)


def test_a_constant_of_its_own_zero_point():
    """An operand that is no weight: parameters from its own numbers, asymmetric (tests/cases, case 36)."""
    graph = model(
        [op("Mul", "x K", "y")],
        inputs={"x": (1, 4)},
        outputs={"y": (1, 4)},
        constants={"K": np.array([[-1.0, 0.5, 2.0, 3.0]], np.float32)},
        facts={"x": ranged(-1, 1), "y": ranged(-3, 3)},
    )
    case = planned(graph, load_target(TARGET))
    check(case.plan, case.model, case.target)
    kind = kind_of(case, "op_y.in[1]")
    wrong = {
        "whose scale": altered(kind, scales=(kind.scale * 2,)),
        "would cut the numbers": altered(kind, scales=(kind.scale / 2,)),
        f"accepted: zero point {kind.zero_point}": altered(kind, zero_points=(kind.zero_point + 1,)),
    }
    for said, lie in wrong.items():
        with pytest.raises(PlanInvalid) as caught:
            check(forged(case.plan, {"op_y.in[1]": lie}), case.model, case.target)
        assert (caught.value.port, said in caught.value.message) == ("op_y.in[1]", True), caught.value.message


def test_a_weight_that_grew_for_its_bias_to_a_power_of_two():
    """The bias needs far more than the scale of the weight's own numbers; the next power of two holds."""
    types = TARGET["types"] | {"b32": {"storage": "i32", "symmetric": True}}
    rule = {"multiplier_accumulator_scale": {"port": "b", "of": ["x", "w"]}}
    row = {"kernel": "Gemm", "in": {"x": "a8", "w": "p8", "b?": "b32"}, "out": {"y": "a8"}, "rules": [rule]}
    device = load_target(TARGET | {"types": types, "kernels": [row], "fusions": []})
    graph = model(
        [op("Gemm", "x w b", "y")],
        inputs={"x": (1, 2)},
        outputs={"y": (1, 2)},
        constants={
            "w": np.array([[1e-9, 0], [0, 1e-9]], np.float32),
            "b": np.array([1.1, 3.1], np.float32),
        },
        facts={"x": ranged(-1, 1), "y": ranged(-4, 4)},
    )
    case = planned(graph, device)
    check(case.plan, case.model, device)
    assert case.plan.kernels["op_y"].row
