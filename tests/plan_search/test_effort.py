"""Effort: where a plan is not good `quantize` finds one that is, and says what it gave up for what."""

import math
from concurrent.futures import ProcessPoolExecutor

import numpy as np
import pytest

import planner
from planner.accuracy.verdict import GOOD_SQNR
from planner.errors import InputError, UnknownName
from planner.plan_search.aims import BUDGETS, COVERED, Aim, aim_of
from planner.plan_search.effort import Found, outcome_text
from planner.plan_search.goals import Goal
from planner.plan_search.search import Search
from planner.plan_search.trials import Trial
from tests.conftest import ROOT
from tests.plan_search.outliers import outliers, rows

TARGET = "litert-int8"
DIGITS = ROOT / "examples" / "digits"


@pytest.fixture(scope="module")
def quick():
    return planner.quantize(outliers(), rows(), target=TARGET, effort="quick")


@pytest.fixture(scope="module")
def normal():
    told = []
    found = planner.quantize(
        outliers(), rows(), target=TARGET, progress=lambda *step: told.append(step), effort="normal"
    )
    return found, told


def test_a_poor_plan_becomes_a_good_one_for_little_work(quick, normal):
    found, _ = normal
    assert quick.verdict.level == "poor"
    assert found.verdict.level == "good"
    assert found.plan.work.total < 0.5 * found.search.dearest
    before, after = (f"{one.comparison.worst_sqnr:.1f} dB" for one in (quick, found))
    assert f"(mul) in i16: {before} -> {after}, work " in found.given_up
    assert found.search.met
    assert found.search.best.kernels == found.asked
    assert found.given_up.replace("->", "-&gt;") in found._repr_html_()


def test_the_plan_of_a_search_is_made_again_without_one(normal):
    found, _ = normal
    again = planner.quantize(outliers(), rows(), target=TARGET, kernels=found.asked, effort="quick")
    assert again.plan.key == found.plan.key
    assert again.data == found.data
    assert again.search is None


def test_what_is_written_is_what_was_measured(normal):
    found, _ = normal
    used = planner.compare(outliers(), found.data, rows(), optimisation="all")
    assert used.worst_sqnr == found.comparison.worst_sqnr
    assert used.worst_sqnr == pytest.approx(found.search.best.sqnr, abs=1e-9)


def test_trials_are_told_and_bounded(normal):
    found, told = normal
    trials = [(done, most) for what, done, most in told if what == "searching"]
    assert trials[0] == (0, 16)
    assert trials[-1][0] == len(found.search.trials) <= 16
    assert "measuring noise" in {what for what, _, _ in told}


def test_quick_is_the_plan_of_the_steps(quick):
    model = planner.load_model(outliers())
    stats = planner.calibrate(model, rows())
    ready = planner.correct_biases(planner.annotate(model, stats=stats, target=TARGET), TARGET, stats)
    assert quick.plan.key == planner.plan(ready, TARGET, formats=["onnx-qdq"]).key
    assert (quick.search, quick.given_up, dict(quick.asked)) == (None, "", {})


def test_a_good_plan_is_left_alone():
    told = []
    found = planner.quantize(
        outliers(1.0), rows(), target=TARGET, progress=lambda *step: told.append(step[0]), effort="normal"
    )
    assert found.verdict.level == "good"
    assert (found.search, found.given_up) == (None, "")
    assert "searching" not in told


def test_labels_decide_where_there_are_some():
    found = planner.quantize(
        DIGITS / "digits.onnx",
        DIGITS / "calibration.npz",
        eval_samples=DIGITS / "test.npz",
        target=TARGET,
        effort="normal",
    )
    assert found.search is None
    aim = aim_of(BUDGETS["normal"], [found.comparison])
    assert aim == Aim((Goal("drop", 0.01),), "top1", spent=0.5)


def test_what_the_user_asks_of_a_kernel_stays():
    found = planner.quantize(outliers(), rows(), target=TARGET, kernels={"wide": "i8"}, effort="normal")
    assert "wide" not in found.asked
    assert str(found.plan.kernels["wide"].outputs[0].type.storage) == "i8"


def test_an_interrupt_keeps_the_best_so_far(quick):
    def stop_at(count):
        def tell(what, done, _total):
            if what == "searching" and done == count:
                raise KeyboardInterrupt

        return planner.quantize(outliers(), rows(), target=TARGET, progress=tell, effort="normal")

    early, late = stop_at(1), stop_at(4)
    assert early.plan.key == quick.plan.key
    assert early.warnings[-1] == "the search was stopped after 1 of 16 trials: this is the best plan so far"
    assert late.comparison.worst_sqnr > quick.comparison.worst_sqnr + 1
    assert "stopped after 4 of 16" in late.warnings[-1]


def test_an_interrupt_while_noise_is_measured_keeps_the_first_plan(quick):
    def tell(what, _done, _total):
        if what == "measuring noise":
            raise KeyboardInterrupt

    found = planner.quantize(outliers(), rows(), target=TARGET, progress=tell, effort="normal")
    assert (found.plan.key, found.search) == (quick.plan.key, None)
    assert "stopped after 0 of 16" in found.warnings[-1]


def test_a_search_goes_on_from_its_state(tmp_path, normal):
    def stop(what, done, _total):
        if what == "searching" and done == 2:
            raise KeyboardInterrupt

    state = tmp_path / "state.json"
    planner.quantize(outliers(), rows(), target=TARGET, progress=stop, state=state, effort="normal")
    told = []
    found = planner.quantize(
        outliers(),
        rows(),
        target=TARGET,
        progress=lambda *step: told.append(step[0]),
        state=state,
        effort="normal",
    )
    assert "measuring noise" not in told
    assert found.plan.key == normal[0].plan.key
    with pytest.raises(InputError, match="another model"):
        planner.quantize(outliers(300.0), rows(), target=TARGET, state=state, effort="normal")


def test_any_executor_finds_the_same_plan(normal):
    with ProcessPoolExecutor(2) as pool:
        found = planner.quantize(outliers(), rows(), target=TARGET, executor=pool, effort="normal")
    assert found.search == normal[0].search
    assert found.data == normal[0].data


def test_an_unknown_effort_is_refused_with_the_nearest():
    with pytest.raises(UnknownName, match="high"):
        planner.quantize(outliers(), rows(), effort="hihg")


def a_trial(rng, asked=1):
    return Trial(
        "program",
        {f"k{at}": "i16" for at in range(asked)},
        work=float(rng.choice([1.0, 2.0, 5.0])),
        weight_bits=8.0,
        predicted=0.0,
        sqnr=float(rng.choice([-math.inf, math.nan, 5.0, 19.5, 20.2, 29.5, 31.0, 60.0, math.inf])),
        mac_share=float(rng.choice([0.0, 0.3, 0.6, 0.95, 1.0])),
        kernel_share=float(rng.choice([0.0, 0.1, 0.3, 0.6, 1.0])),
        error=str(rng.choice(["", "", "", "cannot be planned"])),
        float_work=float(rng.choice([0.0, 6.0])),
    )


@pytest.mark.parametrize(
    "aim",
    [
        Aim((Goal("sqnr", GOOD_SQNR),)),
        Aim((Goal("sqnr", 36.0),)),
        Aim((Goal("sqnr", GOOD_SQNR),), spent=0.5),
        Aim((Goal("sqnr", 15.0),), is_given=True),
        Aim((Goal("sqnr", 40.0),), is_given=True, coverage=0.9),
    ],
)
def test_no_plan_replaces_one_that_was_better(aim):
    rng = np.random.default_rng(3)
    for _ in range(3000):
        one, other = a_trial(rng), a_trial(rng, 0)
        if not aim.is_better(one, other):
            continue
        assert not one.error
        assert one.mac_share > 0
        assert one.mac_share >= other.mac_share / 2
        if aim.standing(one) < aim.standing(other):
            assert aim.order(one) > aim.order(other)
            if aim.standing(one)[0]:  # more accurate at less work
                assert aim.standing(one)[0] == aim.standing(other)[0]
                assert one.work < other.work
            else:  # poor both, and much better for less coverage
                assert aim.standing(one) == (0, 1)
                assert one.quality >= other.quality + COVERED
        assert aim.standing(one)[0] > aim.standing(other)[0] or not aim.reached(other)
        assert not aim.is_better(other, one)
        assert one.mac_share >= aim.coverage or other.mac_share < aim.coverage


@pytest.mark.parametrize(
    ("effort", "bound", "sqnr", "work", "is_taken"),
    [
        ("normal", {}, 26.0, 7.4, True),
        ("normal", {}, 26.0, 7.6, False),
        ("normal", {}, 12.0, 7.6, True),  # a poor plan saves nothing that counts,
        ("normal", {}, 12.0, 10.1, False),  # but its float model beats a plan that is slower
        ("normal", {"min_sqnr": 30.0}, 12.0, 10.1, True),
        ("normal", {"min_sqnr": 30.0}, 26.0, 7.6, True),
        ("high", {}, 26.0, 9.9, True),
        ("high", {}, 26.0, 10.1, False),
    ],
)
def test_a_fair_plan_gives_up_no_more_than_half_of_the_work_that_it_saves(
    effort, bound, sqnr, work, is_taken
):
    first = Trial("planned", {}, 5.0, 8.0, 0.0, sqnr, float_work=10.0)
    better = Trial("program", {"k": "float"}, work, 8.0, 0.0, 40.0, float_work=10.0)
    assert aim_of(BUDGETS[effort], [], **bound).is_better(better, first) == is_taken


def test_of_two_fair_plans_the_one_that_reaches_the_aim_is_taken():
    """A ViT took 1.18 times the work for 2 to 5 dB less, since more of its multiply-adds were in integers."""
    aim = aim_of(BUDGETS["normal"], [])
    accurate = Trial("program", {"k": "float"}, 6.35, 8.0, 0.0, 32.5, mac_share=0.72, float_work=10.0)
    covered = Trial("program", {"k": "i8"}, 7.49, 8.0, 0.0, 27.6, mac_share=0.98, float_work=10.0)
    assert aim.order(accurate) > aim.order(covered)
    assert aim.is_better(accurate, covered)
    assert not aim.is_better(covered, accurate)


@pytest.mark.parametrize(
    ("work", "said"),
    [(7.4, "quantized"), (9.0, "quantized, but gives up 80.0 % of the work saved over float")],
)
def test_a_better_plan_that_gives_up_too_much_is_told_with_what_it_gives_up(work, said):
    """It was told as the nearest of no better plans, at more dB than the plan that stayed."""
    first = Trial("planned", {}, 5.0, 8.0, 0.0, 26.0, float_work=10.0)
    near = Trial("program", {"k": "float"}, work, 8.0, 0.0, 31.0, float_work=10.0)
    aim = aim_of(BUDGETS["normal"], [])
    search = Search(aim.goals[0], False, near, (), (first, near), 10.0, None, None, "")
    model = planner.load_model(ROOT / "examples" / "digits" / "digits.onnx", dims={"N": 1})
    told = outcome_text(planner.plan(model, "litert-int8"), first, first, Found(search, (), False), aim)
    assert (
        told == f"2 trials found no better plan: the nearest has 31.0 dB with 100.0 % of multiply-adds {said}"
    )


@pytest.mark.parametrize(
    ("asked", "goals"),
    [
        ({}, (Goal("sqnr", 30.0),)),
        ({"min_sqnr": 12.0}, (Goal("sqnr", 12.0),)),
        ({"metric": "sqnr"}, (Goal("sqnr", 30.0),)),
        ({"metric": "top1"}, (Goal("drop", 0.01),)),
        ({"metric": "cross_entropy"}, (Goal("drop", 1.0, is_relative=True),)),
        ({"metric": "top1", "min_metric": 0.9}, (Goal("metric", 0.9),)),
        ({"metric": "top1", "min_metric": 0.9, "min_sqnr": 12.0}, (Goal("metric", 0.9), Goal("sqnr", 12.0))),
        ({"metric": "top1", "min_sqnr": 12.0}, (Goal("sqnr", 12.0),)),
    ],
)
def test_the_aim_is_the_verdict_or_what_the_user_asks(asked, goals):
    aim = aim_of(BUDGETS["normal"], [], **asked)
    assert aim.goals == goals
    assert aim.is_given == (bool(asked) and asked != {"metric": "sqnr"})


def test_high_aims_further():
    assert aim_of(BUDGETS["high"], []).goals[0].bound > GOOD_SQNR
    assert BUDGETS["high"].trials > BUDGETS["normal"].trials > BUDGETS["quick"].trials == 0
