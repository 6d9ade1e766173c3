"""Annotated models between JSON and the modules `qplan mlir` prints: nothing is lost, either way."""

from hypothesis import given

from planner.formats.annotated.document import write_annotated
from planner.formats.mlir.module import read_mlir, write_mlir
from planner.formats.mlir.passes.tool import run_parts
from tests.equality import assert_same
from tests.strategies import graphs


@given(graphs())
def test_json_through_a_printed_module_is_the_same_json(graph):
    text = write_annotated(graph)
    (module,) = run_parts(text)
    (again,) = run_parts(module.text, to_json=True)
    assert (module.error, again.error, again.text) == ("", "", text)


@given(graphs())
def test_a_printed_module_is_the_same_model(graph):
    (part,) = run_parts(write_mlir(graph))
    assert part.error == ""
    assert_same(read_mlir(part.text), graph)


@given(graphs())
def test_printing_is_idempotent(graph):
    (once,) = run_parts(write_mlir(graph))
    (twice,) = run_parts(once.text)
    assert once.text == twice.text
