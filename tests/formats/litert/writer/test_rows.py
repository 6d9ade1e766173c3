"""Every row of litert-int8 as a small file of stored integers: LiteRT's kernels against the interpreter.

What differs is in docs/litert.md.
"""

from pathlib import Path

import numpy as np
import pytest

import planner
from planner.interpreter.kernels.litert import tabulated
from planner.ir.graph import Op
from planner.ir.types.qtypes import storage, uniform
from planner.target_tests.probe_kit import make_kit
from tests.formats.litert.writer.running import kernels_for
from tests.formats.litert.writer.test_kernels import one
from tests.oracles import litert

# By kit item: how many of how many integers of two seeds differ, and by how much at most.
DIFFER: dict[str, tuple[int, int, int]] = {}
REFUSED = {
    "LSTM-1": "the initial state 'x1' of LSTM is computed or not zero",
    "LSTM-2": "LSTM of 16-bit activations",
    # The kit has a scale for each row of a gate; see tests/formats/litert/reader/test_kinds.py.
    "LSTM-3": "(row LSTM@",
}


@pytest.mark.parametrize("seeds", [(0, 1), pytest.param((2, 3), marks=pytest.mark.soak)])
def test_every_row(seeds, tmp_path):
    target, counts = planner.load_target("litert-int8"), {}
    for seed in seeds:
        kit = make_kit(target, form="litert", seed=seed)
        refused = {item.name: item.refusal for item in kit.items if item.file is None}
        assert {name.split(".")[0] for name in refused} == REFUSED.keys()
        assert all(REFUSED[name.split(".")[0]] in text for name, text in refused.items())
        for kernels in ("optimized", "reference"):
            items = [item for item in kit.items if item.file and kernels_for(item.file) == kernels]
            folder = tmp_path / f"{kernels}_{seed}"
            folder.mkdir()
            found = litert.run(folder, [(item.file, [item.inputs]) for item in items], kernels=kernels)
            for item, answer in zip(items, found, strict=True):
                assert not isinstance(answer, str), f"{item.name}: {answer}"
                count(counts, item, answer[0])
    assert {name: told for name, told in counts.items() if told[0]} == DIFFER
    assert len({name.split(".")[0] for name in counts}) == 99


def count(counts, item, answer):
    """Add up what differs: (integers, of how many, by how much at most)."""
    for name, wanted in item.expected.items():
        assert answer[name].shape == wanted.shape, item.name
        off = np.abs(answer[name].astype(np.int64) - wanted.astype(np.int64))
        differing, total, most = counts.get(item.name, (0, 0, 0))
        counts[item.name] = (
            differing + int(np.count_nonzero(off)),
            total + off.size,
            max(most, int(off.max(initial=0))),
        )


@pytest.mark.parametrize("scale", [0.00025, 1 / 4096, 1 / 8192, 0.001])
@pytest.mark.parametrize("kind", ["Sigmoid", "Tanh", "Exp"])
def test_every_word_of_a_table(kind, scale, tmp_path):
    """All 65,536 operands, onto all results."""
    x = np.arange(-(1 << 15), 1 << 15).astype(np.int16).reshape(1, -1)
    step = float(np.float32(np.exp(32767 * scale) / 32767)) if kind == "Exp" else 1 / 32768
    types = uniform(storage("i16"), scale, 0), uniform(storage("i16"), step, 0)
    operator = {"Sigmoid": "LOGISTIC", "Tanh": "TANH", "Exp": "EXP"}[kind]
    data = one(operator, x, types, x.shape, ("", {}))
    wanted = tabulated(Op("y", kind, ("x",), ("y",)), *types, x)
    got = litert.run(tmp_path, [(data, [{"x": x}])])[0][0]["y"]
    np.testing.assert_array_equal(got, wanted)


def test_the_page_says_what_differs():
    text = (Path(__file__).resolve().parents[4] / "docs" / "litert.md").read_text("utf-8")
    assert "98 rows" in text
