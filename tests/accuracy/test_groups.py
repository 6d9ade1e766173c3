"""Groups: slices of an output that differ much in range are judged apart, and only those."""

import numpy as np
import pytest

from planner.accuracy.groups import Groups, like_slices, merged, output_groups, slices_of

RNG = np.random.default_rng(5)


def detections(*, positions: int = 40) -> np.ndarray:
    """Boxes of 0 to 640 and six scores of 0 to 1, of classes that are seen and of one that is hardly."""
    boxes = RNG.uniform(0, 640, (1, positions, 4))
    scores = RNG.uniform(0, 1, (1, positions, 6)) * np.array([1.0, 0.9, 0.5, 0.2, 0.05, 0.01])
    return np.concatenate([boxes, scores], axis=2).astype(np.float32)


def test_boxes_and_scores_come_apart_and_rare_classes_stay_with_the_others():
    found = output_groups([detections(), detections()])
    assert found == Groups(2, ((0, 1, 2, 3), (4, 5, 6, 7, 8, 9)))
    assert [found.label(i) for i in range(len(found))] == ["[:, :, 0-3]", "[:, :, 4-9]"]


def test_the_axis_is_found():
    found = output_groups([detections().transpose(0, 2, 1)])
    assert found.axis == 1
    boxes, scores = found.parts(detections().transpose(0, 2, 1))
    assert boxes.shape == (1, 4, 40)
    assert scores.shape == (1, 6, 40)


@pytest.mark.parametrize(
    "array",
    [
        np.float32([[1.0, 1e-4, 1e-5]]),  # a softmax of few classes: one number a slice
        RNG.normal(size=(1, 8, 16, 16)),  # a picture
        np.zeros((1, 4, 16)),
        np.float32(3.0),
    ],
)
def test_what_is_alike_stays_one(array):
    found = output_groups([np.asarray(array)])
    assert found == Groups()
    assert len(found) == 1
    assert [part.shape for part in found.parts(np.asarray(array))] == [np.shape(array)]
    assert found.label(0) == ""


def test_slices_may_come_in_any_order_and_the_empty_ones_go_with_the_smallest():
    groups, widest = like_slices([1.0, 600.0, 0.0, 2.0, 500.0])
    assert groups == ((1, 4), (0, 2, 3))
    assert widest == 250.0


@pytest.mark.parametrize("unit", [2.0**-60, 1.0, 2.0**60])
def test_groups_do_not_depend_on_the_unit_of_the_ranges(unit):
    """What is a millionth of the largest is next to nothing, however large that one is."""
    ranges = np.array([1.0, 600.0, 2.0**-12, 0.0, 500.0])
    assert like_slices(ranges * unit) == (((1, 4), (0, 2, 3)), 500.0)


def test_a_gap_of_just_sixteen_is_none():
    assert like_slices([16.0, 1.0])[0] == ((0, 1),)
    assert like_slices([16.1, 1.0])[0] == ((0,), (1,))


def test_what_is_unlike_as_a_whole_comes_apart_at_its_widest_step():
    """As yolox gives it: boxes of 6 to 4, an objectness of 1, classes of 0.9 to 0.07 without a step of 16."""
    yolox = [6.0, 6.4, 4.6, 4.4, 1.0, 0.9, 0.7, 0.4, 0.15, 0.07]
    assert like_slices(yolox) == (((0, 1, 2, 3), (4, 5, 6, 7, 8, 9)), pytest.approx(4.4))
    assert len(like_slices(yolox[:6])[0]) == 1
    assert len(like_slices(np.geomspace(32, 1, 12))[0]) == 1
    assert like_slices([0.0, 0.0])[0] == ((0, 1),)


def test_an_axis_whose_size_changes_is_no_axis_of_slices():
    assert output_groups([detections(positions=40), detections(positions=50)]).axis == 2
    short = np.concatenate([detections(), detections()], axis=2)
    assert output_groups([detections(), short]) == Groups()


def test_numbers_that_are_none_do_not_make_a_group():
    array = detections()
    array[0, 0, 5] = np.inf
    array[0, 1, 6] = np.nan
    assert output_groups([array]).members == ((0, 1, 2, 3), (4, 5, 6, 7, 8, 9))


def test_spans_name_what_lies_apart():
    assert Groups(1, ((0, 1, 2, 5), (3, 4))).label(0) == "[:, 0-2, 5]"


def test_errors_add_up_by_group_over_the_samples():
    samples = [detections(), detections()]
    errors = [np.zeros_like(array) for array in samples]
    errors[0][..., 4:] = 0.5
    errors[1][..., 0] = 2.0
    sums = merged(*map(slices_of, samples, errors))
    boxes, scores = sums.sums(sums.groups())
    assert boxes[1:] == (40 * 4.0, 2 * 40 * 4)
    assert scores[1:] == (40 * 6 * 0.25, 2 * 40 * 6)
    assert scores[0] == pytest.approx(sum(float(np.sum(a[..., 4:].astype(float) ** 2)) for a in samples))
    assert sums.sums(Groups())[0][1] == 40 * 4.0 + 40 * 6 * 0.25


def test_what_rounding_of_floats_left_is_no_group():
    """Features that training switched off: 1e-32 beside 4."""
    array = RNG.normal(size=(1, 40, 6)) * np.array([1.0, 1.0, 1e-32, 1.0, 1e-7, 0.5])
    assert output_groups([array]) == Groups()
    array[:, :, 4] *= 1e4  # a thousandth of the others is a group
    assert output_groups([array]).members == ((0, 1, 3, 5), (2, 4))
