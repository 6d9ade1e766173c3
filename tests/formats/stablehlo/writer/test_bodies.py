"""Loops and branches in both forms: jaxlib against the interpreter, and what no program says.

jaxlib's verifier takes quantized types on `while` and `if`, its own lowering does not: quantized modules run
behind our quant-to-math pass.
"""

import numpy as np
import pytest

import planner
from planner.errors import UnsupportedExport
from planner.formats.mlir.passes.tool import transform
from tests.formats.bodies import MODELS, REFUSED, loaded, prepared
from tests.formats.stablehlo.writer.running import steps_off
from tests.oracles import hlo

ARITHMETIC = {"stablehlo": "float32_spec", "stablehlo-int": "exact_even"}


def lowered(text, form):
    return transform(text, ["stablehlo-legalize-quant-to-math"])[0] if form == "stablehlo" else text


@pytest.mark.parametrize("form", ARITHMETIC)
def test_a_program_computes_what_the_interpreter_does(form):
    made, jobs = {}, []
    for name, model in MODELS.items():
        graph, samples = prepared(*model)
        plan = planner.plan(graph, "stablehlo")
        assert any(kernel.row for kernel in plan.kernels_in_order), name
        text = planner.export(graph, plan, form).decode()
        made[name] = graph, plan, samples, text
        jobs += [(lowered(text, form), list(sample.values())) for sample in samples]
    refused = [text for text in hlo.printed([text for *_, text in made.values()]) if text.startswith("ERROR")]
    assert refused == []
    results = iter(hlo.evaluated(jobs))
    for name, (graph, plan, samples, _) in made.items():
        for sample in samples:
            stored, floats = steps_off(graph, plan, ARITHMETIC[form], sample, next(results))
            assert all(off.max(initial=0) == 0 for off in stored.values()), name
            for got, wanted in floats.values():
                np.testing.assert_array_equal(got, wanted, err_msg=name)


@pytest.mark.parametrize("form", ARITHMETIC)
@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_fixed_size_is_refused(name, form):
    text, *words = REFUSED[name]
    graph = loaded(text)
    with pytest.raises(UnsupportedExport) as caught:
        planner.export(graph, planner.plan(graph, "stablehlo"), form)
    assert words[0] in str(caught.value)
    assert f"{form} {words[1]}" in str(caught.value)
