"""A plan's key stands for one plan: where a plan changes, the revision of planning has changed too.

`golden/decisions.txt` says what each key stood for, and how it was told: a line a plan, a section a group of
`recorded`. A change of words in the log is told from a change of decisions.
"""

import fcntl
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

import planner
from planner.errors import PlanInvalid
from planner.plans.plan import plan_key
from planner.version import EARLIER, MADE_BY, PLANNING, VERSION, makers
from tests.cases.table import TARGETS, read
from tests.conftest import ROOT
from tests.plans.recorded import GROUPS, MODELS, Asked, Line, of_model

KNOWN = Path(__file__).parent / "golden" / "decisions.txt"
SHOWN = 8


@pytest.fixture
def recorded(request):
    """`recorded(group, asked)`: what is planned must be what the group's section says."""

    def compare(group: str, asked: Iterable[Asked]) -> None:
        known, found = sections(KNOWN.read_text("utf-8")), [one.line() for one in asked]
        problem = broken_keys([line for lines in known.values() for line in lines], found)
        assert not problem, problem
        if request.config.getoption("--update-golden"):
            rewrite(group, found)
        elif changed := changes(known.get(group, []), found):
            pytest.fail(f"{group}: {changed}; run pytest --update-golden and review the diff")

    return compare


def sections(text: str) -> dict[str, list[Line]]:
    """Lines by group."""
    found: dict[str, list[Line]] = {}
    for line in text.splitlines():
        if line.startswith("# "):
            lines = found.setdefault(line.removeprefix("# "), [])
        else:
            lines.append(Line(*line.split(" ", 3)))
    return found


def rewrite(group: str, lines: Sequence[Line]) -> None:
    """Replace one section; other processes may replace theirs at the same time."""
    with KNOWN.open("r+", encoding="utf-8", newline="\n") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        known: Mapping[str, Sequence[Line]] = {**sections(file.read()), group: lines}
        file.seek(0)
        file.truncate()
        for name in (*GROUPS, *MODELS):
            file.write("".join([f"# {name}\n", *(" ".join(line) + "\n" for line in known.get(name, ()))]))


def broken_keys(known: Iterable[Line], found: Iterable[Line]) -> str:
    """Which plans differ under a key that stood for another; "" where there is none."""
    stood = {line.key: line.decisions for line in known if line.key != "-"}
    broken = [line.name for line in found if stood.get(line.key, line.decisions) != line.decisions]
    if not broken:
        return ""
    return (
        f"decisions of {names(broken)} changed and their keys did not: "
        "raise PLANNING in planner/version.py, then run pytest --update-golden"
    )


def changes(known: Sequence[Line], found: Sequence[Line]) -> str:
    """What differs between a section and what is planned now, decisions and logs apart; "" for nothing."""
    before, now = ({line.name: line for line in lines} for lines in (known, found))
    both = [name for name in before if name in now]
    other = {
        "decisions": [name for name in both if before[name].decisions != now[name].decisions],
        "only the log": [
            name
            for name in both
            if before[name].decisions == now[name].decisions and before[name].log != now[name].log
        ],
        "only the key": [
            name for name in both if before[name][1:] == now[name][1:] and before[name].key != now[name].key
        ],
    }
    told = [f"{what} of {names(which)} changed" for what, which in other.items() if which]
    gone, new = [n for n in before if n not in now], [n for n in now if n not in before]
    told += [f"{names(which)} {what}" for what, which in (("gone", gone), ("new", new)) if which]
    return "; ".join(told) or ("the order changed" if list(known) != list(found) else "")


def names(which: Sequence[str]) -> str:
    """How many, and the first few by name."""
    more = ", ..." if len(which) > SHOWN else ""
    return f"{len(which)} ({'; '.join(which[:SHOWN])}{more})"


@pytest.mark.parametrize("group", GROUPS)
def test_a_key_stands_for_one_plan(recorded, group):
    recorded(group, GROUPS[group]())


@pytest.mark.parametrize("model", MODELS)
def test_a_key_stands_for_one_plan_of_a_real_model(recorded, models, model):
    recorded(model, of_model(model, models))


def test_every_model_of_the_folder_is_recorded(models):
    found = {str(path.relative_to(models).with_suffix("")) for path in models.glob("*/*.onnx")}
    assert found == set(MODELS)


def test_the_golden_file_has_no_other_sections():
    assert tuple(sections(KNOWN.read_text("utf-8"))) == (*GROUPS, *MODELS)


@pytest.mark.parametrize(
    ("was", "told"),
    [
        (Line("k", "d", "l", "n"), ""),
        (Line("k", "d", "other", "n"), "only the log of 1 (n) changed"),
        (Line("other", "d", "l", "n"), "only the key of 1 (n) changed"),
        (Line("other", "other", "other", "n"), "decisions of 1 (n) changed"),
        (Line("k", "d", "l", "m"), "1 (m) gone; 1 (n) new"),
    ],
)
def test_what_changed_is_said(was, told):
    assert changes([was], [Line("k", "d", "l", "n")]) == told


@pytest.mark.parametrize(
    ("was", "broken"),
    [
        (Line("k", "other", "l", "m"), True),
        (Line("k", "d", "other", "n"), False),  # a log may change under a key
        (Line("other", "other", "l", "n"), False),
    ],
)
def test_a_key_of_another_plan_is_broken(was, broken):
    assert bool(broken_keys([was], [Line("k", "d", "l", "n")])) is broken


def test_the_revision_is_part_of_the_key(monkeypatch):
    graph = read("concat_of_two_ranges")
    key = plan_key(graph, "m", "t", {})
    monkeypatch.setattr("planner.plans.plan.MADE_BY", f"{VERSION}, planning {PLANNING + 1}")
    assert plan_key(graph, "m", "t", {}) != key
    assert f"{VERSION}, planning {PLANNING}" == MADE_BY


@pytest.mark.parametrize("revision", [1, PLANNING - 1])
def test_a_plan_of_an_earlier_planner_is_read_and_checked(revision):
    """Its key is what it was: nothing asks that today's planner would give the same."""
    model = read("concat_of_two_ranges")
    plan = planner.plan(model, TARGETS["npu"])
    maker = f"{VERSION}, planning {revision}"
    key = plan_key(plan.graph, plan.model, plan.target.digest, plan.options, maker)
    older = planner.plan_from_json(plan.to_json().replace(plan.key, key))
    planner.check(older, model, TARGETS["npu"])
    # Its warnings are in the words of then.
    planner.check(replace(older, warnings=("of then",)), model, TARGETS["npu"])
    with pytest.raises(PlanInvalid, match="warns that of then"):
        planner.check(replace(plan, warnings=("of then",)), model, TARGETS["npu"])
    assert older.key == key != plan.key


def test_a_plan_of_an_earlier_version_is_checked(monkeypatch):
    """As a later version has it, which adds the last revision of this one to `EARLIER`."""
    model = read("concat_of_two_ranges")
    plan = planner.plan(model, TARGETS["npu"])
    for earlier, accepted in (({VERSION: PLANNING}, True), ({}, False)):
        monkeypatch.setattr("planner.checker.origins.MAKERS", tuple(makers("99.0.0", 2, earlier)))
        with nullcontext() if accepted else pytest.raises(PlanInvalid, match="not that of its content"):
            planner.check(plan, model, TARGETS["npu"])


def test_every_released_version_has_its_last_revision():
    """Else a release would refuse to export the plans of the one before."""
    text = (ROOT / "CHANGELOG.md").read_text("utf-8")
    released = re.findall(r"^## (\d[\w.]*)", text, flags=re.MULTILINE)
    assert VERSION in released
    assert {version for version in released if version != VERSION} == set(EARLIER)
