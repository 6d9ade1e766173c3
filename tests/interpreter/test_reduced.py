"""ReduceMean and ReduceSum in `exact_even`: one rounding of the exact sum."""

from fractions import Fraction

import numpy as np
import pytest

from planner.interpreter.evaluate import evaluate
from tests.formats.plans import i8, model, op, plan_of

X, Y = i8(0.25, 3), i8(0.75, -5)


@pytest.mark.parametrize("kind", ["ReduceMean", "ReduceSum"])
@pytest.mark.parametrize(("axes", "keepdims"), [((1,), 1), ((-1, 0), 0), ((), 0)])
def test_rounds_the_exact_sum_once(kind, axes, keepdims):
    """Half to even of the sum, or of its share, in steps of the result."""
    stored = np.random.default_rng(0).integers(-128, 128, (3, 4, 5))
    along = axes or (0, 1, 2)
    inputs, constants = ("x axes", {"axes": np.array(axes)}) if axes else ("x", {})
    graph = model(
        [op(kind, inputs, "y", keepdims=keepdims)],
        inputs={"x": stored.shape},
        outputs={"y": None},
        constants=constants,
    )
    plan = plan_of(graph, [(["y"], "x", "y")], {"x": X, "y": Y})
    sample = {"x": ((stored - 3) * 0.25).astype(np.float32)}
    got = evaluate(graph, plan, sample, arithmetic="exact_even").stored["y"]
    count = np.prod([stored.shape[axis] for axis in along]) if kind == "ReduceMean" else 1
    total = np.asarray((stored - 3).sum(along, keepdims=bool(keepdims)))
    exact = [round(Fraction(int(item), 3 * int(count))) - 5 for item in total.flat]
    np.testing.assert_array_equal(got, np.clip(exact, -128, 127).reshape(total.shape))
