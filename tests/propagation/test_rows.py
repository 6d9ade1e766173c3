"""Which row serves a kernel: order, when, pins, Any, None, min_bits, partial signatures, wildcards."""

from dataclasses import replace

import numpy as np
import pytest

from planner.checker.check import check
from planner.errors import Conflict
from planner.ir.graph import Region
from planner.ir.topology import topological
from planner.ir.types.typetext import parse_type
from planner.plan_model import plan
from planner.propagation.network.build import build_network
from planner.propagation.propagate import propagate
from planner.propagation.selection.rows import choose_rows, refuse_floats
from tests.propagation.small import chosen, graph_of, target_of

ROWS = target_of("""
- {kernel: fc, in: {x: a16, w: n8}, out: {y: a16}, when: {min_bits: {x: 9}}}
- {kernel: fc, in: {x: a8, w: n8}, out: {y: a8}}
- {kernel: fc, in: {x: u8, w: u8}, out: {y: u8}}
- {kernel: any_order, in: {x: a16}, out: {y: a16}}
- {kernel: any_order, in: {x: a8}, out: {y: a8}}
- {kernel: partial, in: {x: "*", w: n8}, out: {y: a8}}
- {kernel: optional, in: {x: a8, b?: b32}, out: {y: a8}}
- {kernel: variadic, in: {xs*: a8}, out: {y: a8}}
- {kernel: exact, in: {x: a16}, out: {y: a16}, when: {x.bits: "!= 1 and != 5"}}
- {kernel: exact, in: {x: a8}, out: {y: a8}}
- {kernel: strided, in: {x: a8}, out: {y: a8}, when: {x.rank: 4}}
- {kernel: strided, in: {x: u8}, out: {y: u8}}
""")
W = np.array([-1.0, 1.0], np.float32)
A8, U8, A16 = (f"!quant.uniform<{store}:f32, 0.5>" for store in ("i8", "u8", "i16"))
F16 = "!quant.uniform<i16:f32, 0.0009765625>"


@pytest.mark.parametrize(
    ("kernel", "x", "y", "row"),
    [
        ("fc", "", "", 1),  # no fact asks for more than 8 bits
        ("fc", "!quant.any<i16>", "", 0),
        ("fc", "!quant.any<i8>", "", 1),
        ("fc", "!quant.any<i16<-256:255>>", "", 0),  # nine bits, just what the row asks for
        ("fc", "!quant.any<i16<-128:127>>", "", 1),  # one less
        ("fc", A16, "", 0),
        ("fc", A8, "", 1),
        ("fc", U8, "", 2),  # the row that equals the pin, though a later one
        ("fc", A8, U8, 1),  # one pin each: file order
        ("fc", U8, U8, 2),
        ("any_order", "", "", 0),
        ("any_order", "!quant.any<i4>", "", 0),
        ("any_order", "", A8, 1),
        ("any_order", "!quant.none", "", 0),  # a value kept in float is cast, its kernels are served
        ("partial", A16, "", 0),
        ("strided", "", "", 1),  # rank 1
        ("exact", "", "", 0),  # nothing is asked
        ("exact", "!quant.any<i4>", "", 0),
        ("exact", "!quant.any<i5>", "", 1),
        ("exact", F16, "", 0),
    ],
)
def test_the_row(kernel, x, y, row):
    inputs = "x W" if kernel in ("fc", "partial") else "x"
    graph = graph_of({"x": x, "W": W, "y": y}, [("k", kernel, inputs, "y")], outputs="y")
    choice = choose_rows(graph, graph.regions, ROWS)[0]
    assert choice.row is ROWS.rows[kernel][row]


POWER = '{storage: "*", power_of_two: true, zero_point: 0}'
FREE = '{storage: "*", zero_point: 0}'
SCALES = target_of(f"""
- {{kernel: k, in: {{x: {POWER}}}, out: {{y: {POWER}}}}}
- {{kernel: k, in: {{x: {{storage: "*", zero_point: 0, scale_max: 1}}}}, out: {{y: {FREE}}}}}
- {{kernel: k, in: {{x: {{storage: "*"}}}}, out: {{y: {{storage: i4}}}}}}
""")


@pytest.mark.parametrize(
    ("x", "y", "row"),
    [
        ("", "", 0),
        ("!quant.uniform<i8:f32, 0.5>", "", 0),
        ("!quant.uniform<i8:f32, 0.3>", "", 1),  # its scale is no power of two
        ("", "!quant.uniform<i8:f32, 0.3>", 1),
        ("!quant.uniform<i8:f32, 0.5>", "!quant.uniform<i8:f32, 0.3>", 1),
        ("!quant.uniform<i8:f32, 0.3:5>", "", 2),  # a zero point that neither of the first takes
        ("!quant.uniform<i8:f32, 3.0>", "!quant.uniform<i8:f32, 0.5>", 0),  # one pin of two, as in the next
        ("!quant.uniform<i8:f32, 3.0>", "", 2),  # beyond the largest scale of the second
        ("!quant.uniform<i8:f32, 3.0>", "!quant.uniform<i4:f32, 3.0>", 2),  # both as they are
    ],
)
def test_of_rows_with_the_storages_of_as_many_pins_the_one_that_takes_more_as_they_are(x, y, row):
    facts = {name: " & ".join(filter(None, (pin, "[-1, 1]"))) for name, pin in (("x", x), ("y", y))}
    graph = graph_of(facts, [("k", "k", "x", "y")], outputs="y")
    choice = choose_rows(graph, graph.regions, SCALES)[0]
    assert choice.row is SCALES.rows["k"][row]
    checked = plan(graph, SCALES)
    assert checked.kernels["k"].row == SCALES.rows["k"][row].key


@pytest.mark.parametrize(
    ("kernel", "inputs", "facts", "reason"),
    [
        ("fc", "x W", {"x": "!quant.any<i32>"}, "port x ('x') wants !quant.any<i32>, the row has i8"),
        ("fc", "x W", {"W": "!quant.none"}, "port w ('W') is kept in float (!quant.none)"),
        (
            "fc",
            "x W",
            {"W": F16},
            "port w ('W') has the fixed type !quant.uniform<i16:f32, 0.0009765625>, the row has",
        ),
        ("fc", "x", {}, "takes other ports than these 1 input and 1 output"),
        ("optional", "- W", {}, "takes other ports than these 1 input and 1 output"),
        ("unheard", "x", {}, "small has no row for kernel 'unheard'"),
    ],
)
def test_no_row(kernel, inputs, facts, reason):
    """A float fallback says which port of which row failed first."""
    graph = graph_of({"x": "", "W": W, "y": ""}, [("k", kernel, inputs, "y")], outputs="y")
    marked = {
        n: replace(v, facts=(parse_type(facts[n]),) if n in facts else ()) for n, v in graph.values.items()
    }
    choice = choose_rows(replace(graph, values=marked), graph.regions, ROWS)[0]
    assert choice.row is None
    assert reason in choice.reason


def test_no_row_where_the_target_insists():
    rows = "- {kernel: fc, in: {x: a8}, out: {y: a8}}"
    target = replace(target_of(rows), on_no_kernel="error")
    graph = graph_of({"x": "", "y": ""}, [("k", "gelu", "x", "y")], outputs="y")
    with pytest.raises(Conflict, match="no row of small serves gelu at 'k'"):
        refuse_floats(choose_rows(graph, graph.regions, target), target)


def test_a_port_fact_of_another_storage_rules_the_row_out():
    """A value's pin is met by a rescale; a fact on the port itself is the port's type."""
    region = Region("k", "fc", ("x", "W"), ("y",), input_facts=((parse_type(U8),), ()))
    graph = graph_of({"x": "", "W": W, "y": ""}, [("k", "fc", "x W", "y")], outputs="y")
    assert choose_rows(graph, [region], ROWS)[0].row is ROWS.rows["fc"][2]


def test_the_choice_looks_at_no_other_kernel():
    """Case 27: the same rows in every order of regions."""
    values = {"x": A8, "W": W, "a": "[-1, 1]", "b": A16, "c": "[-1, 1]"}
    kernels = [("k1", "fc", "x W", "a"), ("k2", "fc", "a W", "b"), ("k3", "fc", "b W", "c")]
    graph = graph_of(values, kernels, outputs="c")
    chosen = {c.region.name: c.row for c in choose_rows(graph, graph.regions, ROWS)}
    again = {c.region.name: c.row for c in choose_rows(graph, graph.regions[::-1], ROWS)}
    assert chosen == again
    assert [row.key for row in chosen.values()] == [ROWS.rows["fc"][i].key for i in (1, 1, 0)]


VIEWS = target_of("""
- {kernel: view, in: {x: "*"}, out: {y: "*"}, rules: [{same_scale: [x, y]}]}
- {kernel: join, in: {xs*: "*"}, out: {y: "*"}, rules: [{same_scale: [xs, y]}]}
- {kernel: free, in: {x: "*"}, out: {y: "*"}}
- {kernel: half, in: {x: "*"}, out: {y: u8}, rules: [{same_scale: [x, y]}]}
- {kernel: unsigned, in: {x: u8}, out: {y: u8}}
- {kernel: wide, in: {x: a16}, out: {y: a16}}
- {kernel: plain, in: {x: a8}, out: {y: a8}}
""")


@pytest.mark.parametrize(
    ("kernels", "facts", "port", "storage"),
    [
        # the value's own pin, else the joined ports', else the producer, else the readers, else the default
        ([("k", "view", "x", "y")], {"x": U8}, "in", "u8"),
        ([("k", "view", "x", "y")], {"y": A16}, "in", "i16"),
        ([("k", "half", "x", "y")], {}, "in", "u8"),
        ([("p", "wide", "v", "x"), ("k", "view", "x", "y")], {}, "out", "i16"),
        ([("p", "wide", "v", "x"), ("k", "view", "x", "y")], {"y": U8}, "in", "u8"),
        ([("k", "view", "x", "y"), ("r", "unsigned", "y", "z")], {}, "in", "u8"),
        ([("k", "view", "x", "m"), ("l", "view", "m", "y"), ("r", "unsigned", "y", "z")], {}, "in", "u8"),
        (
            [("k", "view", "x", "m"), ("l", "view", "m", "y"), ("r", "unsigned", "y", "z")],
            {"y": A16},
            "in",
            "i16",
        ),
        ([("p", "wide", "v", "x"), ("k", "view", "x", "y"), ("r", "unsigned", "y", "z")], {}, "out", "i16"),
        ([("k", "view", "x", "y")], {"x": "!quant.any<i4>"}, "in", "i8"),
        ([("p", "gelu", "v", "x"), ("k", "view", "x", "y"), ("r", "unsigned", "y", "z")], {}, "in", "u8"),
        ([("p", "wide", "v", "x"), ("k", "free", "x", "y"), ("r", "unsigned", "y", "z")], {}, "out", "u8"),
    ],
)
def test_wildcards(kernels, facts, port, storage):
    """The storage of a wildcard port of kernel `k`."""
    names = dict.fromkeys(n for _, _, ins, outs in kernels for n in (ins, outs))
    values = {name: f"[-1, 1] & {facts.get(name, '')}" for name in names}
    graph = graph_of(values, kernels, outputs=kernels[-1][3])
    network = build_network(chosen(graph, VIEWS, choose_rows(graph, topological(graph.regions), VIEWS)))
    kernel = next(kernel for kernel in network.kernels if kernel.choice.region.name == "k")
    ids = kernel.inputs if port == "in" else kernel.outputs
    assert str(network.ports[ids[0]].spec.storage) == storage


@pytest.mark.parametrize(
    ("wanted", "ports", "served"),
    [
        ("absent", "x", True),
        ("absent", "x b", False),
        ("present", "x", False),
        ("present", "x b", True),
    ],
)
def test_a_row_may_ask_whether_an_optional_port_is_there(wanted, ports, served):
    target = target_of(f"- {{kernel: k, in: {{x: a8, b?: b32}}, out: {{y: a8}}, when: {{b: {wanted}}}}}")
    graph = graph_of({"x": A8, "b": W, "y": A8}, [("k", "k", ports, "y")], outputs="y")
    (choice,) = choose_rows(graph, graph.regions, target)
    assert (choice.row is not None) == served
    found = "absent" if wanted == "present" else "present ('b')"
    assert served or choice.reason.partition(": ")[2] == f"b is {found}"


@pytest.mark.parametrize(
    ("spec", "pin", "served"),
    [
        ("p8", "!quant.uniform<i8:f32, 0.25>", True),
        ("p8", "!quant.uniform<i8:f32, 0.3>", False),
        ("z8", "!quant.uniform<u8:f32, 0.25:128>", True),
        ("z8", "!quant.uniform<u8:f32, 0.25:1>", False),
        ("s8", "!quant.uniform<i8:f32, 0.1>", True),
        ("s8", "!quant.uniform<i8:f32, 0.05>", False),
    ],
)
def test_a_pinned_constant_rules_out_a_row_that_asks_for_other_parameters(spec, pin, served):
    target = target_of(f"- {{kernel: k, in: {{x: a8, w: {spec}}}, out: {{y: a8}}}}")
    graph = graph_of({"x": A8, "w": W, "y": A8}, [("k", "k", "x w", "y")], outputs="y")
    values = {**graph.values, "w": replace(graph.values["w"], facts=(parse_type(pin),))}
    (choice,) = choose_rows(replace(graph, values=values), graph.regions, target)
    assert (choice.row is not None) == served
    assert served or choice.reason.partition(": ")[2].startswith(
        "port w ('w') has the fixed type !quant.uniform"
    )


@pytest.mark.parametrize("other", [A16, "!quant.none"])
def test_facts_that_cannot_both_hold_are_a_conflict(other):
    """Never the one that happens to be listed first."""
    graph = graph_of({"x": A8, "y": f"{A8} & {other}"}, [("k", "any_order", "x", "y")], outputs="y")
    with pytest.raises(Conflict, match="'y' cannot be both") as caught:
        propagate(graph, ROWS)
    assert caught.value.facts == (f"value 'y': {A8}", f"value 'y': {other}")


def test_the_scales_of_a_pin_are_counted_where_there_are_many():
    """In reasons and warnings: a list of a thousand numbers says less."""
    pin = f"!quant.uniform<i4:f32:0, {{{','.join(['0.5'] * 40)}}}>"
    values = {"x": "[-1, 1]", "w": np.full((40, 1), 0.7, np.float32), "y": "[-1, 1]"}
    graph = graph_of(values, [("k", "fc", "x w", "y")], outputs="y")
    pinned = replace(graph.values["w"], facts=(parse_type(pin),))
    plan = propagate(replace(graph, values={**graph.values, "w": pinned}), ROWS)
    short = "!quant.uniform<i4:f32:0, {40 scales}>"
    assert f"port w ('w') has the fixed type {short}, the row has i8<-127:127>" in plan.kernels["k"].reason
    assert plan.warnings == (f"k.in[1] is float, so {short} on 'w' has no effect there",)


FC = target_of("""
- kernel: fc
  in: {x: a8, w: w8, b?: b32}
  out: {y: a8}
  axis: {w: 0}
  rules: [{multiplier_accumulator_scale: {port: b, of: [x, w]}}]
""")


FC_FROM_THE_END = target_of("""
- kernel: fc
  in: {x: a8, w: w8, b?: b32}
  out: {y: a8}
  axis: {w: -2}
  rules: [{multiplier_accumulator_scale: {port: b, of: [x, w]}}]
""")


@pytest.mark.parametrize("target", [FC, FC_FROM_THE_END], ids=["from 0", "from the end"])
@pytest.mark.parametrize(
    ("name", "kind", "reason"),
    [
        (
            "w",
            "!quant.uniform<i8<-127:127>:f32:1, {0.5,0.5}>",
            "port w ('w') has a fixed type along axis 1, not the row's",
        ),
        (
            "b",
            "!quant.bipolar<f32, 0.5>",
            "port b ('b') is !quant.bipolar<f32, 0.5>, the row has i32 symmetric",
        ),
    ],
)
def test_facts_of_constants_that_a_row_cannot_keep(target, name, kind, reason):
    """Scales along another axis than the row's (a crash behind it), signs on the grid of a bias."""
    values = {"x": "[-1, 1]", "w": np.ones((3, 2), np.float32), "b": np.ones(3, np.float32), "y": "[-1, 1]"}
    graph = graph_of(values, [("k", "fc", "x w b", "y")], outputs="y")
    told = replace(graph.values[name], facts=(parse_type(kind),))
    told_graph = replace(graph, values={**graph.values, name: told})
    plan = propagate(told_graph, target)
    assert (plan.kernels["k"].row, reason in plan.kernels["k"].reason) == (None, True), plan.kernels["k"]
    check(plan, None, target)


def test_a_pin_that_holds_in_float_too_is_not_called_without_effect():
    """Readers in float start from the pin, and weights lie on their grid whatever the kernel computes in."""
    values = {
        "x": "[-1, 1]",
        "a": "!quant.uniform<i4:f32, 0.25>",
        "w": np.full((40, 1), 0.5, np.float32),
        "y": "[-1, 1]",
    }
    graph = graph_of(values, [("k", "norm", "x", "a"), ("k2", "norm", "a w", "y")], outputs="y")
    pinned = replace(graph.values["w"], facts=(parse_type("!quant.uniform<i4:f32, 0.5>"),))
    asked = replace(graph.values["y"], facts=(parse_type("!quant.any<i4>"),))
    plan = propagate(replace(graph, values={**graph.values, "w": pinned, "y": asked}), ROWS)
    assert not any(kernel.row for kernel in plan.kernels_in_order)
    assert plan.warnings == ("k2.out[0] is float, so !quant.any<i4> on 'y' has no effect there",)
