"""What a port may cut off: at most `max_clip`, unless nothing else can be had, and then a warning says so."""

import pytest

from planner.checker.check import check
from planner.ir.graph import model_digest
from planner.ir.types.qtypes import Calibrated
from planner.ir.types.typetext import brief, parse_type
from planner.propagation.propagate import propagate
from planner.target.load import load_target
from tests.propagation.small import HEAD, graph_of, target_of

ROWS = target_of("""
- {kernel: conv, in: {x: a8}, out: {y: a8}}
- {kernel: wide, in: {x: a16}, out: {y: a16}}
- {kernel: add, in: {a: n8, b: u8}, out: {y: a8}, computes: true, rules: [{same_scale: [a, b, y]}]}
- {kernel: mixed, in: {x: a16}, out: {y: a8}, computes: true, rules: [{same_scale: [x, y]}]}
""")


def calibrated(lo, hi):
    return (Calibrated((lo,), (hi,)),)


PINS = ("i16:f32, 3.0517578125e-05", "u16:f32, 3.0517578125e-05:32768", "i32:f32, 4.6566e-10")


@pytest.mark.parametrize("observed", ["", " & [0, 1]"])
@pytest.mark.parametrize("pin", PINS)
@pytest.mark.parametrize("kernels", [1, 2])
def test_a_wide_pin_read_by_8_bits_is_rescaled(pin, kernels, observed):
    """One class or two, the pin's scale would cut off all but a few hundredths."""
    graph = graph_of(
        {"x": f"!quant.uniform<{pin}>{observed}", "y0": "[-2, 2]", "y1": "[-2, 2]"},
        [(f"k{i}", "conv", "x", f"y{i}") for i in range(kernels)],
        outputs=" ".join(f"y{i}" for i in range(kernels)),
    )
    plan = propagate(graph, ROWS)
    kind, extent = plan.kernels["k0"].inputs[0].type, 1.0 if observed else 2.0
    assert kind.hi - kind.lo == pytest.approx(extent, rel=0.02)
    assert [rescale.kind for rescale in plan.rescales if rescale.value == "x"] == ["requantize"]
    assert plan.values["x"].clip < 1e-6
    assert len(plan.warnings) == kernels
    assert all(text.endswith("it is rounded there") for text in plan.warnings)
    check(plan)


def test_a_wide_pin_on_what_8_bits_write():
    """The kernel yields the range in its own 8 bits, and a rescale right behind it the pin."""
    pin = "!quant.uniform<i16:f32, 3.0517578125e-05>"
    graph = graph_of(
        {"x": "[-1, 1]", "y": f"[-0.5, 0.5] & {pin}"},
        [("k", "conv", "x", "y")],
        outputs="y",
    )
    plan = propagate(graph, ROWS)
    assert plan.kernels["k"].outputs[0].type.scale == pytest.approx(1 / 255, rel=1e-6)
    assert [rescale.to_type for rescale in plan.rescales if rescale.value == "y"] == [parse_type(pin)]
    assert plan.values["y"].clip == 0.0
    assert [text.partition(",")[0] for text in plan.warnings] == ["k.out[0] is !quant.uniform<i8:f32"]


def test_a_pin_that_fits_is_kept():
    """A pin of other signs is the same label; so is one that holds all but a hair."""
    graph = graph_of(
        {"x": "!quant.uniform<u8:f32, 0.01:100>", "y": "[-2, 2]"}, [("k", "conv", "x", "y")], outputs="y"
    )
    kind = propagate(graph, ROWS).kernels["k"].inputs[0].type
    assert (kind.scale, kind.zero_point) == (pytest.approx(0.01), -28)


def test_a_class_of_words_and_bytes_is_as_coarse_as_the_bytes_ask():
    """The words' own label was taken, being first, and cut off all but a 200th of what the bytes hold."""
    graph = graph_of({"x": "[-1, 1]", "y": "[-1, 1]"}, [("k", "mixed", "x", "y")], outputs="y")
    plan = propagate(graph, ROWS)
    assert plan.kernels["k"].outputs[0].type.scale == pytest.approx(1 / 127, rel=0.01)
    assert (plan.values["y"].clip, plan.warnings) == (0.0, ())


@pytest.mark.parametrize("strategy", ["minimal", "rfc"])
def test_a_clip_that_no_label_avoids_is_told(strategy):
    """Bytes from 0 up hold nothing below 0, on whatever scale."""
    rows = target_of("- {kernel: k, in: {x: {storage: u8, zero_point: 0}}, out: {y: a8}}")
    graph = graph_of({"x": "[-1, 1]", "y": "[-2, 2]"}, [("k", "k", "x", "y")], outputs="y")
    plan = propagate(graph, rows, strategy=strategy)
    kind = plan.kernels["k"].inputs[0].type
    assert plan.warnings == (f"k.in[0] takes {brief(kind)} and clips 49.9% of (-1.0, 1.0)",)
    assert plan.values["x"].clip == pytest.approx(0.499, abs=0.001)


def test_the_price_asked_for_says_what_is_a_clip():
    """`max_clip` of the call binds and warns, not the target's."""
    rows = target_of("- {kernel: k, in: {x: s8}, out: {y: a8}}")
    graph = graph_of({"x": "[-80, 80]", "y": "[-2, 2]"}, [("k", "k", "x", "y")], outputs="y")
    assert propagate(graph, rows).warnings
    assert not propagate(graph, rows, max_clip=0.5).warnings


SIGNS = """
- {kernel: conv, in: {x: {storage: u8, zero_point: 0}}, out: {y: a8}}
- {kernel: conv, in: {x: {storage: i8, zero_point: 0}}, out: {y: a8}}
- {kernel: small, in: {x: {storage: i8, scale_max: 0.01}}, out: {y: a8}}
- {kernel: small, in: {x: a8}, out: {y: a8}}
"""


@pytest.mark.parametrize(
    ("kernel", "facts", "storage"),
    [
        ("conv", "[0, 1]", "u8"),
        ("conv", "[-0.005, 1]", "u8"),  # half a per cent
        ("conv", "[-1, 1]", "i8"),
        ("conv", "!quant.uniform<u8:f32, 0.01:126>", "i8"),  # the pin of that very storage is no reason
        ("conv", "[0, 1] & !quant.uniform<u8:f32, 0.01:126>", "u8"),
        ("small", "[-1, 1]", "i8 at most 0.01"),
        ("small", "[-1, 1.6]", "i8"),
    ],
)
def test_a_row_that_cannot_hold_a_range_loses_to_one_that_can(kernel, facts, storage):
    rows = target_of(SIGNS)
    graph = graph_of({"x": facts, "y": "[-2, 2]"}, [("k", kernel, "x", "y")], outputs="y")
    plan = propagate(graph, rows, model=model_digest(graph))
    told = "i8 at most 0.01" if plan.row_of("k").inputs[0].type.scale_max else None
    assert (told or str(plan.kernels["k"].inputs[0].type.storage)) == storage
    assert not plan.warnings
    check(plan, graph, rows)


def test_the_only_row_is_kept_and_its_clip_told():
    rows = target_of("\n".join(SIGNS.strip().splitlines()[:1]))
    graph = graph_of({"x": "[-1, 1]", "y": "[-2, 2]"}, [("k", "conv", "x", "y")], outputs="y")
    plan = propagate(graph, rows)
    assert plan.kernels["k"].row == rows.rows["conv"][0].key
    assert "clips 49.9% of (-1.0, 1.0)" in plan.warnings[0]


WILD = """
- {kernel: fpga, in: {x: zero}, out: {y: zero}}
- {kernel: view, in: {x: zero}, out: {y: zero}, rules: [{same_scale: [x, y]}]}
- {kernel: add, in: {a: zero, b: zero}, out: {y: zero}, computes: true, rules: [{same_scale: [a, b, y]}]}
"""


def wild():
    head = HEAD.replace(
        "types:", "types:\n  zero: {storage: '*', zero_point: 0}\n  z0: {storage: i8, zero_point: 0}"
    )
    return load_target(head.replace("port: a8", "port: z0") + WILD.replace("\n-", "\n  -"))


@pytest.mark.parametrize(
    ("pin", "storage"),
    [
        ("u8:f32, 0.01:126", "i8"),
        ("u16:f32, 0.0001:32768", "i16"),  # the model's own width
        ("u4:f32, 0.1:7", "i4"),
        ("u8:f32, 0.01", "u8"),
        ("i8:f32, 0.01:4", "i8"),
        ("u8<0:15>:f32, 0.1:7", "i8<-8:7>"),
    ],
)
@pytest.mark.parametrize("kernel", ["fpga", "view", "add"])
def test_a_wildcard_has_signs_where_its_range_does(kernel, pin, storage):
    """A zero point of 0 leaves unsigned numbers nothing below 0, however they were pinned."""
    ins = "x x" if kernel == "add" else "x"
    graph = graph_of({"x": f"!quant.uniform<{pin}>", "y": "[0, 1]"}, [("k", kernel, ins, "y")], outputs="y")
    plan = propagate(graph, wild(), model=model_digest(graph))
    assert str(plan.kernels["k"].inputs[0].type.storage) == storage
    assert not [text for text in plan.warnings if "clips" in text and "k.in" in text]
    check(plan, graph, wild())


def test_what_only_a_relu_reads_needs_no_signs():
    """Of a sum in front of a relu nothing below 0 is kept, so it takes the relu's unsigned bits."""
    graph = graph_of(
        {"x": "[0, 1]", "y": "[-1, 1]", "z": "[0, 1] & !quant.uniform<u8:f32, 0.0039>"},
        [("k", "fpga", "x", "y"), ("r", "view", "y", "z")],
        outputs="z",
        moves={"r": "Relu"},
    )
    plan = propagate(graph, wild())
    assert str(plan.kernels["k"].outputs[0].type.storage) == "u8"
    assert not plan.warnings


@pytest.mark.parametrize(("store", "found"), [("i8", "u8"), ("f8E4M3FN", "f8E4M3FN")])
def test_defaults_without_signs_leave_floats_as_they_are(store, found):
    """`unsigned` takes the sign of integers alone: a float has one, whatever its range is."""
    head = HEAD.replace(
        "types:",
        f"types:\n  zero: {{storage: '*', zero_point: 0}}\n  z0: {{storage: {store}, zero_point: 0}}",
    )
    head = head.replace("{port: a8}", "{port: z0, unsigned: true}")
    rows = "  - {kernel: exp, in: {x: zero}, out: {y: zero}, rules: [{free_scale: [x, y]}]}"
    graph = graph_of({"x": "[0, 1]", "y": "[0, 3]"}, [("k", "exp", "x", "y")], outputs="y")
    plan = propagate(graph, load_target(head + rows))
    assert str(plan.kernels["k"].outputs[0].type.storage) == found
