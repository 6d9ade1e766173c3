"""Labels judge scores: ours against numpy, a function of the user's on all samples, and what is refused."""

import math

import numpy as np
import pytest

from planner.accuracy.metrics import Judge, Score, judge_of, score_text
from planner.calibration.samples import Feed
from planner.errors import InputError, SampleError, UnknownName

RNG = np.random.default_rng(2)
SCORES = RNG.normal(size=(40, 10)).astype(np.float32)
NOISY = (SCORES + RNG.normal(scale=0.4, size=SCORES.shape)).astype(np.float32)
LABELS = np.where(RNG.random(40) < 0.7, SCORES.argmax(1), RNG.integers(0, 10, 40))


def judged(wanted, got, labels, *metrics, outputs=("y",), output=None) -> Judge:
    judge = judge_of(outputs, output, metrics)
    for k, (one, other) in enumerate(zip(wanted, got, strict=True)):
        x = np.zeros((1, 3), np.float32)
        feed = Feed(f"sample {k}", {"x": x}, None if labels is None else np.asarray(labels[k]))
        rest = {name: np.zeros(1, np.float32) for name in outputs if name != (output or outputs[0])}
        judge.add(feed, {outputs[0]: one, **rest}, {outputs[0]: other, **rest})
    return judge


def softmax(rows):
    powers = np.exp(rows - rows.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def cross_entropy(rows, labels):
    return float(-np.log(softmax(rows.astype(np.float64))[np.arange(len(labels)), labels]).mean())


def test_top_1_and_top_5_need_nothing_but_labels():
    scores = judged(SCORES[:, None], NOISY[:, None], LABELS).scores()
    assert list(scores) == ["top1", "top5"]
    for name, most in (("top1", 1), ("top5", 5)):
        shares = [
            np.mean([LABELS[k] in np.argsort(-rows[k], kind="stable")[:most] for k in range(40)])
            for rows in (SCORES, NOISY)
        ]
        assert scores[name] == Score(*map(pytest.approx, shares))
    assert scores["top1"].quantized < scores["top1"].reference


def test_cross_entropy_of_logits_and_of_probabilities():
    """Rows that add up to 1 are what a softmax gave; a stored 0 is at least 2^-24."""
    expected = Score(
        pytest.approx(cross_entropy(SCORES, LABELS)), pytest.approx(cross_entropy(NOISY, LABELS)), False
    )
    assert (
        judged(SCORES[:, None], NOISY[:, None], LABELS, "cross_entropy").scores()["cross_entropy"] == expected
    )
    soft = [softmax(rows)[:, None] for rows in (SCORES, NOISY)]
    found = judged(*soft, LABELS, "cross_entropy").scores()["cross_entropy"]
    assert found.quantized == pytest.approx(expected.quantized.expected, rel=1e-5)
    nothing = judged([np.float32([[1, 0]])], [np.float32([[0, 1]])], [0], "cross_entropy").scores()
    lost = Score(pytest.approx(0.0, abs=1e-6), pytest.approx(24 * math.log(2)), larger_is_better=False)
    assert nothing["cross_entropy"] == lost


def test_equal_scores_count_as_argmax_has_it():
    rows = np.float32([[1, 3, 3, 0]])
    assert judged([rows], [rows], [1]).scores() == {"top1": Score(1.0, 1.0)}
    assert judged([rows], [rows], [2]).scores() == {"top1": Score(0.0, 0.0)}


def test_tokens_that_do_not_count_are_negative():
    rows = RNG.normal(size=(3, 1, 4, 7)).astype(np.float32)
    labels = rows.argmax(-1)
    labels[:, :, 3] = -100
    labels[0, 0, 0] = (labels[0, 0, 0] + 1) % 7
    assert judged(rows, rows, labels).scores()["top1"] == Score(8 / 9, 8 / 9)
    with pytest.raises(SampleError, match="every label is negative, so none counts"):
        judged(rows, rows, labels * 0 - 1).scores()


def test_classes_lie_along_the_last_axis_or_as_pictures_have_them():
    picture = RNG.normal(size=(1, 5, 3, 4)).astype(np.float32)
    assert judged([picture], [picture], [picture.argmax(1)]).scores() == {"top1": Score(1.0, 1.0)}
    pooled = picture[:, :, :1, :1]
    assert judged([pooled], [pooled], [pooled.argmax(1).ravel()]).scores() == {"top1": Score(1.0, 1.0)}


def test_a_metric_of_the_user_sees_all_samples_at_once():
    seen = []

    def agreement(outputs, labels):
        seen.append((outputs["y"].shape, labels.shape))
        return (outputs["y"].argmax(1) == labels).mean()

    scores = judged(SCORES[:, None], NOISY[:, None], LABELS, agreement).scores()
    assert seen == [((40, 10), (40,))] * 2
    assert scores["agreement"] == scores["top1"]


def test_a_metric_needs_no_labels_and_samples_without_a_batch_get_a_new_axis():
    def largest(outputs, labels):
        assert labels is None
        return np.float32(outputs["y"].shape[0] * 100 + outputs["y"].shape[1])

    assert judged(SCORES, NOISY, None, largest).scores() == {"largest": Score(4010.0, 4010.0)}


def raises(_outputs, _labels):
    raise KeyError("boxes")


def test_a_metric_that_raises_is_told_with_what_it_raised():
    with pytest.raises(InputError) as caught:
        judged(SCORES, NOISY, LABELS, raises).scores()
    assert str(caught.value) == (
        "metric 'raises' raised KeyError: 'boxes' (it is called with {output name: array of all samples} and "
        "the labels, None without any)"
    )


@pytest.mark.parametrize(
    ("returned", "said"),
    [
        (None, "None"),
        ("0.9", "'0.9'"),
        (True, "True"),
        (np.ones(3), "an array of shape (3,)"),
        (1j, "1j"),
    ],
)
def test_a_metric_returns_one_number(returned, said):
    with pytest.raises(InputError) as caught:
        judged(SCORES, NOISY, LABELS, lambda _outputs, _labels: returned).scores()
    assert str(caught.value) == (f"metric '<lambda>' returned {said}; accepted: one number, larger is better")


@pytest.mark.parametrize(
    ("labels", "metrics", "said"),
    [
        (
            [[1, 2]],
            (),
            "sample 0: labels of shape (2,) do not fit output 'y' of shape (1, 10) (one",
        ),
        ([10], (), "sample 0: label 10, but output 'y' has 10 classes (the first class is 0"),
        ([0.5], ("top1",), "top1 cannot use the labels: they are float64, no class numbers"),
        (None, ("cross_entropy",), "sample 0: cross_entropy needs labels (an array 'label' or 'labels'"),
    ],
)
def test_labels_that_do_not_fit(labels, metrics, said):
    with pytest.raises(SampleError) as caught:
        judged(SCORES[:1, None], NOISY[:1, None], labels, *metrics)
    assert str(caught.value).startswith(said)


def test_labels_of_some_samples_only():
    judge = judge_of(("y",), None, ())
    judge.add(Feed("sample 0", {}, np.asarray(1)), {"y": SCORES[:1]}, {"y": SCORES[:1]})
    with pytest.raises(SampleError, match="sample 1: some samples have labels, others have none"):
        judge.add(Feed("sample 1", {}), {"y": SCORES[:1]}, {"y": SCORES[:1]})


@pytest.mark.parametrize(
    ("labels", "outputs", "scores", "said"),
    [
        ([0.5], ("y",), SCORES[:1], "they are float64, no class numbers: give a metric of your own"),
        ([1], ("y", "z"), SCORES[:1], "the model has several outputs: name the one they are for (y, z)"),
        ([1], ("y",), SCORES[:1, :1], "'y' has no scores of classes: give a metric of your own"),
        ([1], ("y",), LABELS[:1], "'y' has no scores of classes: give a metric of your own"),
    ],
)
def test_labels_that_judge_nothing_are_noted(labels, outputs, scores, said):
    judge = judged([scores], [scores], labels, outputs=outputs)
    assert list(judge.notes) == [f"the labels are not used: {said}"]
    assert judge.scores() == {}


def test_the_output_is_named_where_there_are_several():
    found = judged(SCORES[:, None], NOISY[:, None], LABELS, outputs=("y", "z"), output="y")
    assert list(found.scores()) == ["top1", "top5"]
    with pytest.raises(UnknownName):
        judge_of(("y", "z"), "logits", ())


@pytest.mark.parametrize(
    ("classes", "asked", "names"),
    [
        (6, (), ["top1"]),  # of six classes nearly every answer is among five
        (6, ("top5",), ["top1", "top5"]),
        (10, (), ["top1", "top5"]),
    ],
)
def test_top5_is_for_many_classes(classes, asked, names):
    scores = SCORES[:, :classes]
    labels = np.minimum(LABELS, classes - 1)
    assert list(judged([scores], [scores], [labels], *asked).scores()) == names


def test_metrics_go_by_names_or_are_functions():
    assert judge_of(("y",), None, ("sqnr",)).asked == ()
    with pytest.raises(UnknownName):
        judge_of(("y",), None, ("accuracy",))
    with pytest.raises(InputError, match="a metric is a name or a function of"):
        judge_of(("y",), None, (3,))


def test_outputs_of_many_shapes_are_no_array():
    outputs = [SCORES[:1], SCORES[:1, :4]]
    with pytest.raises(SampleError) as caught:
        judged(outputs, outputs, None, lambda _outputs, _labels: 0.0).scores()
    assert str(caught.value).startswith("a metric sees all samples at once, and 'y' differs in shape: ")


def test_how_scores_read():
    assert (score_text("top1", 0.97321), score_text("mine", 0.97321)) == ("97.3 %", "0.9732")
