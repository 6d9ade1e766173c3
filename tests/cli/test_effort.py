"""`qplan quantize --effort`: a better plan where the first is not good, said, made again, kept on a stop."""

import json
import signal
import textwrap

import numpy as np
import pytest

import planner
from planner.accuracy.verdict import FAIR_SQNR, GOOD_SQNR
from planner.cli.effort import ending_as_interrupt
from tests.plan_search.outliers import rows, written

TARGET = "litert-int8"


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return written(tmp_path_factory.mktemp("outliers"))


def line(files, out, *more):
    model, data = files
    effort = () if "--effort" in more else ("--effort", "normal")
    return ("quantize", model, "--data", data, "-t", TARGET, "-o", out, *effort, *more)


def key_of(out):
    return json.loads((out / "plan.json").read_text())["key"]


def test_the_better_plan_is_written_with_what_it_gave_up(qplan, files, tmp_path):
    out = tmp_path / "out"
    answer = qplan(*line(files, out))
    assert answer.code == 0
    assert "verdict: good: y has " in answer.out
    told = next(text for text in answer.out.splitlines() if text.startswith("normal effort: "))
    assert told.startswith("normal effort: 2 kernels (mul) in i16: ")
    assert " dB -> " in told
    assert ", work " in told
    again = next(text for text in answer.out.splitlines() if text.startswith("this plan again"))
    assert {"annotations.json", "effort.json", "plan.json", "onnx-qdq.onnx"} <= {
        f.name for f in out.iterdir()
    }
    assert "less than 10" not in answer.err  # of the plan that was given up
    assert "annotations.json" in answer.out
    words = again.partition(": qplan ")[2].split()
    other = tmp_path / "other"
    assert qplan(*words, "-o", other).code == 0
    assert key_of(other) == key_of(out)
    assert (other / "onnx-qdq.onnx").read_bytes() == (out / "onnx-qdq.onnx").read_bytes()
    assert "Search" in (out / "report.html").read_text()
    assert "kernels asked" in (out / "report.html").read_text()


def test_quick_measures_no_trial(qplan, files, tmp_path):
    out = tmp_path / "out"
    answer = qplan(*line(files, out, "--effort", "quick"))
    assert answer.code == 1
    assert "verdict: poor" in answer.out
    assert "effort" not in answer.out
    assert not {"annotations.json", "effort.json"} & {f.name for f in out.iterdir()}


def test_json_says_what_was_given_up(qplan, files, tmp_path):
    out = tmp_path / "out"
    found = qplan(*line(files, out, "--json")).json
    effort = found["effort"]
    assert (effort["level"], effort["improved"], effort["stopped"]) == ("normal", True, False)
    assert effort["before"]["sqnr"] < FAIR_SQNR
    assert effort["after"]["sqnr"] >= GOOD_SQNR
    assert effort["before"]["work"] < effort["after"]["work"]
    assert effort["annotations"] == str(out / "annotations.json")
    assert 1 < effort["trials"] <= 16
    assert found["verdict"]["level"] == "good"


def test_a_bound_that_is_met_is_enough(qplan, files, tmp_path):
    answer = qplan(*line(files, tmp_path / "out", "--min-sqnr", "3", "--json"))
    assert answer.code == 0
    assert "effort" not in answer.json


def test_a_bound_beyond_good_is_looked_for(qplan, tmp_path):
    model = written(tmp_path, 1.0)
    plain = qplan(*line(model, tmp_path / "plain", "--json")).json
    assert "effort" not in plain
    sqnr = plain["quality"]["onnx-qdq"]["y"]["sqnr"]
    found = qplan(*line(model, tmp_path / "out", "--min-sqnr", sqnr + 2, "--json"))
    assert found.code == 0
    assert found.json["quality"]["onnx-qdq"]["y"]["sqnr"] >= sqnr + 2


def test_the_folder_keeps_inputs_and_warns_of_annotations_left_over(qplan, files, tmp_path):
    out = tmp_path / "out"
    qplan(*line(files, out))
    left = qplan(*line(files, out, "--effort", "quick"))
    assert f"{out / 'annotations.json'} was there before and does not belong to this plan" in left.err
    own = qplan(*line(files, out, "--annotations", out / "annotations.json"))
    assert own.code == 0
    assert "was there before" not in own.err
    (out / "annotations.json").write_text('{"format": "qplan.annotations/1", "kernels": {"wide": "i8"}}')
    refused = qplan(*line(files, out, "--annotations", out / "annotations.json"))
    assert "would be written over the input" in refused.err
    assert "i8" in (out / "annotations.json").read_text()


def test_a_state_of_something_else_is_started_anew(qplan, files, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    (out / "effort.json").write_text("no state")
    (out / "search.json").write_text("mine")
    assert qplan(*line(files, out)).code == 0
    assert json.loads((out / "effort.json").read_text())["trials"]
    assert (out / "search.json").read_text() == "mine"


def test_stopped_by_a_signal_it_writes_the_best_so_far_and_goes_on_from_there(qplan, files, tmp_path):
    """The metric is called once for the first plan's file each way, then by every trial."""
    power = np.square([planner.run(files[0], row)["y"] for row in rows()]).mean()
    (tmp_path / "stopping.py").write_text(
        textwrap.dedent(
            f"""
            import pathlib, signal
            import numpy as np
            calls = pathlib.Path({str(tmp_path / "calls")!r})
            def metric(outputs, labels):
                count = len(calls.read_text()) if calls.exists() else 0
                calls.write_text("x" * (count + 1))
                if count == {{stop}}:
                    signal.raise_signal(signal.SIGTERM)
                return float(1 - abs(np.square(outputs["y"]).mean() / {power} - 1))
            """
        ).replace("{stop}", "12")
    )
    out = tmp_path / "out"
    asked = line(files, out, "--metric", f"{tmp_path / 'stopping.py'}:metric", "--progress")
    first = qplan(*asked)
    assert "the search was stopped after " in first.err
    assert "the same line goes on from there" in first.err
    assert {"plan.json", "onnx-qdq.onnx"} <= {f.name for f in out.iterdir()}
    kept = len(json.loads((out / "effort.json").read_text())["trials"])
    assert kept > 0
    again = qplan(*asked)
    assert "stopped" not in again.err
    assert "measuring noise: " not in again.err
    assert len(json.loads((out / "effort.json").read_text())["trials"]) >= kept


def test_a_signal_ends_a_block_as_ctrl_c_does():
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt), ending_as_interrupt():
        signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is before
