"""What is asked of kernels: which names it means, which row it chooses, what is refused word for word."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

import planner
from planner.calibration.annotate import annotate
from planner.calibration.statistics import calibration_digest
from planner.errors import AnnotationError, Conflict, PlanFormatError, PlanInvalid, TargetError
from planner.formats.annotated.document import read_annotated, write_annotated
from planner.ir.expand import expand
from planner.ir.kernel_requests import with_wanted, without_wanted
from planner.ir.types.qtypes import Uniform, storage
from planner.ir.types.wanted import is_stored_in, wanted_from_data, wanted_to_data
from planner.target.load import load_target
from planner.target.modeltext import read_model_text
from tests.conftest import ROOT

NET = """
x : f32[1,8,8,8] {-1, 2}
w1 = constant : f32[8,8,3,3] {-0.5, 0.5}
b1 = constant : f32[8] {-0.5, 0.5}
w2 = constant : f32[8,8,3,3] {-0.5, 0.5}
a/c = Conv(x, w1, b1) [pads=[1,1,1,1]] : f32[1,8,8,8] {-2, 2}
a/r = Relu(a/c) : f32[1,8,8,8] {0, 2}
a/d = Conv(a/r, w2) [pads=[1,1,1,1]] : f32[1,8,8,8] {-3, 3}
p = MaxPool(a/d) [kernel_shape=[3,3], pads=[1,1,1,1]] : f32[1,8,8,8] {-3, 3}
f = Reshape(p) : f32[1,512]
s = Softmax(f) : f32[1,512] {0, 1}
g = Gelu(p) : f32[1,8,8,8] {-3, 3}
"""


def net():
    return read_model_text(NET, "net")


def planned(wanted, target="litert-int8", **options):
    """The plan of the net with something asked, and accepted by the checker."""
    model = with_wanted(net(), wanted)
    plan = planner.plan(model, target, **options)
    planner.check(plan, model, target)
    return plan


def stored(plan):
    """By kernel, the storage of its first result."""
    types = {name: kernel.outputs[0].type for name, kernel in plan.kernels.items()}
    return {n: str(kind.storage) if isinstance(kind, Uniform) else "float" for n, kind in types.items()}


BASE = {"a/c": "i8", "a/d": "i8", "p": "i8", "f": "i8", "s": "i8", "g": "i8"}


@pytest.mark.parametrize("strategy", ["minimal", "rfc"])
@pytest.mark.parametrize(
    ("wanted", "changed"),
    [
        ({"a/c": "float"}, {"a/c": "float"}),
        ({"a/r": "float"}, {"a/c": "float"}),  # the kernel that holds the op is meant whole
        ({"a/r": "i16"}, {"a/c": "i16"}),
        ({"a/*": "i16"}, {"a/c": "i16", "a/d": "i16"}),
        ({"a/[cd]": "i16", "a/c": "any"}, {"a/d": "i16"}),
        ({"a/c": "any", "a/[cd]": "i16"}, {"a/d": "i16"}),  # a name, wherever it stands
        ({"a/*": "i16", "*/c": "float"}, {"a/c": "float", "a/d": "i16"}),  # the later glob
        ({"*/c": "float", "a/*": "i16"}, {"a/c": "i16", "a/d": "i16"}),
        ({"a/c": "i8", "a/r": "i16"}, {"a/c": "i16"}),  # the later name
        ({"a/d": {"in": ["i16", "i8"], "out": ["i16"]}}, {"a/d": "i16"}),
        ({"a/d": {"in": ["i16", "i8", "i64"]}}, {"a/d": "i16"}),  # the row has a bias, the kernel has none
        ({"a/d": {"in": ["*", "i8<-127:127>"], "out": ["i16"]}}, {"a/d": "i16"}),
        ({"p": "i16"}, {"p": "i16", "f": "i16"}),  # moved, by a row of 16 bits; the view follows
        ({"f": "float"}, {"f": "float"}),
        ({"*": "i8"}, {}),
        ({"*": "any"}, {}),
    ],
)
def test_names_and_rows(wanted, changed, strategy):
    assert stored(planned(wanted, strategy=strategy)) == BASE | changed


def test_all_in_float_and_nothing_is_cast():
    plan = planned({"*": "float"})
    assert {kernel.reason for kernel in plan.kernels.values()} == {"annotated: float"}
    assert plan.rescales == ()


def test_a_glob_counts_what_has_no_such_row_and_no_views():
    plan = planned({"*": "i16"})
    assert stored(plan) == dict.fromkeys(BASE, "i16") | {"g": "i8"}
    assert plan.warnings == ("'*' asks for i16: 1 of its 5 kernels do not run so: 'g'",)


CONFLICTS = [
    (
        {"g": "i16"},
        "litert-int8",
        "'g' has to run as i16, and no row of Gelu does (litert-int8 has {in: [i8], out: [i8]})",
        ("kernel 'g': i16", "kernel 'g' is Gelu"),
    ),
    (
        {"a/r": "u8"},
        "litert-int8",
        (
            "'a/c' has to run as u8, and no row of conv2d does (litert-int8 has "
            "{in: [i8, i8<-127:127>, i32], out: [i8]}, {in: [i16, i8<-127:127>, i64], out: [i16]})"
        ),
        ("kernel 'a/c': u8, by 'a/r'", "kernel 'a/c' is conv2d"),
    ),
    (
        {"f": "i16"},
        "litert-int8",
        (
            "'f' has to run as i16, and no row of Reshape does (it only moves data, in the storage of its "
            "neighbours: request it of the kernel that writes 'p')"
        ),
        ("kernel 'f': i16", "kernel 'f' is Reshape"),
    ),
    (
        {"s": "i8"},
        "stablehlo",
        (
            "'s' has to run as i8, and no row of Softmax does: no fusion of 'stablehlo' names "
            "Softmax and no row is called so (stablehlo has no row for Softmax)"
        ),
        ("kernel 's': i8", "kernel 's' is Softmax"),
    ),
]


@pytest.mark.parametrize(("wanted", "target", "message", "facts"), CONFLICTS)
def test_a_name_without_such_a_row_is_a_conflict(wanted, target, message, facts):
    with pytest.raises(Conflict) as caught:
        planner.plan(with_wanted(net(), wanted), target)
    assert (str(caught.value), caught.value.facts) == (message, facts)
    model = with_wanted(net(), wanted)
    plan = planner.plan(model, target, best_effort=True)
    planner.check(plan, model, target)
    assert "left out: " in plan.warnings[0]


def test_a_kernel_without_a_range_has_no_row_as_asked():
    text = NET.replace("a/d = Conv(a/r, w2) [pads=[1,1,1,1]] : f32[1,8,8,8] {-3, 3}", "") + (
        "a/d = Conv(a/r, w2) [pads=[1,1,1,1]] : f32[1,8,8,8]\n"
    )
    model = read_model_text(text.replace("{-3, 3}", ""), "net")
    assert planner.plan(model, "litert-int8").kernels["a/d"].reason == "no range"
    with pytest.raises(Conflict, match="'a/d' has to run as i16, and no row of conv2d does: no range"):
        planner.plan(with_wanted(model, {"a/d": "i16"}), "litert-int8")
    globbed = with_wanted(model, {"a/*": "i16"})
    plan = planner.plan(globbed, "litert-int8")
    planner.check(plan, globbed, "litert-int8")
    assert "'a/*' asks for i16: 1 of its 2 kernels do not run so: 'a/d'" in plan.warnings


BITS = """
apiVersion: planner/v1
kind: Target
id: bits
version: 1.0.0
title: A row that has to be asked for
mode: fixed
types: {a8: {storage: i8}, a16: {storage: i16}, any: {storage: "*"}}
defaults: {port: a8, on_no_kernel: float}
kernels:
  - {kernel: Exp, in: {x: a16}, out: {y: a16}, when: {min_bits: {x: 16}}}
  - {kernel: Exp, in: {x: a8}, out: {y: a8}}
  - {kernel: Abs, in: {x: any}, out: {y: any}}
"""
ROWS = """
x : f32[4] {0, 1}
e = Exp(x) : f32[4] {1, 2.8}
b = Abs(e) : f32[4] {1, 2.8}
"""


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ({}, ("i8", "i8")),
        ({"e": "i16"}, ("i16", "i8")),  # counts as a fact of 16 bits
        ({"*": "i16"}, ("i16", "i16")),
        ({"e": {"in": ["i16"]}}, ("i16", "i8")),
        ({"b": "i4"}, ("i8", "i4")),  # a wildcard of a kernel that computes takes it
        ({"b": {"in": ["u8"], "out": ["i5"]}}, ("i8", "i5")),
    ],
)
def test_min_bits_and_wildcards(wanted, expected):
    model, target = with_wanted(read_model_text(ROWS, "rows"), wanted), load_target(BITS)
    plan = planner.plan(model, target)
    planner.check(plan, model, target)
    assert tuple(stored(plan).values()) == expected


def test_a_wildcard_with_a_wider_any_is_refused_by_name_and_counted_by_glob():
    text = ROWS.replace("b = Abs(e) : f32[4] {1, 2.8}", "b = Abs(e) : f32[4] {1, 2.8} !quant.any<i6>")
    target = load_target(BITS)
    with pytest.raises(Conflict, match=r"no row of Abs does"):
        planner.plan(with_wanted(read_model_text(text, "rows"), {"b": "i4"}), target)
    model = with_wanted(read_model_text(text, "rows"), {"b*": "i4"})
    plan = planner.plan(model, target)
    planner.check(plan, model, target)
    assert "'b*' asks for i4: its one kernel does not run so: 'b'" in plan.warnings


ISLAND = """
x : f32[4] {-2, 2}
g = Sin(x) : f32[4] {-1, 1}
h = Relu(g) : f32[4] {0, 1}
c = constant [2.0, 2.0, 2.0, 2.0] : f32[4]
m = Mul(g, c) : f32[4] {-2, 2}
y = Cos(m) : f32[4] {-1, 1}
z = Cos(h) : f32[4] {-1, 1}
"""


def test_what_is_asked_comes_before_islands_and_float_movers():
    model = read_model_text(ISLAND, "island")
    bare = planner.plan(model, "litert-int8")
    assert {bare.kernels[name].row for name in ("m", "h")} == {None}
    for key in ("m", "[mh]", "h"):
        asked = with_wanted(model, {key: "i8"})
        plan = planner.plan(asked, "litert-int8")
        planner.check(plan, asked, "litert-int8")
        done = {name for name in ("m", "h") if plan.kernels[name].row is not None}
        assert done == {"m", "h"} & ({key} if len(key) == 1 else {"m", "h"})


APART = """
apiVersion: planner/v1
kind: Target
id: apart
version: 1.0.0
title: No row for the whole
mode: fixed
types: {a8: {storage: i8}, w8: {storage: i8, symmetric: true}, a16: {storage: i16}, a4: {storage: i4}}
defaults: {port: a8}
fusions:
  - {kernel: fused, pattern: "Relu(MatMul(x, w))"}
  - {kernel: product, pattern: "MatMul(x, w)"}
kernels:
  - {kernel: fused, in: {x: a4, w: a4}, out: {y: a4}, when: {x.rank: 7}}
  - {kernel: product, in: {x: a8, w: w8}, out: {y: a8}, rules: [{multiplier_scale: {out: y, of: [x, w]}}]}
  - {kernel: product, in: {x: a16, w: w8}, out: {y: a16}, rules: [{multiplier_scale: {out: y, of: [x, w]}}]}
  - {kernel: Relu, in: {x: a8}, out: {y: a8}, rules: [{same_scale: [x, y]}]}
"""
FUSED = """
x : f32[2,4] {-1, 1}
w = constant : f32[4,4] {-1, 1}
m = MatMul(x, w) : f32[2,4] {-3, 3}
r = Relu(m) : f32[2,4] {0, 3}
"""


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ({}, {"m": "i8", "r": "i8"}),
        ({"m": "i16"}, {"m": "i16", "r": "float"}),  # of the parts, the one that holds the op
        ({"*": "i16"}, {"m": "i16", "r": "float"}),
        ({"m": "i16", "r": "i8"}, {"m": "i16", "r": "i8"}),
        ({"r": "float"}, {"m": "float"}),  # the kernel is meant whole: it is not taken apart
        ({"m": "float"}, {"m": "float"}),
    ],
)
def test_a_kernel_that_no_row_takes_whole(wanted, expected):
    model, target = with_wanted(read_model_text(FUSED, "fused"), wanted), load_target(APART)
    plan = planner.plan(model, target)
    planner.check(plan, model, target)
    assert stored(plan) == expected


def loop():
    return planner.load_model(ROOT / "tests" / "cases" / "structure" / "loop_start_is_finer.json")


def test_kernels_in_bodies_go_by_their_paths():
    target = load_target(ROOT / "tests" / "cases" / "npu.yaml")
    for wanted in ({"w/act": "float"}, {"w/*": "float"}, {"w/sum": "i8"}, {"w/*": "i8"}):
        model = with_wanted(loop(), wanted)
        plan = planner.plan(model, target)
        planner.check(plan, model, target)
        assert plan.graph.wanted == model.wanted
    with pytest.raises(
        AnnotationError, match=r"'w' is no kernel and no op .*it runs a body, whose kernels are 'w/\*'"
    ):
        with_wanted(loop(), {"w": "float"})
    assert expand(loop()).wanted == {}


def test_every_place_of_a_function_is_asked_alone():
    target = load_target(ROOT / "tests" / "cases" / "npu.yaml")
    model = planner.load_model(ROOT / "tests" / "cases" / "structure" / "function_shared_by_two_calls.json")
    names = [region.name for region in expand(model).regions if "/" in region.name]
    asked = with_wanted(model, {names[0]: "float"})
    plan = planner.plan(asked, target)
    planner.check(plan, asked, target)
    assert [k.name for k in plan.kernels_in_order if k.reason == "annotated: float"] == [names[0]]


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("float", "float"),
        ("any", "any"),
        ("*", "any"),
        ("i16", "i16"),
        ("i8<-127:127>", "i8<-127:127>"),
        ("si8", "i8"),
        ("f8E4M3FN", "f8E4M3FN"),
        ("bf16", "bf16"),
        ({"in": ["i16", "*"]}, {"in": ["i16", "*"]}),
        ({"out": ["f32"], "in": []}, {"out": ["f32"]}),
    ],
)
def test_forms(text, written):
    wanted = wanted_from_data(text)
    assert wanted_to_data(wanted) == written
    assert wanted_from_data(wanted_to_data(wanted)) == wanted


@pytest.mark.parametrize(
    "data",
    [
        "",
        "i0",
        "i65",
        "int8",
        "!quant.any<i8>",
        None,
        8,
        [],
        ["i8"],
        {},
        {"in": []},
        {"in": "i8"},
        {"y": ["i8"]},
    ],
)
def test_other_forms_are_refused(data):
    with pytest.raises(AnnotationError, match="float, any, a storage such as i16"):
        wanted_from_data(data)


@pytest.mark.parametrize(
    ("wanted", "has", "is_it"),
    [
        ("i8", ("i8", -127, 127), True),
        ("i8", ("i8",), True),
        ("i8", ("u8",), False),
        ("i8", ("i4",), False),
        ("i8<-127:127>", ("i8",), False),
        ("i8<-127:127>", ("i8", -127, 127), True),
    ],
)
def test_a_storage_stands_for_its_narrower_ranges(wanted, has, is_it):
    assert is_stored_in(wanted_from_data(wanted).result, storage(*has)) is is_it


@pytest.mark.parametrize(
    ("remove", "left"),
    [
        ("a/c", {"a/*": "i16", "s": "float", "a/c": "any"}),  # a glob concerns it still
        ("a/*", {"s": "float"}),
        ("s", {"a/*": "i16", "a/c": "float"}),
        ("*", {}),
        ("g", {"a/*": "i16", "a/c": "float", "s": "float"}),
    ],
)
def test_removing(remove, left):
    model = with_wanted(net(), {"a/*": "i16", "a/c": "float", "s": "float"})
    rest = without_wanted(model, remove)
    assert {key: str(wanted) for key, wanted in rest.wanted.items()} == left
    document = {"format": "qplan.annotations/1", "remove": [remove]}
    assert annotate(model, annotations=document).wanted == rest.wanted


def test_what_is_asked_later_comes_last():
    model = with_wanted(with_wanted(net(), {"a/*": "i16", "a/d": "i8"}), {"a/*": "float"})
    assert list(model.wanted) == ["a/d", "a/*"]


def test_annotations_are_a_file_a_mapping_or_an_argument(tmp_path):
    text = 'format: qplan.annotations/1\nkernels: {"a/*": i16, s: float, a/c: {in: [i16, i8], out: [i16]}}\n'
    path = tmp_path / "a.yaml"
    path.write_text(text, encoding="utf-8")
    asked = {"a/*": "i16", "s": "float", "a/c": {"in": ["i16", "i8"], "out": ["i16"]}}
    document = {"format": "qplan.annotations/1", "kernels": asked}
    found = [annotate(net(), annotations=one).wanted for one in (path, text, document)]
    found += [annotate(net(), kernels=asked).wanted, with_wanted(net(), asked).wanted]
    assert found == [found[0]] * 5
    assert calibration_digest(with_wanted(net(), asked)) == calibration_digest(net())


@pytest.mark.parametrize(
    ("kernels", "message"),
    [
        ("{a/e: i16}", "a.yaml:2:11: 'a/e' is no kernel and no op of model 'net' (did you mean "),
        ("{'z*': i16}", "a.yaml:2:11: glob 'z*' matches no kernel and no op of model 'net' (known: 'a/c', "),
        (
            "{a/c: i160}",
            "a.yaml:2:11: storage 'i160' has more than 64 bits; accepted of a kernel: float, any, ",
        ),
        ("{a/c: }", "a.yaml:2:11: None is no request for a kernel; accepted: float, any, "),
        ("[a/c]", "a.yaml:2:1: kernels must map names to float, any, a storage such as i16, or "),
    ],
)
def test_refused_word_for_word(tmp_path, kernels, message):
    path = tmp_path / "a.yaml"
    path.write_text(f"format: qplan.annotations/1\nkernels: {kernels}\n", encoding="utf-8")
    with pytest.raises(AnnotationError) as caught:
        annotate(net(), annotations=path)
    assert str(caught.value).startswith(message)


def test_a_model_file_that_asks_of_nothing_is_refused_when_it_is_planned():
    document = json.loads(write_annotated(net()))
    model = read_annotated(json.dumps(document | {"wanted": {"zz": "float"}}))
    with pytest.raises(AnnotationError, match="'zz' is no kernel and no op of model 'net'"):
        planner.plan(model, "litert-int8")


def test_bodies_ask_nothing_of_their_own():
    path = ROOT / "tests" / "cases" / "structure" / "loop_start_is_finer.json"
    document = json.loads(Path(path).read_text(encoding="utf-8"))
    document["functions"][0]["wanted"] = {"sum": "float"}
    with pytest.raises(PlanFormatError, match=r"functions\[0\]\.wanted: "):
        read_annotated(json.dumps(document))


def test_explanations_and_differences():
    before, after = planned({}), planned({"a/*": "i16", "s": "float"})
    assert "a/c is annotated: i16, by 'a/*'" in planner.explain(after, "a/c")
    assert planner.explain(after, "s") == (
        "s (Softmax) runs in float: annotated: float.\n  [{n}] s is annotated: float, by 's'"
    ).format(n=next(step.n for step in after.steps if (step.port, step.rule) == ("s", "annotated")))
    changed = {change.at for change in planner.diff(before, after).kernels}
    assert changed >= {"a/c", "a/d", "s"}
    assert "g" not in changed
    told = planner.explain(planned({"*": "i16"}), "g")
    assert "g is annotated: i16, by '*', and no row of it runs so" in told


EDITS = [
    {"kernels": {"a/c": "i16"}},
    {"kernels": {"a/*": "float"}},
    {"kernels": {"*": "i16"}, "values": {"a/d": "!quant.none"}},
    {"remove": ["a/c"]},
    {"remove": ["*"], "kernels": {"s": "float"}},
    {"values": {"a/c": "!quant.any<i16>"}},  # facts move, what is asked stays
]


@pytest.mark.parametrize("edits", EDITS)
@pytest.mark.parametrize("wanted", [{}, {"a/c": "i16"}, {"*": "i16", "a/d": "any"}])
def test_a_replan_is_the_plan_from_scratch(edits, wanted):
    plan = planned(wanted)
    model = annotate(with_wanted(net(), wanted), annotations={"format": "qplan.annotations/1", **edits})
    again = planner.replan(plan, edits)
    assert again.to_json() == planner.plan(model, "litert-int8").to_json()
    planner.check(again, model, "litert-int8")
    read = planner.plan_from_json(plan.to_json())
    from_file = planner.replan(read, edits, model=with_wanted(net(), wanted), target="litert-int8")
    assert from_file.to_json() == again.to_json()


def test_digests_tell_what_is_asked():
    plans = [planned(wanted) for wanted in ({}, {"a/c": "any"}, {"a/c": "i8"}, {"*": "i16"})]
    assert len({plan.key for plan in plans}) == 4
    assert len({plan.model for plan in plans}) == 4
    assert len({json.dumps(stored(plan)) for plan in plans[:3]}) == 1


def test_a_bare_model_is_completed_from_the_plan():
    plan = planned({"a/c": "i16"})
    model = net()
    bare = replace(model, values={n: replace(value, facts=()) for n, value in model.values.items()})
    planner.check(plan, bare, "litert-int8")
    restored = planner.restore(plan, "a/d")
    assert restored.graph.wanted == plan.graph.wanted
    assert (stored(restored)["a/c"], stored(restored)["a/d"]) == ("i16", "float")


def test_a_row_of_unsigned_weights_per_channel_that_is_asked_for():
    """The engine takes one zero point off all channels: the middle."""
    plan = planned({"a/c": {"in": ["u8", "u8"], "out": ["u8"]}}, "onnxruntime-cpu")
    kind = plan.kernels["a/c"].inputs[1].type
    assert (str(kind.storage), kind.axis, set(kind.zero_points)) == ("u8", 0, {128})
    signed = planned({}, "onnxruntime-cpu").kernels["a/c"].inputs[1].type
    assert kind.scales == signed.scales


ON_REQUEST = """
apiVersion: planner/v1
kind: Target
id: on-request
version: 1.0.0
title: Sixteen bits where they are asked for
mode: fixed
types: {a8: {storage: i8}, a16: {storage: i16}}
defaults: {on_no_kernel: float}
kernels:
  - {kernel: Exp, in: {x: a8}, out: {y: a8}}
  - {kernel: Exp, in: {x: a16}, out: {y: a16}, when: {asked: true}}
  - {kernel: Log, in: {x: a16}, out: {y: a16}, when: {asked: true}}
"""


def on_request(kernels):
    text = """
      x : f32[4] {0.5, 2}
      e = Exp(x) : f32[4] {1, 8}
      y = Log(e) : f32[4] {0, 3}
    """
    device = load_target(ON_REQUEST)
    graph = with_wanted(read_model_text(text, "on request"), kernels)
    plan = planner.plan(graph, device)
    planner.check(plan, graph, device)
    return plan


@pytest.mark.parametrize(
    ("kernels", "stored"),
    [
        ({}, ["i8", ""]),
        ({"*": "i16"}, ["i16", "i16"]),
        ({"y": "i16"}, ["i8", "i16"]),
        ({"e": {"in": ["i16"]}}, ["i16", ""]),
        ({"*": "float"}, ["", ""]),
    ],
)
def test_rows_on_request_serve_where_they_are_asked_for(kernels, stored):
    plan = on_request(kernels)
    found = [kernel.outputs[0].type for kernel in plan.kernels_in_order]
    assert ["" if kind is None else str(kind.storage) for kind in found] == stored


def test_a_kernel_of_rows_on_request_alone_says_so():
    assert "it runs on request only" in on_request({}).kernels["y"].reason


def test_the_checker_refuses_a_row_on_request_that_nobody_asked_for():
    plan = on_request({"e": "i16"})
    unasked = replace(plan, graph=replace(plan.graph, wanted={}))
    with pytest.raises(PlanInvalid, match="no request names the kernel"):
        planner.check(unasked)


def test_a_fusion_cannot_say_it():
    fusion = "fusions:\n  - {kernel: Exp, pattern: Exp(x), where: {asked: true}}\nkernels:"
    device = load_target(ON_REQUEST.replace("kernels:", fusion))
    with pytest.raises(TargetError, match="unknown predicate 'asked'"):
        planner.plan(read_model_text("y = Exp(x) : f32[4] {1, 8}", "fused"), device)
