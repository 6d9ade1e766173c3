"""Work of plans: rates of rows and of floats, the defaults, what counts as nothing, and files."""

from dataclasses import replace

import pytest

import planner
from planner.errors import PlanFormatError, PlanInvalid, TargetError
from planner.plans.read_mlir import plan_from_mlir
from planner.target.diff import diff_targets
from planner.target.modeltext import read_model_text
from planner.target.show import row_from_json, row_to_json

TARGET = """apiVersion: planner/v1
kind: Target
id: t
version: 1.0.0
rescale: {cost: {quantize: 2.0, dequantize: 3.0}}
kernels:
  - kernel: MatMul
    in: {a: {storage: i8}, b: {storage: i8, symmetric: true}}
    out: {y: {storage: i16, symmetric: true}}
"""
MODEL = """
x : f32[2,8] {-1, 1}
w = constant : f32[8,4] {-1, 1}
y = MatMul(x, w) : f32[2,4] {-1, 1}
z = Erf(y) : f32[2,4] {-1, 1}
"""
MACS, READ, WRITTEN, WEIGHTS = 2 * 4 * 8, 16, 8, 32


def _plan(target=TARGET, model=MODEL):
    return planner.plan(read_model_text(model, "m"), planner.load_target(target))


def test_what_nothing_is_said_of_is_counted_in_bit_operations():
    work = _plan().work
    product = MACS * 8 * 8 / 1024 + READ * 8 / 32 + WRITTEN * 16 / 32
    floats = 2 * WRITTEN
    assert work.kernels == product + floats
    assert work.borders == READ * 2.0 + WRITTEN * 3.0
    assert work.rescales == 0
    assert work.total == work.kernels + work.borders


@pytest.mark.parametrize(
    ("rates", "product"),
    [
        ("{mac: 0.5}", MACS * 0.5 + READ / 4 + WRITTEN / 2),
        ("{mac: 0, element: 0}", 0.0),
        ("{element: 2}", MACS / 16 + (READ + WRITTEN) * 2),
        ("{byte: 0.25}", MACS / 16 + READ / 4 + WRITTEN / 2 + WEIGHTS / 4),
        ("{mac: 1, element: 1, byte: 1}", MACS + READ + WRITTEN + WEIGHTS),
        ("{mac: 1, mac_unsigned: 3, element: 0}", MACS),
    ],
)
def test_rates_of_a_row(rates, product):
    assert _plan(TARGET + f"    work: {rates}\n").work.kernels == product + 2 * WRITTEN


@pytest.mark.parametrize(
    ("rates", "rate"), [("{mac: 1, mac_unsigned: 3, element: 0}", 3), ("{mac: 1, element: 0}", 1)]
)
def test_products_of_unsigned_weights_have_a_rate_of_their_own(rates, rate):
    target = TARGET.replace("{storage: i8, symmetric: true}", "{storage: u8}")
    assert _plan(target + f"    work: {rates}\n").work.kernels == MACS * rate + 2 * WRITTEN


@pytest.mark.parametrize(
    ("given", "own", "product"),
    [
        ("{mac: 0.5, element: 1}", "", MACS * 0.5 + READ + WRITTEN),
        ("{mac: 0.5, element: 1}", "    work: {element: 2}\n", MACS * 0.5 + (READ + WRITTEN) * 2),
        ("{element: 1}", "    work: {mac: 0}\n", READ + WRITTEN),
        ("{mac: 0.5, element: 1}", "    work: {mac: null}\n", MACS / 16 + READ + WRITTEN),
    ],
)
def test_a_row_takes_the_rates_that_it_leaves_out_from_the_defaults(given, own, product):
    work = _plan(f"{TARGET}{own}defaults: {{work: {given}}}\n").work
    assert work.kernels == product + 2 * WRITTEN


def test_rates_of_floats():
    plan = _plan("float_work: {element: 5}\nwork_unit: cycles\n" + TARGET)
    assert plan.work.kernels == MACS / 16 + READ / 4 + WRITTEN / 2 + 2 * WRITTEN * 5
    assert plan.target.work_unit == "cycles"


def test_all_float_counts_every_mac_as_one_and_no_border():
    work = _plan(TARGET.replace("MatMul", "Conv")).work
    assert (work.kernels, work.borders) == (MACS + READ + WRITTEN + 2 * WRITTEN, 0)


@pytest.mark.parametrize("name", ["Flatten", "Squeeze", "Identity"])
def test_views_work_nothing(name):
    model = f"y = {name}(x) : f32[1,16] {{-1, 1}}\n"
    row = f"  - {{kernel: {name}, in: {{x: '*'}}, out: {{y: '*'}}, rules: [{{same_scale: [x, y]}}]}}\n"
    assert _plan(TARGET + row, model).work.kernels == 0


def test_a_loop_works_as_often_as_it_runs():
    plan = _plan()
    twice = replace(
        plan, kernels_in_order=tuple(replace(kernel, trip_count=2) for kernel in plan.kernels_in_order)
    )
    assert twice.work.kernels == 2 * plan.work.kernels


def test_an_unknown_dimension_counts_as_one():
    model = MODEL.replace("f32[2,", "f32[n,")
    assert _plan(model=model).work.kernels == _plan().work.kernels / 2


@pytest.mark.parametrize(
    ("said", "code"),
    [("work: {mac: -1}", "0"), ("work: {macs: 1}", "mac"), ("work: 3", "work"), ("work: {mac: x}", "mac")],
)
def test_rates_are_numbers_from_zero_up(said, code):
    with pytest.raises(TargetError, match=code):
        planner.load_target(TARGET + f"    {said}\n")


def test_files_keep_the_rates():
    target = planner.load_target(
        "float_work: {mac: 2}\nwork_unit: ns\n" + TARGET + "    work: {mac: 0.5, byte: 1}\n"
    )
    plan = planner.plan(read_model_text(MODEL, "m"), target)
    for read in (planner.plan_from_json(plan.to_json()), plan_from_mlir(plan.to_mlir())):
        assert (read.work, read.target) == (plan.work, plan.target)
    row = target.rows["MatMul"][0]
    assert row_from_json(row_to_json(row)) == row
    with pytest.raises(PlanFormatError, match="macs"):
        row_from_json({**row_to_json(row), "work": {"macs": 1.0}})


def test_other_rates_are_a_difference():
    lines = [
        str(found)
        for found in diff_targets(
            planner.load_target(TARGET),
            planner.load_target("float_work: {mac: 2}\n" + TARGET + "    work: {mac: 1}\n"),
        )
    ]
    assert any(line.startswith("~ work mac") for line in lines)
    assert any("work mac 1" in line for line in lines)


def test_a_plan_with_other_rates_is_refused():
    target = planner.load_target(TARGET)
    model = read_model_text(MODEL, "m")
    plan = planner.plan(model, target)
    other = replace(plan, target=replace(plan.target, work_unit="cycles"))
    with pytest.raises(PlanInvalid, match="work_unit"):
        planner.check(other, model, target)
