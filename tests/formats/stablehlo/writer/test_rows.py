"""Every row of the target `stablehlo` as a small program, in both forms: jaxlib against our interpreter."""

import numpy as np
import pytest

import planner
from planner.formats.table import EXPORTERS
from planner.ir.types.qtypes import Uniform
from planner.target_tests.probe_kit import make_kit
from tests.formats.stablehlo.writer.running import job, steps_off, unpinned
from tests.oracles import hlo

# Functions without a last bit in common, and sums whose order is the engine's: one step, rarely.
NEARLY = {
    "stablehlo": {"Exp", "Log", "Pow", "ReduceMean", "ReduceSum", "Sigmoid", "Sin", "Tan", "Tanh", "Cos"}
    | {"AveragePool", "GlobalAveragePool", "convolution", "dot_general", "dot_general_activations"},
    "stablehlo-int": set(),
}
ARITHMETIC = {"stablehlo": "float32_spec", "stablehlo-int": "exact_even"}


@pytest.mark.parametrize("form", NEARLY)
def test_every_row_computes_what_the_interpreter_does(form):
    kit = make_kit(planner.load_target("stablehlo"), form=form)
    assert not kit.skipped
    assert [item.name for item in kit.items if item.file is None] == []
    jobs, cases = [], []
    for item in kit.items:
        graph, plan = unpinned(planner.load_model(item.model), item.plan)
        kinds = {port.value: port.type for kernel in plan.kernels_in_order for port in kernel.inputs}
        sample = {name: _real(item.inputs[name], kinds.get(name)) for name in graph.inputs}
        jobs.append(job(graph, plan, form, sample))
        cases.append((item, graph, plan, sample))
    for (item, graph, plan, sample), results in zip(cases, hlo.evaluated(jobs), strict=True):
        stored, floats = steps_off(graph, plan, ARITHMETIC[form], sample, results)
        for off in stored.values():
            is_nearly = item.kernel in NEARLY[form]
            assert off.max(initial=0) <= is_nearly, item.name
            assert np.count_nonzero(off) <= 0.02 * off.size, item.name
        for got, wanted in floats.values():
            np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6, err_msg=item.name)


def _real(array, kind):
    if not isinstance(kind, Uniform) or array.dtype.kind == "f":
        return array
    return ((array.astype(np.int64) - kind.zero_point) * np.float32(kind.scale)).astype(np.float32)


def test_both_forms_are_listed():
    assert {"stablehlo", "stablehlo-int"} <= set(EXPORTERS)
