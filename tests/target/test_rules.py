"""Rules one by one, and what they say of a row before there are types."""

import pytest

from planner.errors import RuleError
from planner.ir.types.typetext import parse_storage, parse_type
from planner.target.load import load_target
from planner.target.records import PortPattern, PortType, PortView, Row, Rule
from planner.target.rules import (
    RULES,
    expand_ports,
    in_storage,
    port_ids,
    rule_function,
    same_scale_groups,
)


def u(text):
    return parse_type(f"!quant.uniform<{text}>")


def views(**ports):
    """`x=("i8", type or None)`; y, z are outputs, the others inputs; `xs` is three variadic ports."""
    sides = {"in": [], "out": []}
    for name, entries in ports.items():
        side = "out" if name in ("y", "z") else "in"
        for store, kind in entries if isinstance(entries, list) else [entries]:
            spec = PortType(parse_storage(store) if store else None)
            found = u(kind) if kind else None
            sides[side].append(PortView((side, len(sides[side])), name, spec, found))
    return tuple(sides["in"]), tuple(sides["out"])


def answer(rule, args, **ports):
    inputs, outputs = views(**ports)
    return {f"{side}[{i}]": str(kind) for (side, i), kind in RULES[rule](inputs, outputs, args).items()}


I8, U8, I32 = "i8", "u8", "i32"
X = "i8:f32, 0.5:-3"


@pytest.mark.parametrize(
    ("args", "ports", "expected"),
    [
        ({}, {"x": (I8, X), "y": (I8, None)}, {"out[0]": f"!quant.uniform<{X}>"}),
        ({}, {"x": (I8, None), "y": (I8, X)}, {"in[0]": f"!quant.uniform<{X}>"}),
        ({}, {"x": (I8, None), "y": (I8, None)}, {}),
        ({}, {"x": (I8, X), "y": (I8, X)}, {}),
        ({}, {"x": (I8, X), "y": (U8, None)}, {"out[0]": "!quant.uniform<u8:f32, 0.5:125>"}),
        ({}, {"x": (I8, X), "y": (U8, "u8:f32, 0.5:125")}, {}),  # one label, two storages
        ({}, {"x": (U8, "u8:f32, 0.5"), "y": ("i16", None)}, {"out[0]": "!quant.uniform<i16:f32, 0.5:-128>"}),
        (
            {},
            {"x": (I8, X), "y": ("i8<-127:127>", None)},
            {"out[0]": "!quant.uniform<i8<-127:127>:f32, 0.5:-3>"},
        ),
        ({}, {"x": (I8, X), "y": (None, None)}, {"out[0]": f"!quant.uniform<{X}>"}),
        ({}, {"x": (I8, X), "y": (I8, "i8:f32, 0.25")}, {}),  # a disagreement is propagation's
        ({"prefer": "first"}, {"x": (I8, X), "y": (I8, "i8:f32, 1.0")}, {"out[0]": f"!quant.uniform<{X}>"}),
        (
            {"prefer": "widest"},
            {"x": (I8, X), "y": (I8, "i8:f32, 1.0")},
            {"in[0]": "!quant.uniform<i8:f32, 1.0>"},
        ),
        ({"direction": "from_inputs"}, {"x": (I8, None), "y": (I8, X)}, {}),
        ({"direction": "from_outputs"}, {"x": (I8, X), "y": (I8, None)}, {}),
        ({"direction": "from_inputs"}, {"x": (I8, X), "y": (I8, None)}, {"out[0]": f"!quant.uniform<{X}>"}),
    ],
)
def test_same_scale(args, ports, expected):
    assert answer("same_scale", {"ports": ("x", "y"), **args}, **ports) == expected


def test_same_scale_of_a_variadic_tail():
    ports = {"xs": [(I8, None), (I8, X), (I8, None)], "y": (I8, None)}
    kind = f"!quant.uniform<{X}>"
    found = answer("same_scale", {"ports": ("xs", "y")}, **ports)
    assert found == {"in[0]": kind, "in[2]": kind, "out[0]": kind}


def test_same_scale_needs_room_for_the_zero_point():
    with pytest.raises(RuleError) as caught:
        answer("same_scale", {"ports": ("x", "y")}, x=(I8, "i8:f32, 0.5:-128"), y=("i8<-127:127>", None))
    assert str(caught.value) == (
        "same_scale: port 'y' of storage i8<-127:127> cannot hold the zero point of "
        "!quant.uniform<i8:f32, 0.5:-128>"
    )


@pytest.mark.parametrize(
    ("store", "args", "expected"),
    [
        (I8, {"scale": "1/256", "zero_point": -128}, "i8:f32, 0.00390625:-128"),
        (I8, {"scale": "1/128"}, "i8:f32, 0.0078125"),
        (U8, {"scale": 0.1, "zero_point": 128}, "u8:f32, 0.10000000149011612:128"),
        ("i16", {"scale": "1/32768"}, "i16:f32, 3.0517578125e-05"),
    ],
)
def test_fixed_scale(store, args, expected):
    found = answer("fixed_scale", {"port": "y", **args}, x=(I8, X), y=(store, None))
    assert found == {"out[0]": f"!quant.uniform<{expected}>"}


def test_fixed_scale_outside_the_storage():
    with pytest.raises(RuleError, match="fixed_scale of 'y': zero point -129 lies outside the storage range"):
        answer("fixed_scale", {"port": "y", "scale": 1, "zero_point": -129}, y=(I8, None))


@pytest.mark.parametrize(
    ("x", "w", "b", "expected"),
    [
        ("i8:f32, 0.5:-3", "i8:f32, 0.25", I32, "i32:f32, 0.125"),
        ("i8:f32, 0.5:-3", "i8:f32:0, {0.25,0.5}", I32, "i32:f32:0, {0.125,0.25}"),
        ("i8:f32, 0.5", "i8:f32:3, {0.25,0.5}", I32, "i32:f32:0, {0.125,0.25}"),  # a bias has one axis
        ("i8:f32:1, {0.5,2.0}", "i8:f32:0, {0.25,0.5}", I32, "i32:f32:0, {0.125,1.0}"),  # depthwise
        ("i16:f32, 0.5", "i8:f32, 0.25", "i64", "i64:f32, 0.125"),
        # One rounding: the float32 product of these scales, not a float64 one.
        ("i8:f32, 0.1", "i8:f32, 0.1", I32, "i32:f32, 0.010000000707805157"),
        (None, "i8:f32, 0.25", I32, None),
    ],
)
def test_multiplier_accumulator_scale(x, w, b, expected):
    found = answer(
        "multiplier_accumulator_scale", {"port": "b", "of": ("x", "w")}, x=(I8, x), w=(I8, w), b=(b, None)
    )
    assert found == ({"in[2]": f"!quant.uniform<{expected}>"} if expected else {})


def test_no_accumulator_port_no_type():
    args = {"port": "b", "of": ("x", "w")}
    assert answer("multiplier_accumulator_scale", args, x=(I8, X), w=(I8, X)) == {}


@pytest.mark.parametrize(
    ("x", "w", "message"),
    [
        ("i8:f32:1, {0.5,2.0,1.0}", "i8:f32:0, {0.25,0.5}", "along different axes: 2 and 3 scales"),
        ("i8:f32, 0.5", "i4:f32:{1:1}, {{0.25,0.5}}", "per-block type"),
    ],
)
def test_accumulator_refusals(x, w, message):
    with pytest.raises(RuleError, match=message):
        answer(
            "multiplier_accumulator_scale",
            {"port": "b", "of": ("x", "w")},
            x=(I8, x),
            w=(I8, w),
            b=(I32, None),
        )


@pytest.mark.parametrize(("limits", "fits"), [(None, True), (("1/65536", 1), True), ((0, "1/16"), False)])
def test_multiplier_scale_checks_and_never_infers(limits, fits):
    args = {"out": "y", "of": ("x", "w")} | ({"range": limits} if limits else {})
    ports = {"x": (I8, "i8:f32, 0.5"), "w": (I8, "i8:f32:0, {0.0625,0.25}"), "y": (I8, "i8:f32, 1.0")}
    if fits:
        assert answer("multiplier_scale", args, **ports) == {}
        return
    with pytest.raises(RuleError) as caught:
        answer("multiplier_scale", args, **ports)
    assert str(caught.value) == (
        "multiplier_scale: the multiplier 0.125 of channel 1 lies outside 0 to 1/16 of this row"
    )


def test_free_scale_decides_nothing():
    assert answer("free_scale", {"ports": ()}, x=(I8, X), y=(I8, None)) == {}


def test_derive():
    args = {"port": "y", "scale": "1 / sqrt(x.scale) * 2 ** -7", "zero_point": "x.zero_point - 1"}
    found = answer("derive", args, x=(I8, "i8:f32, 0.25:-3"), y=(I8, None))
    assert found == {"out[0]": "!quant.uniform<i8:f32, 0.015625:-4>"}
    assert answer("derive", args, x=(I8, None), y=(I8, None)) == {}
    assert answer("derive", {"port": "y", "scale": "2 ** -7"}, y=(I8, None)) == {
        "out[0]": "!quant.uniform<i8:f32, 0.0078125>"
    }


@pytest.mark.parametrize(
    ("scale", "zero_point", "x", "message"),
    [
        (
            "1 / (x.scale - 0.25)",
            0,
            "i8:f32, 0.25",
            r"^derive of 'y' by scale '1 / \(x.scale - 0.25\)': 1 / 0: division by zero$",
        ),
        ("x.scale / x.zero_point", 0, "i8:f32, 0.1", "': 0.1 / 0: division by zero$"),
        (
            "x.scale - 1",
            0,
            "i8:f32, 0.25",
            "derive of 'y' by scale 'x.scale - 1': scale -0.75 must be positive",
        ),
        (
            "x.scale",
            "x.qmax * 3",
            "i8:f32, 0.25",
            r"by scale 'x.scale' and zero point 'x.qmax \* 3': zero point 381 lies outside",
        ),
        ("x.scale", 0, "i8:f32:0, {0.25,0.5}", "which is not per tensor"),
    ],
)
def test_derive_refusals(scale, zero_point, x, message):
    with pytest.raises(RuleError, match=message):
        answer("derive", {"port": "y", "scale": scale, "zero_point": zero_point}, x=(I8, x), y=(I8, None))


@pytest.mark.parametrize("attribute", ["scale", "zero_point", "qmin", "qmax"])
def test_an_expression_reads_each_parameter_of_a_port_and_no_element_of_one(attribute):
    """A type per tensor has one of each, so `x.scale[0]` is as unknown as `x.shape`."""
    x = (I8, "i8:f32, 0.25:3")
    known = {"scale": 0.25, "zero_point": 3, "qmin": -128, "qmax": 127}
    args = {"port": "y", "scale": f"max(x.{attribute}, 0 - x.{attribute}) / 8"}
    assert answer("derive", args, x=x, y=(I8, None)) == {
        "out[0]": f"!quant.uniform<i8:f32, {abs(known[attribute]) / 8}>"
    }
    for unknown in (f"x.{attribute}[0]", "x.shape", "x.shape[0]"):
        with pytest.raises(RuleError, match=r"is none of x\.scale, x\.zero_point, x\.qmin, x\.qmax$"):
            answer("derive", {"port": "y", "scale": unknown}, x=x, y=(I8, None))


@pytest.mark.parametrize(
    ("kind", "store", "expected"),
    [
        ("i8:f32, 0.5:-128", "u8", "u8:f32, 0.5"),
        ("u8:f32, 0.5:255", "i8", "i8:f32, 0.5:127"),
        ("u4:f32, 0.5:3", "i8", "i8:f32, 0.5:-5"),
        ("i8:f32, 0.5:-128", "i8<-127:127>", None),
        ("i16:f32, 0.5:300", "i8", None),
        ("i8:f32:1, {0.5:1,0.25:2}", "u8", "u8:f32:1, {0.5:129,0.25:130}"),
    ],
)
def test_in_storage(kind, store, expected):
    found = in_storage(u(kind), parse_storage(store))
    assert found == (u(expected) if expected else None)


def port(text):
    return PortPattern(
        text.rstrip("?*"), PortType(), optional=text.endswith("?"), variadic=text.endswith("*")
    )


@pytest.mark.parametrize(
    ("patterns", "names", "matched"),
    [
        ("x w b?", "x w b", "x w b"),
        ("x w b?", "x w -", "x w b"),
        ("x w b?", "x w", "x w"),
        ("x w b?", "x", None),
        ("x w b?", "x - b", None),
        ("x w b?", "x w b c", None),
        ("x a? b?", "x - b", "x a b"),
        ("xs*", "p", "xs"),
        ("xs*", "p q r", "xs xs xs"),
        ("xs*", "", ""),
        ("x xs*", "p q r", "x xs xs"),
        ("x xs*", "", None),
        ("", "", ""),
        ("", "p", None),
    ],
)
def test_expand_ports(patterns, names, matched):
    actual = tuple("" if name == "-" else name for name in names.split())
    found = expand_ports(tuple(port(text) for text in patterns.split()), actual)
    assert (None if found is None else " ".join(entry.name for entry in found)) == matched


def row(inputs, outputs, *rules):
    made = tuple(Rule("same_scale", {"ports": tuple(names.split())}) for names in rules)
    return Row("k", tuple(map(port, inputs.split())), tuple(map(port, outputs.split())), made)


@pytest.mark.parametrize(
    ("made", "n_in", "n_out", "groups"),
    [
        (row("xs*", "y", "xs y"), 3, 1, ["in0 in1 in2 out0"]),
        (row("x", "ys*", "x ys"), 1, 2, ["in0 out0 out1"]),
        (row("x w b?", "y", "x b"), 2, 1, []),  # b is absent: nothing to join
        (row("x w b?", "y", "x b"), 3, 1, ["in0 in2"]),
        (row("a b c", "y z", "a y", "b z"), 3, 2, ["in0 out0", "in1 out1"]),
        (row("a b c", "y", "a b", "c y", "b c"), 3, 1, ["in0 in1 in2 out0"]),
        (row("x", "y"), 1, 1, []),
    ],
)
def test_same_scale_groups(made, n_in, n_out, groups):
    found = same_scale_groups(made, n_in, n_out)
    assert [" ".join(f"{side}{i}" for side, i in group) for group in found] == groups


def test_port_ids():
    found = port_ids(row("x b? xs*", "y"), 4, 1)
    assert found == {"x": (("in", 0),), "b": (("in", 1),), "xs": (("in", 2), ("in", 3)), "y": (("out", 0),)}


HEAD = "apiVersion: planner/v1\nkind: Target\nid: t\nversion: 1.0.0\n"


def test_functions_get_their_own_arguments():
    def shift(inputs, outputs, args):
        assert inputs[0].type is not None
        return {outputs[0].id: in_storage(inputs[0].type, parse_storage(args["storage"]))}

    text = (
        HEAD
        + "kernels:\n  - {kernel: k, in: {x: }, out: {y: }, rules: [{fn: {name: f, args: {storage: u8}}}]}\n"
    )
    target = load_target(text, {"f": shift})
    (rule,) = target.rows["k"][0].rules
    inputs, outputs = views(x=(I8, X), y=(U8, None))
    found = rule_function(rule, target)(inputs, outputs, rule.args)
    assert found == {("out", 0): u("u8:f32, 0.5:125")}


def _none(inputs, outputs, args):
    del inputs, outputs, args


def _scaled(inputs, outputs, args):
    del args
    return {outputs[0].id: u(f"i8:f32, {inputs[0].type.scale / 2}")}


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (_none, "function 'f' answers None"),
        (_scaled, r"function 'f': AttributeError: 'NoneType' object has .* \(test_rules.py:\d+\)"),
    ],
)
def test_what_a_function_does_wrong_is_its_own(function, said):
    """Code that was handed over is no bug of ours: the function is named, with the line."""
    text = HEAD + "kernels:\n  - {kernel: k, in: {x: }, out: {y: }, rules: [{fn: f}]}\n"
    target = load_target(text, {"f": function})
    (rule,) = target.rows["k"][0].rules
    with pytest.raises(RuleError, match=said):
        rule_function(rule, target)(*views(x=(I8, None), y=(I8, None)), rule.args)


def test_unknown_rules_are_refused():
    target = load_target(HEAD + "\n")
    with pytest.raises(RuleError) as caught:
        rule_function(Rule("same_scal", {}, "t.yaml:3"), target)
    assert str(caught.value) == (
        "t.yaml:3: unknown rule 'same_scal'; known: derive, fixed_scale, free_scale, "
        "multiplier_accumulator_scale, multiplier_scale, requires, same_scale, same_storage, fn"
    )
    with pytest.raises(RuleError, match=r"function 'f' was not handed to load_target\(functions=...\)"):
        rule_function(Rule("fn", {"name": "f", "args": {}}, "t.yaml:3"), target)
