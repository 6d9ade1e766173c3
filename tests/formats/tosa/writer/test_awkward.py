"""Every awkward model of fixed sizes as a TOSA program: refused in words, or run with our numbers."""

import numpy as np
import pytest

from planner.errors import PlannerError, UnsupportedExport
from planner.formats.tosa.writer.write import write_tosa
from planner.interpreter.evaluate import Interpreter
from tests.awkward.job import Prepared, plan_of, prepare
from tests.awkward.models import AWKWARD
from tests.formats.tosa.writer.running import agreed, fed, with_all_results
from tests.oracles import tosa

NEARLY = 1e-5


def written(name: str) -> tuple[Prepared, object, bytes] | None:
    """The model, its plan with all results, and the program; None where it is refused."""
    try:
        prepared = prepare(AWKWARD[name]())
        plan = plan_of(prepared, "tosa-int8")
    except PlannerError:
        return None
    if any(prepared.graph.values[name].shape != array.shape for name, array in prepared.samples[0].items()):
        return None
    graph, seen = with_all_results(prepared.graph, plan)
    try:
        return Prepared(graph, prepared.samples, (), ()), seen, write_tosa(graph, seen)
    except UnsupportedExport as error:
        if "tosa accepts" not in str(error):
            raise
        return None


@pytest.mark.soak
def test_awkward_models(tmp_path):
    made = {name: found for name in AWKWARD if (found := written(name)) is not None}
    assert len(made) > len(AWKWARD) // 2, sorted(made)
    jobs = [(data, [fed(each.graph, plan, each.samples[0])]) for each, plan, data in made.values()]
    for (name, (each, plan, _)), found in zip(made.items(), tosa.run(tmp_path, jobs), strict=True):
        assert not isinstance(found, str), f"{name}: {found}"
        wanted = Interpreter(each.graph, plan).run(each.samples[0])
        for value, expected, got in agreed(wanted, plan, found[0]):
            # Of one number the rank may be 0 or 1, in the interpreter too.
            assert got.shape == expected.shape or got.size == expected.size == 1, f"{name}: {value}"
            atol = NEARLY if expected.dtype.kind == "f" else 0
            shaped = got.reshape(expected.shape)
            np.testing.assert_allclose(shaped, expected, rtol=0, atol=atol, err_msg=f"{name}: {value}")
