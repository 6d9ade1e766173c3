"""Every text form gives back exactly what it was written from."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from xdsl.dialects import builtin

from planner.errors import ModelError
from planner.formats.annotated.document import annotated_from_data, read_annotated, write_annotated
from planner.formats.annotated.jsontext import number, quote_all
from planner.formats.mlir.module import read_mlir, write_mlir
from planner.formats.mlir.text.read_module import parse_text
from planner.ir.graph import Graph, Region, Value, model_digest
from planner.ir.types.fit import misfit
from planner.ir.types.qtypes import NoneType, Uniform
from planner.ir.types.typetext import parse_storage
from planner.plans.read_json import plan_from_json
from planner.plans.read_mlir import plan_from_mlir
from planner.plans.write_json import plan_to_json
from planner.plans.write_mlir import plan_to_mlir
from tests.equality import assert_same
from tests.strategies import graphs, plans


@given(graphs())
def test_an_annotated_model_survives_json(graph):
    text = write_annotated(graph)
    again = read_annotated(text)
    assert_same(graph, again)
    assert write_annotated(again) == text
    assert model_digest(again) == model_digest(graph)


@given(graphs())
def test_an_annotated_model_survives_mlir(graph):
    text = write_mlir(graph)
    again = read_mlir(text)
    assert_same(graph, again)
    assert write_mlir(again) == text


@given(graphs())
def test_json_and_mlir_convert_into_each_other_without_loss(graph):
    text = write_annotated(graph)
    assert write_annotated(read_mlir(write_mlir(read_annotated(text)))) == text


@given(graphs())
def test_xdsl_verifies_and_reprints_what_we_print(graph):
    module, _ = parse_text(write_mlir(graph))
    module.verify()
    assert isinstance(module, builtin.ModuleOp)
    assert_same(read_mlir(str(module)), graph)


@given(plans())
def test_a_plan_survives_json(plan):
    text = plan_to_json(plan)
    again = plan_from_json(text)
    assert_same(plan, again)
    assert plan_to_json(again) == text


@given(plans())
def test_a_plan_survives_mlir(plan):
    text = plan_to_mlir(plan)
    again = plan_from_mlir(text)
    assert_same(plan, again)
    assert plan_to_mlir(again) == text
    assert plan_to_json(again) == plan_to_json(plan)


@given(plans())
def test_a_plan_module_reads_as_the_planned_graph(plan):
    """Its rescales are edges again, and its ports are pinned to what was decided, to float too."""
    graph = read_mlir(plan_to_mlir(plan))
    assert_same(bare(graph), bare(plan.graph))
    regions = {region.name: region for region in graph.regions}
    for kernel in plan.kernels_in_order:
        region = regions[kernel.name]
        shown = [*region.input_facts, *region.output_facts] or [()] * 99
        for port, facts in zip((*kernel.inputs, *kernel.outputs), shown, strict=False):
            is_float = bool(port.value) and graph.values[port.value].is_float
            assert facts == ((port.type,) if port.type else (NoneType(),) if is_float else ())


def bare(graph):
    """A graph without what its ports are pinned to."""
    regions = tuple(replace(region, input_facts=(), output_facts=()) for region in graph.regions)
    return replace(graph, regions=regions)


@given(graphs())
def test_an_annotated_model_is_read_from_data_as_from_text(graph):
    text = write_annotated(graph)
    assert_same(annotated_from_data(json.loads(text)), read_annotated(text))


@given(plans())
def test_every_line_is_what_json_makes_of_what_it_says(plan):
    for text in (plan_to_json(plan), write_annotated(plan.graph)):
        assert json.loads(text)["format"]
        for line in text.splitlines():
            key, _, entry = line.strip().removesuffix(",").partition(": ")
            for part in (line.strip().removesuffix(","), entry if key.startswith('"') else ""):
                if part.startswith("{") and part.endswith("}"):
                    assert json.dumps(json.loads(part), ensure_ascii=False) == part


def test_what_json_has_no_text_for_is_refused():
    assert [number(x) for x in (0, 1e-7, -2.5)] == ["0.0", "1e-07", "-2.5"]
    assert quote_all(["a", "", 'b"']) == '["a", null, "b\\""]'
    for value in (float("inf"), float("-inf"), float("nan")):
        with pytest.raises(ValueError, match="no number of JSON"):
            number(value)


@pytest.mark.parametrize("size", range(1, 6))
@pytest.mark.parametrize("block", range(1, 8))
def test_blocks_that_fit_in_json_fit_in_mlir(size, block):
    """The last block may be shorter than the others, or the only one."""
    for count in range(1, 7):
        kind = Uniform(
            parse_storage("i8"), (0.5,) * count, (0,) * count, "f32", None, ((0, block),), (count,)
        )
        value = Value("x", (size,), "f32")
        region = Region("k", "relu", ("x",), ("y",), (), input_facts=((kind,),))
        values = {"x": value, "y": Value("y", (size,), "f32")}
        graph = Graph("m", values, (), ("x",), ("y",), {}, (region,))
        if misfit(kind, value):
            with pytest.raises(ModelError, match="does not fit"):
                read_annotated(write_annotated(graph))
            with pytest.raises(ModelError, match="does not fit"):
                read_mlir(write_mlir(graph))
        else:
            assert count == -(-size // block)
            assert_same(read_annotated(write_annotated(graph)), graph)
            assert_same(read_mlir(write_mlir(graph)), graph)
