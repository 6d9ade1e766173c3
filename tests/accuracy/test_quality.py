"""Figures of tensors and of their groups are those of numpy, over all samples."""

import math

import numpy as np
import pytest

from planner.accuracy.quality import Quality, Tally

RNG = np.random.default_rng(9)


def db(wanted, got):
    wanted, got = np.concatenate(wanted).astype(float), np.concatenate(got)
    return 10 * math.log10((wanted**2).sum() / ((wanted - got) ** 2).sum())


def detections() -> np.ndarray:
    """Four boxes and three scores at fifty places."""
    parts = [RNG.uniform(0, 600, (1, 50, 4)), RNG.uniform(0, 1, (1, 50, 3))]
    return np.concatenate(parts, 2).astype(np.float32)


def test_scores_are_not_judged_among_boxes():
    """28 dB of which the scores have none: the worst group counts."""
    wanted = [
        np.concatenate([RNG.uniform(0, 600, (1, 50, 4)), RNG.uniform(0, 1, (1, 50, 3))], 2) for _ in "ab"
    ]
    wanted = [array.astype(np.float32) for array in wanted]
    got = [array + RNG.normal(scale=1.0, size=array.shape) for array in wanted]
    tally = Tally(is_cut=True)
    for one, other in zip(wanted, got, strict=True):
        tally.add(one, other)
    quality = tally.quality()
    assert list(quality.groups) == ["[:, :, 0-3]", "[:, :, 4-6]"]
    assert quality.sqnr == pytest.approx(db(wanted, got))
    for label, part in (("[:, :, 0-3]", np.s_[:, :, :4]), ("[:, :, 4-6]", np.s_[:, :, 4:])):
        group = quality.groups[label]
        assert group.sqnr == pytest.approx(db([w[part] for w in wanted], [g[part] for g in got]))
        assert group.elements == sum(w[part].size for w in wanted)
        errors = [np.abs(w[part] - g[part]).max() for w, g in zip(wanted, got, strict=True)]
        assert group.max_error == pytest.approx(max(errors))
    assert quality.worst == quality.groups["[:, :, 4-6]"].sqnr < 5
    assert quality.sqnr > 40
    assert list(quality.parts) == ["", "[:, :, 0-3]", "[:, :, 4-6]"]


def test_what_is_alike_is_one_figure():
    array = RNG.normal(size=(1, 4, 16))
    tally = Tally(is_cut=True)
    tally.add(array, array + 0.5)
    assert tally.quality().groups == {}
    assert tally.quality().worst == tally.quality().sqnr


def test_an_exact_group_is_exact():
    boxes = detections()
    tally = Tally(is_cut=True)
    tally.add(boxes, np.concatenate([boxes[..., :4], boxes[..., 4:] * 0], 2))
    quality = tally.quality()
    assert [group.sqnr for group in quality.groups.values()] == [math.inf, 0.0]
    assert quality.worst == 0.0


def test_no_error_and_only_error():
    zero, one = np.zeros(3), np.ones(3)
    assert Quality(math.inf, 0.0, 3) == _of(zero, zero)
    assert Quality(-math.inf, 1.0, 3) == _of(zero, one)


def _of(wanted, got) -> Quality:
    tally = Tally()
    tally.add(wanted, got)
    return tally.quality()
