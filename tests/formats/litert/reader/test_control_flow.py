"""WHILE, IF and CALL read as models: our own files and files by hand, beside what the runtime computes."""

import numpy as np
import pytest

import planner
from planner.errors import ModelError
from planner.interpreter.evaluate import Interpreter
from planner.interpreter.models import run_model
from tests.formats.bodies import MODELS, prepared
from tests.formats.litert.reader.by_hand import Hand
from tests.formats.litert.writer.running import integers, told
from tests.formats.litert.writer.test_bodies import BODIES, OPTIMIZED
from tests.oracles import litert

X = np.array([0.5, -1.0, 2.0, 0.25], np.float32)


@pytest.mark.parametrize("name", MODELS)
def test_our_own_file_is_read_and_written_again(name, tmp_path):
    """Nothing is rescaled; the runtime gives the same integers for both files, and so does the plan."""
    graph, samples = prepared(*MODELS[name])
    planned = planner.plan(graph, "litert-int8")
    data = planner.export(graph, planned, "litert")
    read = planner.load_model(data)
    assert not [note for note in read.notes if "opaque" in note]
    plan = planner.plan(read, "litert-int8")
    assert {rescale.kind for rescale in plan.rescales} <= {"quantize", "dequantize"}
    assert (len(plan.rescales), plan.cost) == (len(planned.rescales), planned.cost)
    again = planner.export(read, plan, "litert")
    counts = told(again).counts
    assert {key: counts[key] for key in ("IF", "WHILE") if counts[key]} == BODIES[name]
    kernels = "optimized" if name in OPTIMIZED else "reference"
    before, after = litert.run(tmp_path, [(data, samples), (again, samples)], kernels=kernels)
    assert not isinstance(after, str), after
    interpreter = Interpreter(read, plan)
    for sample, one, other in zip(samples, before, after, strict=True):
        wanted = interpreter.run(sample).outputs
        assert one.keys() == other.keys() == wanted.keys()
        for value, array in one.items():
            np.testing.assert_array_equal(other[value], array, err_msg=value)
            pair = [integers(plan, value, item) for item in (wanted[value], array)]
            np.testing.assert_array_equal(*pair, err_msg=value)


@pytest.mark.parametrize("name", ["branch", "collected", "columns", "deep", "scan", "times"])
def test_a_file_runs_as_onnx(name, tmp_path):
    """Converted or run, it has ONNX's own loops and branches, float between the file's grids."""
    graph, samples = prepared(*MODELS[name])
    data = planner.export(graph, planner.plan(graph, "litert-int8"), "litert")
    kernels = "optimized" if name in OPTIMIZED else "reference"
    (found,) = litert.run(tmp_path, [(data, samples)], kernels=kernels)
    for sample, got in zip(samples, found, strict=True):
        for value, array in run_model(data, sample).items():
            np.testing.assert_allclose(got[value], array, rtol=0, atol=0.1, err_msg=value)


def doubling(limit, *, times=1, answer=("BOOL", ())):
    """A value that is doubled and one more while its sum is below a limit, which may be never."""
    main, question, body = Hand(), Hand(), Hand()
    for hand in (main, question, body):
        hand.tensor((4,), "FLOAT32")
    for i in range(times):
        main.tensor((4,), "FLOAT32")
        options = {"CondSubgraphIndex": 1, "BodySubgraphIndex": 2}
        main.operator("WHILE", 1, [i], [i + 1], "WhileOptions", options)
    axes = question.tensor((1,), "INT32", np.zeros(1, np.int32).tobytes())
    total, most = question.tensor((), "FLOAT32"), np.array([limit], np.float32)
    bound = question.tensor((), "FLOAT32", most.tobytes())
    going = question.tensor(answer[1], answer[0])
    question.operator("SUM", 1, [0, axes], [total], "ReducerOptions", {"KeepDims": False})
    question.operator("LESS", 1, [total, bound], [going], "LessOptions", {})
    one = body.tensor((), "FLOAT32", np.ones(1, np.float32).tobytes())
    twice, more = body.tensor((4,), "FLOAT32"), body.tensor((4,), "FLOAT32")
    body.operator("ADD", 1, [0, 0], [twice], "AddOptions", {})
    body.operator("ADD", 1, [twice, one], [more], "AddOptions", {})
    return main.file([0], [times], [(question, [0], [going]), (body, [0], [more])])


def test_two_loops_of_one_question(tmp_path):
    """Ops have names of their own, also where no value says so."""
    data = doubling(20.0, times=2)
    wanted = litert.run(tmp_path, [(data, [{"t0": X}])])[0][0]["t2"]
    np.testing.assert_array_equal(run_model(data, {"t0": X})["t2"], wanted)


@pytest.mark.parametrize(
    ("element", "shape"), [("BOOL", (3,)), ("BOOL", (1 << 20, 1 << 20)), ("FLOAT32", ())]
)
def test_a_question_without_one_answer_stays_opaque(element, shape):
    """However large it says it is, nothing of that size is made."""
    read = planner.load_model(doubling(20.0, answer=(element, shape)))
    assert [op.type for op in read.ops] == ["tflite::WHILE"]
    assert any("not one bool" in note for note in read.notes)


def calls(depth):
    """A subgraph that runs a subgraph, and so on; the last one negates."""
    hands = [Hand() for _ in range(depth + 1)]
    for i, hand in enumerate(hands):
        hand.tensor((4,), "FLOAT32")
        hand.tensor((4,), "FLOAT32")
        last = i == depth
        hand.operator(
            *(
                ("NEG", 1, [0], [1], "NegOptions", {})
                if last
                else ("CALL", 1, [0], [1], "CallOptions", {"Subgraph": i + 1})
            )
        )
    return hands[0].file([0], [1], [(hand, [0], [1]) for hand in hands[1:]])


def test_subgraphs_deep_within_each_other():
    np.testing.assert_array_equal(run_model(calls(60), {"t0": X})["t1"], -X)
    with pytest.raises(ModelError, match="subgraph 64 is run 64 subgraphs deep; accepted: fewer"):
        planner.load_model(calls(1000))


@pytest.mark.parametrize("limit", [-100.0, 20.0, 500.0])
def test_a_loop_that_only_its_question_ends(limit, tmp_path):
    data = doubling(limit)
    read = planner.load_model(data)
    assert not [note for note in read.notes if "opaque" in note]
    plan = planner.plan(read, "litert-int8")
    again = planner.export(read, plan, "litert")
    one, other = litert.run(tmp_path, [(data, [{"t0": X}]), (again, [{"t0": X}])])
    assert not isinstance(other, str), other
    wanted = X
    while wanted.sum() < limit:
        wanted = 2 * wanted + 1
    for found in (
        one[0],
        other[0],
        run_model(data, {"t0": X}),
        Interpreter(read, plan).run({"t0": X}).outputs,
    ):
        np.testing.assert_array_equal(found["t1"], wanted)


def branching(*, shape=(4,), then=1, other=2):
    """-x where a flag says so, else x."""
    main, negative, same = Hand(), Hand(), Hand()
    main.tensor((), "BOOL")
    main.tensor((4,), "FLOAT32")
    main.tensor((4,), "FLOAT32")
    indices = {"ThenSubgraphIndex": then, "ElseSubgraphIndex": other}
    main.operator("IF", 1, [0, 1], [2], "IfOptions", indices)
    for hand in (negative, same):
        hand.tensor(shape, "FLOAT32")
    negative.tensor(shape, "FLOAT32")
    negative.operator("NEG", 1, [0], [1], "NegOptions", {})
    return main.file([0, 1], [2], [(negative, [0], [1]), (same, [0], [0])])


@pytest.mark.parametrize("flag", [False, True])
def test_a_branch_that_hands_on_what_it_is_given(flag, tmp_path):
    data, sample = branching(), {"t0": np.asarray(flag), "t1": X}
    read = planner.load_model(data)
    plan = planner.plan(read, "litert-int8")
    again = planner.export(read, plan, "litert")
    one, other = litert.run(tmp_path, [(data, [sample]), (again, [sample])])
    assert not isinstance(other, str), other
    for found in (one[0], other[0], run_model(data, sample), Interpreter(read, plan).run(sample).outputs):
        np.testing.assert_array_equal(found["t2"], -X if flag else X)


@pytest.mark.parametrize(
    ("name", "table", "options"),
    [
        ("CALL", "CallOptions", {"Subgraph": 1}),
        ("STABLEHLO_COMPOSITE", "StableHLOCompositeOptions", {"DecompositionSubgraphIndex": 1}),
    ],
)
def test_a_call_is_its_subgraph(name, table, options):
    main, body = Hand(), Hand()
    for hand in (main, body):
        hand.tensor((4,), "FLOAT32")
        hand.tensor((4,), "FLOAT32")
    body.operator("NEG", 1, [0], [1], "NegOptions", {})
    main.operator(name, 1, [0], [1], table, options)
    data = main.file([0], [1], [(body, [0], [1])])
    assert [op.type for op in planner.load_model(data).ops] == ["Neg"]
    np.testing.assert_array_equal(run_model(data, {"t0": X})["t1"], -X)


def test_what_does_not_fit_stays_opaque():
    read = planner.load_model(branching(shape=(5,)))
    assert [op.type for op in read.ops] == ["tflite::IF"]
    assert any(
        "the operands of its subgraph 'model' have other shapes or types" in note for note in read.notes
    )


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (branching(then=7), "an operator runs subgraph 7; there are 3"),
        (branching(then=-1), "an operator runs subgraph -1; there are 3"),
        (branching(other=0), "subgraph 0 runs itself: 0 -> 0"),
    ],
)
def test_a_subgraph_that_is_none_is_refused(data, words):
    with pytest.raises(ModelError, match=words):
        planner.load_model(data)
