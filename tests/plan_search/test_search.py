"""Searches on the shipped example: goals met, fronts, plans made again, states, and what is refused."""

import json
import re
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

import planner
from planner.accuracy.own_noise import own_noise
from planner.errors import AnnotationError, InputError, SampleError, UnknownName, UnsupportedExport
from planner.interpreter import reference
from planner.ir.kernel_requests import with_wanted
from planner.plan_search import options, trials
from planner.plan_search.forecast import net_of
from planner.plan_search.greedy import greedy
from planner.plan_search.program import bounds_of
from planner.plan_search.search import merged_annotations
from planner.plan_search.trials import Bench
from planner.target.load import load_target
from planner.target.modeltext import read_model_text
from tests.conftest import ROOT
from tests.plans.planned import digits

DATA = ROOT / "examples" / "digits"
TARGET = "litert-int8"


@cache
def samples():
    found = np.load(DATA / "calibration.npz")
    return tuple({name: found[name][k : k + 1] for name in found.files} for k in range(4))


@cache
def labeled():
    model, rng = digits(), np.random.default_rng(3)
    outputs = [planner.run(DATA / "digits.onnx", feed)[model.outputs[0]] for feed in samples()]
    # Two of four labels are what the model says.
    labels = [int(out.argmax()) if k % 2 else int(rng.integers(10)) for k, out in enumerate(outputs)]
    return tuple({**feed, "label": np.int64(label)} for feed, label in zip(samples(), labels, strict=True))


@cache
def found(goal, **options):
    return planner.search(digits(), TARGET, samples(), goal=goal, **options)


def test_the_goal_is_met_with_less_work_than_greedy_or_all_or_nothing():
    search = found("sqnr=58")
    assert search.met
    assert search.best.sqnr >= 58
    others = [one for one in search.trials if one.origin.startswith(("all", "greedy")) and one.sqnr >= 58]
    assert others
    assert all(search.best.work <= one.work for one in others)
    assert search.best in search.front


def test_no_trial_beats_the_front():
    search = found("sqnr=58")
    works = [one.work for one in search.front]
    assert works == sorted(works)
    for one in search.trials:
        assert any(f.work <= one.work and f.quality >= one.quality for f in search.front)
    for a, b in zip(search.front, search.front[1:], strict=False):
        assert a.work < b.work
        assert a.quality < b.quality


def test_greedy_is_nowhere_better_at_no_more_work():
    model, device = digits(), load_target("qnn-htp")
    search = planner.search(model, device, samples(), goal="sqnr=54", trials=40)
    levels = options.levels_of(model, device)
    table = options.table_of(
        model, levels, lambda some: own_noise(model, levels[""], some, samples(), groups={})
    )
    net, bench = net_of(table), Bench(model, device, samples())
    low, high = (
        next(one.sqnr for one in search.trials if one.origin == name) for name in ("planned", "all u16")
    )
    for sqnr in np.linspace(low, high, 8):
        chosen, _ = greedy(table, net, bounds_of(table, float(sqnr)), weight_bits=np.inf)
        wishes = {name: table.kernels[name][at].wish for name, at in chosen.items()}
        rival = bench.measured(
            "greedy", {name: wish for name, wish in wishes.items() if wish is not None}, 0.0
        )
        assert max(one.sqnr for one in search.front if one.work <= rival.work) >= rival.sqnr - 0.2


def test_trials_that_are_left_fill_the_front():
    few, many = (
        planner.search(digits(), "qnn-htp", samples(), goal="sqnr=54", trials=most) for most in (10, 40)
    )
    assert many.trials[:10] == few.trials
    assert len(many.front) > len(few.front)


def test_the_bound_is_of_the_best():
    search = found("sqnr=58")
    assert search.best.origin == "program"
    assert search.bound <= search.best.work * 1.01
    assert planner.search(digits(), TARGET, samples(), goal="sqnr=10", trials=2).bound is None


def test_annotations_make_the_best_plan_again():
    search = found("sqnr=58")
    plan = planner.plan(planner.annotate(digits(), annotations=search.annotations), TARGET)
    assert plan.work.total == search.best.work
    data = planner.export(plan.annotated, plan, "onnx-qdq")
    assert planner.compare(digits(), data, samples()).worst_sqnr == search.best.sqnr
    assert merged_annotations({"values": {"a": "x"}, "kernels": {"k": "i8"}}, {"l": "float"}) == {
        "format": "qplan.annotations/1", "values": {"a": "x"}, "kernels": {"k": "i8", "l": "float"},
    }  # fmt: skip


def test_predictions_are_near_where_every_kernel_is_noisy():
    search = found("sqnr=58")
    near = {one.origin: one for one in search.trials if one.origin in ("planned", "all i16")}
    assert len(near) == 2
    assert all(abs(one.predicted - one.sqnr) < 2 for one in near.values())


def test_a_share_of_work_buys_the_best_it_can():
    search = found("work=0.1")
    assert search.met
    assert search.best.work <= 0.1 * search.dearest
    assert search.best.sqnr > search.trials[0].sqnr
    within = [one for one in search.trials if one.work <= 0.1 * search.dearest]
    assert search.best.sqnr == max(one.sqnr for one in within)


def test_bits_of_weights_are_bounded():
    model = digits()
    search = planner.search(model, "qnn-htp", samples(), goal="weight_bits=6", trials=12)
    assert search.trials[0].weight_bits > 8
    for one in search.trials:
        assert one.weight_bits > 0
    assert search.met == any(one.weight_bits <= 6 for one in search.trials)
    assert search.met


def test_a_goal_that_nobody_reaches_shows_what_comes_nearest():
    # The output is stored in 8 bits whatever the kernels do.
    pin = {"probabilities": "!quant.uniform<i8:f32, 0.00390625:-128>"}
    model = planner.annotate(digits(), annotations={"format": "qplan.annotations/1", "values": pin})
    search = planner.search(model, TARGET, samples(), goal="sqnr=400", trials=12)
    assert not search.met
    assert search.best.sqnr == max(one.sqnr for one in search.trials) < 400
    assert search.best == search.front[-1]
    never = found("metric=2", metric=lambda *_: 0.5, trials=4)
    assert not never.met
    assert len(never.trials) <= 4
    assert never.front


def test_metrics_are_goals():
    search = planner.search(digits(), TARGET, labeled(), goal="drop=0", metric="top1", trials=6)
    assert search.met
    assert search.best.metric == search.best.reference == 0.5
    entropy = planner.search(digits(), TARGET, labeled(), goal="drop=1%", metric="cross_entropy", trials=8)
    assert entropy.met
    assert entropy.best.reference < 0  # larger is better, so it is minus the entropy
    assert entropy.best.metric >= entropy.best.reference * 1.01


def test_trials_are_never_more_than_asked():
    for most in (1, 2, 3):
        search = planner.search(digits(), TARGET, samples(), goal="sqnr=60", trials=most)
        assert len(search.trials) <= most
        assert search.trials[0].origin == "planned"


def test_pins_and_wishes_of_the_user_stay():
    given = {
        "format": "qplan.annotations/1",
        "kernels": {"head/*": "i8", "stem/conv": "float"},
        "values": {"res/pool_out": "!quant.uniform<i8:f32, 0.05>"},
    }
    model = digits()
    given["values"] = {next(name for name in model.values if "res/pool" in name): "!quant.any<i8>"}
    ready = planner.annotate(model, annotations=given)
    search = planner.search(ready, TARGET, samples(), goal="work=0.5", trials=8)
    for one in search.trials:
        assert not any(name.startswith("head/") or name == "stem/conv" for name in one.kernels)
    plan = planner.plan(planner.annotate(ready, annotations=search.annotations), TARGET)
    assert plan.kernels["stem/conv"].row is None


def test_a_state_is_taken_up_again(tmp_path, monkeypatch):
    path = tmp_path / "search.json"
    whole = planner.search(digits(), TARGET, samples(), goal="sqnr=58", trials=8, state=tmp_path / "whole")
    done = []

    def stop(trials, most):
        done.append((trials, most))
        if trials == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        planner.search(digits(), TARGET, samples(), goal="sqnr=58", trials=8, state=path, progress=stop)
    assert done[-1] == (4, 8)
    assert len(json.loads(path.read_text())["trials"]) == 4
    measured = []
    plain = Bench.measured
    monkeypatch.setattr(Bench, "measured", lambda self, *rest: measured.append(rest) or plain(self, *rest))
    again = planner.search(digits(), TARGET, samples(), goal="sqnr=58", trials=8, state=path)
    assert len(measured) == len(whole.trials) - 4
    assert again == whole
    measured.clear()
    # Another goal has what was measured, too.
    planner.search(digits(), TARGET, samples(), goal="work=0.5", trials=1, state=path)
    assert measured == []


def test_progress_is_told_while_noise_is_measured_and_then_of_trials():
    told, runs = [], []
    planner.search(
        digits(), TARGET, samples(), goal="sqnr=50", trials=3,
        progress=lambda *one: told.append(one), measuring=lambda *one: (runs.append(one), told.append("run")),
    )  # fmt: skip
    # Once through for the kernels, once for weights; one run for each sample and choice.
    ends = [done for done, total in runs if done == total]
    assert len(ends) == 2
    assert [done for done, _ in runs] == [*range(1, ends[0] + 1), *range(1, ends[1] + 1)]
    assert all(end % 4 == 0 for end in ends)
    assert told[len(runs) :] == [(0, 3), (1, 3), (2, 3), (3, 3)]


def test_the_model_as_given_runs_once_and_the_plan_without_wishes_is_made_once(monkeypatch):
    run, seen, made = reference.run_session, [], []
    plan = options.plan_model
    monkeypatch.setattr(reference, "run_session", lambda *rest: seen.append(rest[1]) or run(*rest))
    monkeypatch.setattr(
        options,
        "plan_model",
        lambda model, *rest, **more: made.append(model.wanted) or plan(model, *rest, **more),
    )
    monkeypatch.setattr(
        trials,
        "plan_model",
        lambda model, *rest, **more: made.append(model.wanted) or plan(model, *rest, **more),
    )
    planner.search(digits(), TARGET, samples(), goal="sqnr=50", trials=4)
    assert len(seen) == len(samples())
    assert made.count({}) == 1


def test_a_plan_that_no_file_can_say_is_measured_by_the_interpreter():
    text = (ROOT / "targets" / "litert-int8.yaml").read_text()
    head, _, _ = text.replace("i16", "i24").partition("\ntests:")
    head = re.sub(r"(?m)^files: .*$", "", head)  # with formats of its own, i24 would be float
    search = planner.search(digits(), head, samples(), goal="sqnr=60", trials=6)
    (wide,) = (one for one in search.trials if one.origin == "all i24")
    assert not wide.error
    assert wide.sqnr > search.trials[0].sqnr
    plan = planner.plan(with_wanted(digits(), wide.kernels), load_target(head))
    with pytest.raises(UnsupportedExport, match="24 bits"):
        planner.export(plan.annotated, plan, "onnx-qdq")


def test_states_of_something_else_are_refused(tmp_path, monkeypatch):
    path = tmp_path / "search.json"
    planner.search(digits(), TARGET, samples(), goal="sqnr=30", trials=1, state=path)
    with monkeypatch.context() as patch:
        patch.setattr(trials, "MADE_BY", "0.0.1, planning 1")
        with pytest.raises(InputError, match="or by another planner"):
            planner.search(digits(), TARGET, samples(), goal="sqnr=30", trials=1, state=path)
    with pytest.raises(InputError, match="another"):
        planner.search(digits(), "teaching-npu", samples(), goal="sqnr=30", trials=1, state=path)
    with pytest.raises(InputError, match="another"):
        planner.search(digits(), TARGET, samples()[:2], goal="sqnr=30", trials=1, state=path)
    for text in ("", "[]", "{", '{"format": "qplan.search/2"}', '{"format": "qplan.plan/1"}'):
        path.write_text(text)
        with pytest.raises(InputError, match=r"search\.json"):
            planner.search(digits(), TARGET, samples(), goal="sqnr=30", trials=1, state=path)
        assert path.read_text() == text
    with pytest.raises(InputError, match="no folder"):
        planner.search(
            digits(), TARGET, samples(), goal="sqnr=30", trials=1, state=tmp_path / "no" / "where.json"
        )


def test_any_executor_finds_the_same():
    plain = found("sqnr=58", trials=6)
    with ProcessPoolExecutor(2) as pool:
        other = planner.search(
            digits(), TARGET, [*samples()], goal="sqnr=58", trials=6, executor=pool, parts=3
        )
    assert other == plain


def test_a_dask_cluster_finds_the_same():
    distributed = pytest.importorskip("distributed")
    plain = found("sqnr=58", trials=6)
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        distributed.Client(cluster) as client,
    ):
        told = []
        other = planner.search(
            digits(), TARGET, [*samples()], goal="sqnr=58", trials=6, parts=4,
            executor=client.get_executor(), measuring=lambda *one: told.append(one),
        )  # fmt: skip
        assert len(client.scheduler_info()["workers"]) == 2
    assert other == plain
    assert told[-1][0] == told[-1][1]


@pytest.mark.parametrize(
    ("arguments", "error", "told"),
    [
        ({"goal": "metric=1"}, InputError, "metric"),
        ({"goal": "drop=1%"}, InputError, "metric"),
        ({"goal": "drop=1%", "metric": "sqnr"}, InputError, "metric"),
        ({"goal": "sqnr=30", "state": "/no/where/search.json"}, InputError, "folder"),
        ({"goal": "sqnr=30", "trials": 0}, InputError, "trials"),
        ({"goal": "sqnr=30", "trials": True}, InputError, "trials"),
        ({"goal": "sqnr=30", "metric": "accuracy"}, UnknownName, "top1"),
        ({"goal": "sqnr=30", "metric": "top1"}, SampleError, "label"),
        ({"goal": "sqnr=30", "output": "nowhere"}, UnknownName, "nowhere"),
        ({"goal": "fast"}, InputError, "sqnr"),
    ],
)
def test_wrong_arguments_are_refused(arguments, error, told):
    with pytest.raises(error, match=told):
        planner.search(digits(), TARGET, samples(), **{"trials": 2, **arguments})


def test_a_metric_that_raises_is_named():
    def broken(*_):
        raise ZeroDivisionError("no")

    with pytest.raises(InputError, match=r"broken.*ZeroDivisionError"):
        planner.search(digits(), TARGET, samples(), goal="metric=1", metric=broken, trials=2)


def test_samples_that_are_missing_or_do_not_fit():
    with pytest.raises(SampleError):
        planner.search(digits(), TARGET, [], goal="sqnr=30", trials=2)
    with pytest.raises(SampleError):
        planner.search(digits(), TARGET, [{"nothing": np.zeros(3)}], goal="sqnr=30", trials=2)


def test_a_model_that_no_level_changes():
    model = read_model_text("x : f32[1,8] {-1, 1}\ny = Erf(x) : f32[1,8] {-1, 1}\n", "erf")
    feeds = ({"x": np.linspace(-1, 1, 8, dtype=np.float32)[None]},)
    search = planner.search(model, "onnxruntime-cpu", feeds, goal="sqnr=10")
    assert search.met
    assert [one.origin for one in search.trials] == ["planned"]


def test_unmet_wishes_end_as_trials_with_a_reason():
    with pytest.raises(AnnotationError):
        planner.annotate(digits(), annotations={"format": "qplan.annotations/1", "kernels": {"nope": "i8"}})
    search = found("sqnr=58")
    assert all(not one.error for one in search.trials)


def test_where_nothing_is_rescaled_between_kernels_nothing_is_proposed_that_would_be():
    text = (ROOT / "targets" / "qnn-htp.yaml").read_text().replace("allowed: true", "allowed: false")
    search = planner.search(digits(), text, samples(), goal="sqnr=50", trials=8)
    assert [one.error for one in search.trials if one.origin in ("program", "greedy")] == [
        "" for one in search.trials if one.origin in ("program", "greedy")
    ]
    assert search.best.sqnr > search.trials[0].sqnr


def test_an_output_of_infinities_is_searched():
    model = read_model_text(
        "x : f32[1,8] {-1, 1}\nw = constant : f32[8,8] {-1, 1}\ny = MatMul(x, w) : f32[1,8] {-3, 3}\n"
        "p = constant [0, 1, 0, 0] : i64[4]\nv = constant : f32[] {-1, 0}\n"
        "z = Pad(y, p, v) : f32[1,9] {-3.4e38, 3}\n",
        "pads",
    )
    weights = np.random.default_rng(5).normal(size=(8, 8)).astype(np.float32)
    constants = {**model.constants, "w": replace(model.constants["w"], array=weights)}
    constants["v"] = replace(constants["v"], array=np.float32(-np.inf).reshape(()))
    feeds = tuple({"x": np.full((1, 8), 0.1 * k, np.float32)} for k in range(1, 4))
    search = planner.search(replace(model, constants=constants), "qnn-htp", feeds, goal="work=1", trials=6)
    assert search.trials


def test_a_metric_without_a_number_is_never_the_best():
    given = iter([0.5, float("nan")] + [0.5, 0.2] * 20)
    search = found("metric=0.1", metric=lambda *_: next(given), trials=3)
    assert search.best.metric == 0.2
    assert all(one.metric == 0.2 for one in search.front)


def test_another_function_of_the_same_name_is_another_metric(tmp_path):
    path = tmp_path / "search.json"
    options = {"goal": "metric=0.4", "trials": 1, "state": path}
    planner.search(digits(), TARGET, samples(), metric=lambda *_: 0.5, **options)
    planner.search(digits(), TARGET, samples(), metric=lambda *_: 0.5, **options)
    with pytest.raises(InputError, match="another"):
        planner.search(digits(), TARGET, samples(), metric=lambda *_: 0.9, **options)


def test_the_dearest_plan_works_no_less_than_any_other():
    for search in (found("sqnr=58"), found("work=0.1")):
        assert all(one.work <= search.dearest * (1 + 1e-9) for one in search.trials)
