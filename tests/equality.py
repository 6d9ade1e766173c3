"""Field-by-field equality of graphs and plans, which hold arrays and so have no `==`."""

import dataclasses

import numpy as np

from planner.ir.graph import Constant, Graph
from planner.plans.plan import Plan
from planner.propagation.result.step_log import Steps


def assert_same(a, b, path="") -> None:
    """Fail at the first field in which two graphs, plans or plain data differ."""
    a, b = (tuple(item) if isinstance(item, Steps) else item for item in (a, b))
    plans = isinstance(a, Plan) and isinstance(b, Plan)  # a Planned says what its plan says
    assert plans or type(a) is type(b), f"{path}: {a!r} and {b!r}"
    if isinstance(a, Graph | Plan | Constant) or (dataclasses.is_dataclass(a) and not isinstance(a, type)):
        for item in dataclasses.fields(Plan if plans else a):
            if item.compare:
                assert_same(getattr(a, item.name), getattr(b, item.name), f"{path}.{item.name}")
    elif isinstance(a, np.ndarray):
        assert a.dtype == b.dtype, path
        assert a.shape == b.shape, path
        assert np.array_equal(a, b), path
    elif isinstance(a, dict):
        assert a.keys() == b.keys(), path
        for key, item in a.items():
            assert_same(item, b[key], f"{path}[{key!r}]")
    elif isinstance(a, tuple | list):
        assert len(a) == len(b), f"{path}: {a!r} and {b!r}"
        for i, (left, right) in enumerate(zip(a, b, strict=True)):
            assert_same(left, right, f"{path}[{i}]")
    else:
        assert a == b, f"{path}: {a!r} and {b!r}"
