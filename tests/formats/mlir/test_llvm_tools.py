"""Modules that we write, in the tools of LLVM's projects: each parses them, and carries the plan along."""

import json
import re
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

import planner
from planner.errors import Conflict, PlanFormatError
from planner.formats.annotated.document import read_annotated
from planner.formats.mlir.module import read_mlir, read_module, write_mlir
from planner.formats.mlir.passes.tool import run_parts
from planner.formats.mlir.text.resources import resource_text, without_resources
from planner.formats.mlir.text.spelling import as_rfc, is_ours, type_text
from planner.ir.graph import Constant, Graph, Op, Value
from planner.ir.types.qtypes import AnyType, Calibrated, NoneType, Uniform, storage
from planner.ir.types.typetext import parse_type
from planner.plans.read_mlir import plan_from_mlir
from tests.conftest import ROOT
from tests.equality import assert_same
from tests.formats.mlir.types import OURS
from tests.oracles.mlir import ask
from tests.oracles.opt import TOOLS, parsed

CASES = ROOT / "tests" / "cases"
NPU = planner.load_target(CASES / "npu.yaml")
DIGITS = ROOT / "examples" / "digits"
PICKED = [
    *(CASES / "structure").glob("*.json"),
    *(
        CASES / f"{name}.json"
        for name in ("bias_is_the_product", "concat_of_two_ranges", "degenerate_ranges")
    ),
]


def odd():
    """A model of every type that upstream has not, of texts, and of names that no SSA value can have."""
    per_axis = Calibrated((-0.1, -0.2), (0.1, 0.3), axis=1)
    facts = {
        'a "b"\n{-#': (NoneType(),),
        "x" * 80: (parse_type("!quant.bipolar<f32, 0.5>"),),
        "y": (per_axis,),
        "ü": (AnyType(storage("i48")),),
        "z": (Calibrated((1.0,), (1.0,)), AnyType(storage("i4"))),
    }
    values = {name: Value(name, (4, 2), "f32", told) for name, told in facts.items()}
    values |= {"s": Value("s", (2,), "str"), "t": Value("t", None, "str")}
    ops = (
        Op("o", "Add", tuple(facts)[:2], ("y",)),
        Op(
            "p", "Mul", ("y", "y"), ("ü",), attributes={"text": b"\xff", "more": {"a.b": (1.5, float("inf"))}}
        ),
        Op("q", "Mul", ("ü", "y"), ("z",)),
        Op("r", "Say", ("s",), ("t",)),
    )
    return Graph(
        "odd", values, ops, (*tuple(facts)[:2],), ("z", "t"), {"s": Constant(np.array(["a", "b"], object))}
    )


def planned(paths):
    for path in paths:
        with suppress(Conflict):  # some cases are of what cannot be planned
            yield planner.plan(read_annotated(path.read_text(encoding="utf-8")), NPU)


def digits(target):
    model = planner.load_model(DIGITS / "digits.onnx")
    stats = planner.calibrate(model, DIGITS / "calibration.npz")
    return planner.plan(planner.annotate(model, stats=stats), target)


@pytest.mark.slow
@pytest.mark.parametrize("tool", TOOLS)
def test_every_tool_parses_models_and_plans(tool):
    """Calls, loops, branches, rescales, weights, types per axis; and the plan comes back out of the tool."""
    plans = [*planned(PICKED), digits("litert-int8"), digits("onnxruntime-cpu")]
    assert len(plans) >= 12
    for plan in plans:
        found = parsed(tool, plan.to_mlir())
        assert not found.startswith("ERROR"), found[:400]
        if tool != "jaxlib":  # its bindings drop resources
            assert_same(plan, plan_from_mlir(found))
    for graph in (odd(), *(read_annotated(path.read_text(encoding="utf-8")) for path in PICKED)):
        text = write_mlir(graph)
        if tool == "tosa-opt" and '"scf.' in text:
            continue  # it has no scf, and MLIR looks no callee up from inside of an unknown op
        found = parsed(tool, text)
        assert not found.startswith("ERROR"), found[:400]
        assert_same(read_mlir(found), graph)


def test_the_rfc_spelling_is_written_on_request_and_read():
    plan = digits("litert-int8")
    text = plan.to_mlir(spelling="rfc")
    assert '"quant.region"(' in text
    assert not re.search(r'"qplan\.(region|return|constant|stats)"\(', text)
    assert_same(plan, plan_from_mlir(text))
    graph = odd()
    rfc = write_mlir(graph, spelling="rfc")
    assert "!quant.none" in rfc
    assert "!qplan." not in rfc
    assert_same(read_mlir(rfc), graph)
    assert as_rfc(write_mlir(graph)) == rfc
    (part,) = run_parts(text)
    assert '"qplan.region"(' in part.text
    assert_same(plan, plan_from_mlir(part.text))
    (part,) = run_parts(plan.to_mlir(), spelling="rfc")
    assert_same(plan, plan_from_mlir(part.text))
    assert '"quant.region"(' in part.text


def test_texts_that_look_like_our_ops_stay():
    texts = 'a = "qplan.region", b = "\\"qplan.region\\"(", c = "!qplan.none", d = !qplan.none'
    text = f'"t.op"() {{{texts}}} : () -> ()'
    assert as_rfc(text) == text.replace("d = !qplan.none", "d = !quant.none")


def test_torch_mlir_has_exactly_the_types_that_we_spell_as_upstreams():
    """What is spelled `!quant` is known there, and what is spelled `!qplan` is not."""
    more = ("!quant.uniform<i48:f32, 0.5>", "!quant.any<i40>", "!quant.calibrated<f32<1.0:1.0>>")
    known = ("!quant.any<i4>", "!quant.calibrated<f32<-1.0:1.0>>", "!quant.uniform<u8:f32:1, {0.5,0.25:3}>")
    ours = [parse_type(text) for text in (*OURS, *more) if "dtype" not in text]
    assert all(map(is_ours, ours))
    assert all(type_text(kind).startswith("!qplan.") for kind in ours)
    answers = ask([{"types": [str(kind)]} for kind in ours])
    assert [answer for answer in answers if "error" not in answer] == []
    theirs = [parse_type(text) for text in known]
    assert not any(map(is_ours, theirs))
    assert all("error" not in answer for answer in ask([{"types": [type_text(kind)]} for kind in theirs]))
    per_slice = Uniform(storage("i8"), (0.5, 0.5), (0, 0), axis=0, ranges=((-8, 7), (-128, 127)))
    assert is_ours(per_slice)


def test_ssa_names_are_short():
    text = digits("litert-int8").to_mlir().partition("{-#")[0]
    assert max(map(len, re.findall(r"%[\w.$-]+", text))) <= len("%") + 16 + len("_10")
    assert max(map(len, re.findall(r"%[\w.$-]+", write_mlir(odd())))) < 20


def test_the_rest_of_a_plan_is_a_resource_line_by_line():
    plan = digits("litert-int8")
    text = plan.to_mlir()
    head, _, behind = text.partition("\n{-#")
    assert 'qplan.plan = "qplan.plan/1"' in head
    assert "qplan.plan/1" in behind
    document = json.loads(read_module(text).resources["qplan"])
    written = json.loads(plan.to_json())
    assert document["steps"] == written["steps"]
    assert behind.count("\n") > len(written["steps"])
    with pytest.raises(PlanFormatError, match="resource 'qplan', which holds the rest of its plan, is gone"):
        plan_from_mlir(head)
    # The module is a model all the same.
    assert_same(read_mlir(head), read_mlir(text))


def test_a_plan_of_before_is_read():
    """The JSON in an attribute, and the RFC's spelling."""
    path = Path(__file__).parent / "plan_of_before.mlir"
    assert plan_from_mlir(path.read_text(encoding="utf-8")).kernels["fc1"].row is not None


def test_resources_of_others_stay_readable():
    document = 'a "quoted" line\n  {-# #-} back\\slash\ttab ü\n\nlast'
    text = "module {\n}\n" + resource_text("qplan", document)
    assert without_resources(text) == ("module {\n}\n", {"qplan": document})
    other = '\n{-#\n  dialect_resources: {\n    builtin: {\n      w: "0x0400000001000000"\n    }\n  },\n'
    both = "module {\n}\n" + other + resource_text("qplan", document).removeprefix("{-#\n")
    module, found = without_resources(both)
    assert found == {"qplan": document}
    assert "external" not in module
    assert 'w: "0x0400000001000000"' in module
    (part,) = run_parts(text)
    assert without_resources(part.text)[1] == {"qplan": document}


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_resources_of_others_stay_before_ours_and_behind(order):
    others = '  dialect_resources: {\n    b: {\n      c: "0x01"\n    }\n  }'
    parts = ['  external_resources: {\n    a: {\n      k: "1"\n    }\n  }', others]
    text = "module {\n}\n\n{-#\n" + ",\n".join(parts[i] for i in order) + "\n#-}\n"
    left, _ = without_resources(text)
    assert left.replace("\n\n", "\n") == f"module {{\n}}\n{{-#\n{others}\n#-}}\n"
