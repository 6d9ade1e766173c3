"""Planning looks at the rows of the model's own kernels: rows of other kernels add nothing."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from planner.formats.onnx.read import read_onnx
from planner.pipeline import annotate, calibrate
from planner.pipeline import plan as plan_model
from planner.target.load import load_target

DIGITS = Path(__file__).parents[2] / "examples" / "digits"


class Counted(tuple):
    """Rows of one kernel that count how many of them are looked at."""

    __slots__ = ()

    looked = 0

    def __iter__(self) -> Iterator:
        for row in super().__iter__():
            type(self).looked += 1
            yield row


def rows_looked_at(model, target):
    Counted.looked = 0
    rows = {kernel: Counted(rows) for kernel, rows in target.rows.items()}
    plan = plan_model(model, replace(target, rows=rows))
    return Counted.looked, plan


def test_a_thousand_rows_of_other_kernels_add_none():
    model = read_onnx(DIGITS / "digits.onnx")
    model = annotate(model, stats=calibrate(model, DIGITS / "calibration.npz"))
    target = load_target("onnxruntime-cpu")
    (row, *_) = target.rows["Sigmoid"]
    others = {f"other{i}": (replace(row, kernel=f"other{i}"),) for i in range(1000)}
    few, plan = rows_looked_at(model, target)
    many, same = rows_looked_at(model, replace(target, rows={**others, **target.rows}))
    assert few == many
    assert 0 < few <= sum(len(target.rows[kernel.kernel]) for kernel in plan.kernels_in_order)
    assert [k.row for k in plan.kernels_in_order] == [k.row for k in same.kernels_in_order]
