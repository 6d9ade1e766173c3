"""Loops and branches as TOSA programs: the reference model against the interpreter, and what none says."""

import numpy as np
import pytest

import planner
from planner.errors import UnsupportedExport
from planner.interpreter.evaluate import Interpreter
from tests.formats.bodies import MODELS, REFUSED, loaded, prepared
from tests.formats.tosa.writer.running import agreed, fed
from tests.oracles import mlir, tosa

TORCH_MLIR = (
    "builtin.module(tosa-attach-target{specification_version=1.0 profiles=pro_int,pro_fp "
    "extensions=int16,doubleround,controlflow level=8k},tosa-validate{strict-op-spec-alignment})"
)


def test_a_program_computes_what_the_interpreter_does(tmp_path):
    made, jobs = {}, []
    for name, model in MODELS.items():
        graph, samples = prepared(*model)
        plan = planner.plan(graph, "tosa-int8")
        assert any(kernel.row for kernel in plan.kernels_in_order), name
        made[name] = graph, plan, samples
        data = planner.export(graph, plan, "tosa")
        jobs.append((data, [fed(graph, plan, sample) for sample in samples]))
    refused = [
        text for text in mlir.modules([data.decode() for data, _ in jobs], TORCH_MLIR) if "ERROR" in text
    ]
    assert refused == []
    for (name, (graph, plan, samples)), found in zip(made.items(), tosa.run(tmp_path, jobs), strict=True):
        assert not isinstance(found, str), f"{name}: {found}"
        interpreter = Interpreter(graph, plan)
        for sample, got in zip(samples, found, strict=True):
            for value, wanted, array in agreed(interpreter.run(sample), plan, got):
                np.testing.assert_array_equal(array, wanted, err_msg=f"{name}: {value}")


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_fixed_size_is_refused(name):
    text, *words = REFUSED[name]
    graph = loaded(text)
    with pytest.raises(UnsupportedExport) as caught:
        planner.export(graph, planner.plan(graph, "tosa-int8"), "tosa")
    assert words[0] in str(caught.value)
    assert f"tosa {words[1]}" in str(caught.value)
