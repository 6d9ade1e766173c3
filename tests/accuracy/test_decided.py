"""Decided: shares of answers that change, from few samples as from many."""

import numpy as np
import pytest

from planner.accuracy.decided import Decided, Decisions
from planner.accuracy.quality import Quality, Tally
from planner.accuracy.verdict import quality_level, verdict_of
from planner.ops.axes import UNKNOWN, Axes

ONE = Axes(("", "class"), "softmax")
WORDS = Axes(("", "word", "class"), "softmax")
STEPS = Axes(("", "place", "class"), "softmax")
PICTURE = Axes(("", "class", "place", "place"), "softmax")
MAP = Axes(("", "", "place", "place"), "sigmoid")


def softmax(logits, axis=-1):
    powers = np.exp(logits - logits.max(axis=axis, keepdims=True))
    return (powers / powers.sum(axis=axis, keepdims=True)).astype(np.float32)


def pair(rng, shape, noise, axis=-1):
    logits = rng.normal(size=shape) * 3
    return softmax(logits, axis), softmax(logits + rng.normal(size=shape) * noise, axis)


def found(axes, samples):
    decisions = Decisions(axes)
    for wanted, got in samples:
        decisions.add(wanted, got)
    return decisions.found()


def observed(samples):
    return np.mean([a.argmax(-1) != b.argmax(-1) for a, b in samples])


@pytest.mark.parametrize("noise", [0.02, 0.1, 0.4])
def test_few_samples_say_what_many_show(noise):
    rng = np.random.default_rng(3)
    many = [pair(rng, (1, 10), noise) for _ in range(4000)]
    few = [found(ONE, many[k : k + 64]).share for k in range(0, 640, 64)]
    assert observed(many) < np.mean(few) < 2.5 * observed(many)
    assert found(ONE, many).share == pytest.approx(observed(many), rel=0.4)


def test_what_is_exact_changes_nothing():
    rng = np.random.default_rng(4)
    for axes, shape, axis in ((ONE, (1, 10), -1), (WORDS, (1, 6, 10), -1), (PICTURE, (1, 5, 8, 8), 1)):
        samples = [(wanted, wanted) for wanted, _ in (pair(rng, shape, 0.0, axis) for _ in range(20))]
        assert found(axes, samples).share == 0.0


@pytest.mark.parametrize("axes", [Axes(("", "class"), "sigmoid"), Axes(("class", "class"), "softmax")])
def test_classes_of_a_softmax_before_are_no_decision(axes):
    wanted = softmax(np.random.default_rng(6).normal(size=(40, 6)) * 3, axis=0)
    assert found(axes, [(wanted, wanted)] * 20).share == 0.0
    assert found(axes, [(wanted, 1 - wanted)] * 20).share > 0.5


def test_a_sequence_is_one_answer():
    rng = np.random.default_rng(5)
    samples = [pair(rng, (1, 20, 10), 0.0) for _ in range(40)]
    broken = [
        (wanted, np.roll(got, 1, axis=-1) if k % 4 == 0 else got) for k, (wanted, got) in enumerate(samples)
    ]
    one_word = [(wanted, np.concatenate([bad[:, :1], wanted[:, 1:]], axis=1)) for wanted, bad in broken]
    assert found(WORDS, samples).answers == 40
    assert 0.15 < found(WORDS, one_word).share < 0.5


def test_the_background_of_a_picture_is_no_answer():
    """Sixteen spots of 144 pixels are above one half; one of them falls below."""
    wanted = np.full((1, 1, 12, 12), 0.01)
    wanted[0, 0, 1::3, 1::3] = 0.99
    got = wanted.copy()
    got[0, 0, 1, 1] = 0.2
    samples = [(wanted, got)] * 4
    assert found(MAP, samples).answers == 64
    f1 = 2 * 15 / (16 + 15)
    assert found(MAP, samples).share == pytest.approx(1 - f1, abs=0.03)


LABELS = Axes(("", ""), "sigmoid")
BOXES = Axes(("", "", "class"), "softmax")


def chances(axes, held, size=500):
    """Labels of one sample, those of `held` near certain: sigmoids, or boxes whose class 0 is none."""
    wanted = np.full((1, size), 0.01)
    wanted[0, list(held)] = 0.99
    return wanted if axes is LABELS else np.stack([1 - wanted, wanted * 0.98, wanted * 0.02], axis=-1)


@pytest.mark.parametrize("axes", [LABELS, BOXES])
@pytest.mark.parametrize("count", [20, 200])
@pytest.mark.parametrize("lost", [0.0, 0.25, 1.0])
def test_labels_that_nothing_holds_are_no_answer(axes, count, lost):
    """Of 500 labels a few hold: a file that loses some of them is wrong by the F1 score of these."""
    kept = range(round(count * lost), count)
    samples = [(chances(axes, range(count)), chances(axes, kept))] * 10
    decided = found(axes, samples)
    assert decided.answers == 10 * count
    assert lost / 2 <= decided.share <= 0.7 * lost


@pytest.mark.parametrize("count", [250, 240])
def test_labels_as_often_held_as_not_are_answers_all(count):
    every = found(LABELS, [(chances(LABELS, range(count)), chances(LABELS, range(count // 2)))] * 10)
    assert every.share == pytest.approx(0.25, rel=0.1)


def test_labels_of_which_none_holds_say_nothing():
    assert found(LABELS, [(chances(LABELS, ()),) * 2] * 100) is None


def test_one_label_a_sample_is_an_answer_each():
    one = [(chances(LABELS, held, 1),) * 2 for held in [(0,)] * 3 + [()] * 97]
    assert found(LABELS, one).answers == 100


@pytest.mark.parametrize("axes", [MAP, LABELS])
def test_a_sigmoid_that_bounds_numbers_decides_nothing(axes):
    """A bright picture with noise of a tenth is on the same side of one half everywhere, and is not good."""
    rng = np.random.default_rng(9)
    shape = (1, 1, 16, 16) if axes is MAP else (1, 256)
    pictures = [rng.uniform(0.62, 0.88, shape).astype(np.float32) for _ in range(20)]
    pairs = [(one, np.float32(one + rng.normal(size=shape) * 0.08).clip(0.52, 0.98)) for one in pictures]
    quality = tallied(axes, pairs)
    assert quality.decided is None
    assert quality_level(quality) == "poor"
    # One probability a sample is a decision, however unsure.
    unsure = [(one.reshape(-1, 1)[:1], one.reshape(-1, 1)[:1]) for one in pictures]
    assert tallied(Axes(("", ""), "sigmoid"), unsure).decided == Decided(0.0, 20)


def tallied(axes, pairs):
    tally = Tally(is_cut=True, axes=axes)
    for wanted, got in pairs:
        tally.add(wanted, got)
    return tally.quality()


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.bool_])
@pytest.mark.parametrize(("axes", "share"), [(UNKNOWN, 0.02), (Axes(("",), "index"), 0.02)])
def test_a_label_is_right_or_wrong(dtype, axes, share):
    """By dB a wrong label of 2 among labels of 0 to 9 is 18 dB, which no one can use."""
    labels = np.arange(100).reshape(100, 1) % (2 if dtype is np.bool_ else 10)
    others = labels.copy()
    others[[8, 51]] = 1 - labels[[8, 51]] % 2
    quality = tallied(axes, [(a.astype(dtype), b.astype(dtype)) for a, b in zip(labels, others, strict=True)])
    assert quality.decided == Decided(pytest.approx(share, abs=0.005), 100)
    assert quality_level(quality) == "fair"


def test_the_class_of_each_pixel_may_move_at_edges():
    wanted = np.zeros((1, 20, 20), np.int64)
    wanted[0, 5:15, 5:15] = 7
    edge, lost = wanted.copy(), wanted.copy()
    edge[0, 4, 5:15] = 7
    lost[0, 5:15, 5:15] = 0
    classes = Axes(("", "place", "place"), "index")
    assert quality_level(tallied(classes, [(wanted, edge)] * 4)) == "good"
    assert quality_level(tallied(classes, [(wanted, lost)] * 4)) == "poor"


def test_bytes_are_no_labels():
    picture = np.arange(256, dtype=np.uint8).reshape(1, 256)
    assert tallied(UNKNOWN, [(picture, picture ^ 1)] * 4).decided is None


def test_too_few_answers_say_nothing():
    rng = np.random.default_rng(6)
    assert found(ONE, [pair(rng, (1, 10), 0.1) for _ in range(8)]) is None
    assert found(MAP, [(np.full((1, 1, 9, 9), 0.1),) * 2] * 30) is None


def test_an_output_is_judged_by_what_it_decides_where_that_is_better():
    rng = np.random.default_rng(7)
    tally = Tally(is_cut=True, axes=ONE)
    for _ in range(64):
        logits = rng.normal(size=(1, 10))
        logits[0, 3] += 4
        tally.add(softmax(logits), softmax(logits * 0.9))
    quality = tally.quality()
    assert quality.worst < 30.0
    assert quality.decided.share < 0.01
    assert quality_level(quality) == "good"
    assert quality_level(Quality(quality.sqnr, 1.0, 640)) != "good"
    assert verdict_of({"y": quality}, {}).reason.endswith("dB, and under 1 % of 64 answers change")


def test_rare_classes_are_no_group():
    """Of 40 classes a few are ever likely: what the others have is small on these samples alone."""
    rng = np.random.default_rng(8)
    plain, known = Tally(is_cut=True), Tally(is_cut=True, axes=WORDS)
    for _ in range(8):
        logits = rng.normal(size=(1, 12, 40))
        logits[..., 20:] -= 12
        wanted = softmax(logits)
        for tally in (plain, known):
            tally.add(wanted, wanted * np.float32(0.999))
    assert plain.quality().groups
    assert not known.quality().groups


def line(text, sure=0.9, classes=6):
    """Probabilities of a recogniser that reads a digit at each step, `.` for none."""
    chosen = [classes - 1 if letter == "." else int(letter) for letter in text]
    probabilities = np.full((1, len(text), classes), (1 - sure) / (classes - 1))
    probabilities[0, np.arange(len(text)), chosen] = sure
    return probabilities


@pytest.mark.parametrize(
    ("got", "changes"),
    [
        ("..1..2..", 0),
        (".1...2..", 0),  # a step earlier
        (".11..2..", 0),  # read twice
        ("..1.....", 1),  # lost
        ("..1..2.3", 1),  # appeared
        ("..1..3..", 1),  # another
    ],
)
def test_a_letter_may_move_by_a_step(got, changes):
    share = found(STEPS, [(line("..1..2.."), line(got))] * 40).share
    assert share == pytest.approx(changes, abs=0.05)
    # The same of words is another answer.
    assert found(WORDS, [(line("..1..2.."), line(got))] * 40).share == (got != "..1..2..")


def test_the_edge_of_a_region_may_move_by_a_pixel():
    wanted = np.full((1, 1, 20, 20), 0.001)
    wanted[0, 0, 5:15, 5:15] = 0.999
    edge, hole, far = wanted.copy(), wanted.copy(), wanted.copy()
    edge[0, 0, 4, 5:15] = 0.6
    edge[0, 0, 14, 5:15] = 0.4
    hole[0, 0, 8:12, 8:12] = 0.1
    far[0, 0, 0:3, 0:3] = 0.9
    assert found(MAP, [(wanted, edge)] * 4).share < 0.01
    assert found(MAP, [(wanted, hole)] * 4).share == pytest.approx(16 / 100 / 2, rel=0.2)
    assert found(MAP, [(wanted, far)] * 4).share == pytest.approx(9 / 100 / 2, rel=0.3)


def test_an_unsure_letter_is_expected_to_change():
    unsure, sure = line("..1..2..", 0.3), line("..1..2..", 0.9)
    noise = np.random.default_rng(1).normal(size=(40, *unsure.shape)) * 0.05
    assert found(STEPS, [(unsure, np.abs(unsure + one)) for one in noise]).share > 0.1
    assert found(STEPS, [(sure, np.abs(sure + one)) for one in noise]).share < 0.1
