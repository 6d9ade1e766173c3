"""Every row of litert-int8 as a small file of stored integers: LiteRT's kernels against the interpreter.

What differs is in docs/litert.md: the kernels round otherwise than the row's arithmetic says.
"""

import re
from pathlib import Path

import numpy as np

import planner
from planner.target_tests.probe_kit import make_kit
from tests.exporters.litert.running import kernels_for, runtime_target
from tests.oracles import litert

SEEDS = 4
# By kit item: how many of how many integers of four seeds differ, and by how much at most.
DIFFER = {
    "Exp-2": (82, 256, 29),
    "HardSwish-1": (1, 256, 1),
    "LeakyRelu-1": (1, 256, 1),
    "LeakyRelu-2": (1, 256, 1),
    "ReduceMean-1": (2, 16, 1),
    "ReduceMean-2": (2, 16, 1),
    # The reference kernel leaves the result's zero point out; the optimized one does not.
    "ReduceSum-1": (16, 16, 128),
    "Resize-2": (123, 1024, 1),
    "Resize-4": (143, 1024, 1),
    "Sigmoid-2": (66, 256, 1),
    "Softmax-2": (73, 256, 1),
    "Tanh-2": (167, 256, 2),
    "batch_matmul-2": (70, 512, 1),
    "conv2d-2": (19, 512, 1),
    "depthwise_conv2d-2": (13, 256, 1),
    # With `requantize: tosa_single` none of the two.
    "fully_connected-1": (1, 256, 1),
    "fully_connected-2": (1, 256, 1),
    "transpose_conv-2": (130, 1152, 1),
}
REFUSED = {
    "AveragePool-2": "AVERAGE_POOL_2D accepts no padding, or that of SAME: [0, 0, 0, 0] here",
    "AveragePool-4": "AVERAGE_POOL_2D accepts no padding, or that of SAME: [0, 0, 0, 0] here",
    "LSTM-1": "no LiteRT operator computes LSTM",
    "LSTM-2": "no LiteRT operator computes LSTM",
    "ReduceSum-2": "ReduceSum of 16-bit integers, whose zero points and scales SUM leaves in",
}


def test_every_row(tmp_path):
    target, counts = planner.load_target("litert-int8"), {}
    for seed in range(SEEDS):
        kit = make_kit(target, form="litert", seed=seed)
        refused = {item.name: item.refusal for item in kit.items if item.file is None}
        assert refused.keys() == REFUSED.keys()
        assert all(words in refused[name] for name, words in REFUSED.items())
        for kernels in ("optimized", "reference"):
            items = [item for item in kit.items if item.file and kernels_for(item.file) == kernels]
            folder = tmp_path / f"{kernels}_{seed}"
            folder.mkdir()
            found = litert.run(folder, [(item.file, [item.inputs]) for item in items], kernels=kernels)
            for item, answer in zip(items, found, strict=True):
                assert not isinstance(answer, str), f"{item.name}: {answer}"
                count(counts, item, answer[0])
    assert {name: told for name, told in counts.items() if told[0]} == DIFFER
    assert len(counts) == 84


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


def test_rows_that_name_the_runtimes_arithmetic(tmp_path):
    known = {f"{name}-{i}" for name in ("conv2d", "depthwise_conv2d", "transpose_conv") for i in (1, 2)}
    known |= {"fully_connected-1", "fully_connected-2"}
    counts = {}
    for seed in range(SEEDS):
        kit = make_kit(runtime_target(), form="litert", seed=seed)
        items = [item for item in kit.items if item.name in known]
        folder = tmp_path / str(seed)
        folder.mkdir()
        for item, answer in zip(
            items, litert.run(folder, [(i.file, [i.inputs]) for i in items]), strict=True
        ):
            assert not isinstance(answer, str), f"{item.name}: {answer}"
            count(counts, item, answer[0])
    assert {name: told[0] for name, told in counts.items()} == dict.fromkeys(known, 0)


def test_the_page_has_these_figures():
    text = (Path(__file__).resolve().parents[3] / "docs" / "litert.md").read_text("utf-8")
    rows = [line for line in text.splitlines() if re.search(r" of (16|256|512|1024)\b", line)]
    told = " ".join(rows)
    for name, (count, total, _) in DIFFER.items():
        assert re.search(rf"\b{count}\b", told), name
        assert f" of {total}" in told or name == "ReduceSum-1", name


def test_the_page_has_a_target_that_computes_as_the_runtime(tmp_path):
    text = (Path(__file__).resolve().parents[3] / "docs" / "litert.md").read_text("utf-8")
    (tmp_path / "own.yaml").write_text(re.search(r"```yaml\n(.*?)```", text, re.DOTALL)[1])
    rows = planner.load_target(tmp_path / "own.yaml").rows["fully_connected"]
    assert [row.requantize for row in rows][:2] == ["tosa_single", "tosa_double"]
