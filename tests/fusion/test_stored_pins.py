"""Pins of fewer bits than a device's byte: stored in it, as the same reals, for a clamp at most."""

from dataclasses import replace

import numpy as np
import pytest

import planner
from planner.fusion.stored_pins import store_pins
from planner.ir.types.qtypes import Uniform
from planner.ir.types.typetext import parse_type
from tests.exporters.plans import model, op

RNG = np.random.default_rng(4)
W = [RNG.normal(size=(6, 6)).astype(np.float32) for _ in range(3)]


def chain(*pins):
    """Three products with Relus; `pins` on the input and behind the first two."""
    ops = [op("Identity", "x", "q")]
    source = "q"
    for i in range(3):
        ops += [op("MatMul", f"{source} w{i}", f"m{i}"), op("Relu", f"m{i}", f"r{i}")]
        source = f"r{i}"
    facts = {name: (parse_type(pin),) for name, pin in zip(("q", "r0", "r1"), pins, strict=False) if pin}
    shapes = dict.fromkeys(["q", *(f"{kind}{i}" for i in range(3) for kind in "mr")], (4, 6))
    constants = {f"w{i}": w for i, w in enumerate(W)}
    graph = model(
        ops, inputs={"x": (4, 6)}, outputs={"r2": (4, 6)}, constants=constants, shapes=shapes, facts=facts
    )
    samples = [{"x": RNG.normal(size=(4, 6)).astype(np.float32)} for _ in range(4)]
    return planner.annotate(graph, stats=planner.calibrate(graph, samples)), samples[0]


def stored(pin, target):
    """What a pin behind the first product becomes on a target."""
    graph, _ = chain("", pin)
    found = store_pins(graph, planner.load_target(target)).values["r0"].facts
    return next(str(fact) for fact in found if isinstance(fact, Uniform))


@pytest.mark.parametrize(
    ("pin", "target", "wanted"),
    [
        ("!quant.uniform<u5:f32, 0.25>", "litert-int8", "!quant.uniform<i8<-16:15>:f32, 0.25:-16>"),
        ("!quant.uniform<u5:f32, 0.25>", "onnxruntime-cpu", "!quant.uniform<u8<112:143>:f32, 0.25:112>"),
        ("!quant.uniform<i4<-7:7>:f32, 0.25>", "qnn-htp", "!quant.uniform<u8<121:135>:f32, 0.25:128>"),
        ("!quant.uniform<u4:f32, 0.25:3>", "litert-int8", "!quant.uniform<i8<-8:7>:f32, 0.25:-5>"),
        # Seven bits fill half a byte, one bit without a sign is two numbers of it.
        ("!quant.uniform<u7:f32, 0.25>", "litert-int8", "!quant.uniform<i8<-64:63>:f32, 0.25:-64>"),
        ("!quant.uniform<u1:f32, 0.25>", "litert-int8", "!quant.uniform<i8<-1:0>:f32, 0.25:-1>"),
        # All of the other byte's numbers, and none but its own.
        ("!quant.uniform<u8:f32, 0.25:3>", "litert-int8", "!quant.uniform<i8:f32, 0.25:-125>"),
        ("!quant.uniform<i8:f32, 0.25:3>", "litert-int8", "!quant.uniform<i8:f32, 0.25:3>"),
        ("!quant.uniform<u8:f32, 0.25:3>", "onnxruntime-cpu", "!quant.uniform<u8:f32, 0.25:3>"),
        # What is wider than a byte stays, and so do all pins where kernels give any width.
        ("!quant.uniform<i9:f32, 0.25>", "litert-int8", "!quant.uniform<i9:f32, 0.25>"),
        ("!quant.uniform<u5:f32, 0.25>", "finn-fpga", "!quant.uniform<u5:f32, 0.25>"),
        ("!quant.uniform<u5:f32, 0.25>", "hls4ml-fpga", "!quant.uniform<u5:f32, 0.25>"),
    ],
)
def test_a_pin_is_stored_in_the_byte_of_the_device(pin, target, wanted):
    assert stored(pin, target) == wanted


def test_the_byte_is_that_of_most_other_pins():
    graph, _ = chain("!quant.uniform<i8:f32, 0.03125>", "!quant.uniform<u5:f32, 0.25>")
    found = store_pins(graph, planner.load_target("onnxruntime-cpu")).values["r0"].facts
    assert "!quant.uniform<i8<-16:15>:f32, 0.25:-16>" in map(str, found)


def test_pins_of_inputs_and_outputs_stay():
    graph, _ = chain("")
    pin = parse_type("!quant.uniform<u5:f32, 0.25>")
    values = {name: replace(graph.values[name], facts=(pin,)) for name in ("x", "r2")}
    graph = replace(graph, values={**graph.values, **values})
    kept = store_pins(graph, planner.load_target("litert-int8"))
    assert [kept.values[name].facts for name in ("x", "r2")] == [(pin,), (pin,)]


@pytest.mark.parametrize("target", ["litert-int8", "onnxruntime-cpu", "qnn-htp"])
def test_a_pin_of_few_bits_costs_one_clamp(target):
    graph, sample = chain(
        "!quant.uniform<i8:f32, 0.03125>", "!quant.uniform<u5:f32, 0.25>", "!quant.uniform<u3:f32, 0.5>"
    )
    plan = planner.plan(graph, target)
    planner.check(plan, graph, target)
    inner = [rescale.kind for rescale in plan.rescales if rescale.value in ("r0", "r1")]
    assert inner == ["clamp", "clamp"]
    found = planner.evaluate(graph, plan, sample).reals
    for name, most, step in (("r0", 31, 0.25), ("r1", 7, 0.5)):
        steps = found[name] / step
        assert np.array_equal(steps, np.clip(np.rint(steps), 0, most))


def test_the_other_byte_costs_nothing():
    graph, _ = chain(
        "!quant.uniform<i8:f32, 0.03125>", "!quant.uniform<u8:f32, 0.0625>", "!quant.uniform<u8:f32, 0.0625>"
    )
    plan = planner.plan(graph, "litert-int8")
    assert [rescale.kind for rescale in plan.rescales] == ["quantize", "dequantize"]


def test_other_reals_are_refused_by_the_checker():
    graph, _ = chain("", "!quant.uniform<u5:f32, 0.25>")
    plan = planner.plan(graph, "litert-int8")
    facts = (parse_type("!quant.uniform<u5:f32, 0.25:1>"), *graph.values["r0"].facts[1:])
    other = replace(graph, values={**graph.values, "r0": replace(graph.values["r0"], facts=facts)})
    with pytest.raises(planner.PlanInvalid, match=r"^r0: carries .*i8<-16:15>.* in the plan, .*0.25:1> "):
        planner.check(plan, other)
