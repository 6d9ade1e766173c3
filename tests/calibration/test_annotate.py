"""Annotating: which facts a value ends up with, and what is refused word for word."""

from dataclasses import replace
from functools import reduce

import numpy as np
import pytest

from planner.calibration.annotate import annotate
from planner.calibration.run import calibrate
from planner.calibration.statistics import Statistics, ValueStats, calibration_digest, merge
from planner.errors import AnnotationError, StatsError
from planner.ir.operators.movement import INFINITE
from planner.ir.types.typetext import parse_type
from tests.calibration.graphs import branchy, fused
from tests.formats.plans import model, op

UNIFORM = "!quant.uniform<i8:f32, 0.0625:-3>"
RANGE = "!quant.calibrated<f32<-1.0:2.0>>"


def facts(graph, name):
    return [str(fact) for fact in graph.values[name].facts]


def document(**sections):
    return {"format": "qplan.annotations/1", **sections}


def stats_of(graph, **values):
    return Statistics(calibration_digest(graph), "minmax", 1, values)


def with_facts(graph, name, *texts):
    value = replace(graph.values[name], facts=tuple(map(parse_type, texts)))
    return replace(graph, values={**graph.values, name: value})


def test_statistics_become_calibrated_facts_beside_the_others():
    graph = with_facts(branchy(), "m", "!quant.any<i16>", "!quant.calibrated<f32<-9.0:9.0>>")
    annotated = annotate(graph, stats=stats_of(graph, m=ValueStats((-1.0,), (2.0,))))
    assert facts(annotated, "m") == ["!quant.any<i16>", RANGE]
    assert annotated.notes == ()


def test_statistics_per_slice():
    graph = fused()
    annotated = annotate(graph, stats=stats_of(graph, x=ValueStats((0.0,) * 3, (1.0, 2.0, 3.0), axis=1)))
    assert facts(annotated, "x") == ["!quant.calibrated<f32:1, {0.0:1.0, 0.0:2.0, 0.0:3.0}>"]


def test_another_model_and_skipped_elements_are_notes():
    stats = Statistics("sha256:other", "minmax", 1, {"m": ValueStats((0.0,), (1.0,), nan=2, inf=1)})
    mismatch, skipped = annotate(branchy(), stats=stats).notes
    assert mismatch.startswith("the statistics were taken of another model (sha256:other, this is sha256:")
    assert skipped == "calibration skipped NaN and infinite elements of 1 values: 'm' (3)"


def test_minus_infinity_masks_only_where_a_softmax_reads_it():
    """Elsewhere it is left out as before, with the note."""
    graph = model(
        [op("Add", "x m", "s"), op("Reshape", "s shape", "r"), op("Softmax", "r", "y", axis=-1),
         op("Exp", "x", "e")],
        inputs={"x": (2, 4), "m": (2, 4)},
        outputs={"y": (8,), "e": (2, 4)},
        constants={"shape": np.int64([8])},
        shapes={"s": (2, 4), "r": (8,)},
    )  # fmt: skip
    seen = ValueStats((-1.0,), (2.0,), inf=3, below=True)
    annotated = annotate(graph, stats=stats_of(graph, m=seen, r=seen, e=seen))
    masked = f"!quant.calibrated<f32<{-INFINITE!r}:2.0>>"
    assert [facts(annotated, name) for name in ("m", "r", "e")] == [[masked], [masked], [RANGE]]
    assert annotated.notes == ("calibration skipped NaN and infinite elements of 1 values: 'e' (3)",)


@pytest.mark.parametrize("method", ["minmax", "percentile", "mse", "entropy"])
def test_every_method_keeps_masks_and_shards_agree(method):
    graph = model([op("Softmax", "x", "y", axis=-1)], inputs={"x": (4,)}, outputs={"y": (4,)}, constants={})
    numbers = np.float32([[0.5, -1, 0.25, 1], [0.5, 1, -np.inf, -np.inf], [0, 0.5, 1, 0.75]])
    samples = [{"x": row} for row in numbers]
    whole = calibrate(graph, samples, method=method)
    parts = [calibrate(graph, samples[i : i + 1], method=method) for i in range(3)]
    joined = reduce(merge, parts)
    assert (joined.values["x"].below, joined.values["x"].lo) == (True, -1.0)
    assert joined.values["x"].rows == whole.values["x"].rows
    (fact,) = annotate(graph, stats=whole).values["x"].facts
    assert (fact.lo, fact.widths) == (-INFINITE, ())


def test_annotating_keeps_the_digest_of_statistics():
    annotated = annotate(branchy(), annotations=document(values={"*": UNIFORM}))
    assert calibration_digest(annotated) == calibration_digest(branchy())


def test_names_decide_over_globs_and_later_globs_over_earlier():
    text = f"""
format: qplan.annotations/1
values:
  m: "!quant.none"
  "*": "!quant.any<i8>"
  "[rm]": ["{UNIFORM}", "!quant.any<i4>"]
"""
    graph = annotate(branchy(), annotations=text)
    assert facts(graph, "m") == ["!quant.none"]
    assert facts(graph, "r") == [UNIFORM, "!quant.any<i4>"]
    assert facts(graph, "x") == ["!quant.any<i8>"]
    assert facts(graph, "shape") == []


def test_an_annotation_replaces_but_keeps_the_calibrated_range():
    graph = with_facts(branchy(), "m", UNIFORM, RANGE)
    assert facts(annotate(graph, annotations=document(values={"m": "!quant.none"})), "m") == [
        "!quant.none",
        RANGE,
    ]
    other = "!quant.calibrated<f32<0.0:1.0>>"
    assert facts(annotate(graph, annotations=document(values={"m": other})), "m") == [other]
    assert facts(annotate(graph, annotations=document(remove=["m*"])), "m") == [RANGE]


def test_ports():
    graph = annotate(
        fused(), annotations=document(ports={"conv1.in[1]": "!quant.any<i4>", "conv1.out[0]": UNIFORM})
    )
    (region,) = graph.regions
    assert region.input_facts == ((), (parse_type("!quant.any<i4>"),), ())
    assert region.output_facts == ((parse_type(UNIFORM),),)
    (bare,) = annotate(graph, annotations=document(remove=["conv1.in[1]"])).regions
    assert bare.input_facts == ()


@pytest.mark.parametrize("suffix", [".yaml", ".json"])
def test_files(tmp_path, suffix):
    path = tmp_path / f"a{suffix}"
    path.write_text('{"format": "qplan.annotations/1", "values": {"m": "!quant.none"}}', encoding="utf-8")
    assert facts(annotate(branchy(), annotations=path), "m") == ["!quant.none"]
    assert facts(annotate(branchy(), annotations=str(path)), "m") == ["!quant.none"]


BAD_STATS = [
    (
        {"mm": ValueStats((0.0,), (1.0,))},
        "statistics of 'mm', which is no value of model 'small' (did you mean 'm'?)",
    ),
    (
        {"shape": ValueStats((0.0,), (1.0,))},
        "statistics of 'shape': value 'shape' has element type i64; only float values carry types",
    ),
    (
        {"x": ValueStats((0.0, 0.0), (1.0, 1.0), axis=0)},
        (
            "statistics of 'x': type !quant.calibrated<f32:0, {0.0:1.0, 0.0:1.0}> does not fit 'x': "
            "2 ranges for axis 0 of size 3, its shape is [3, 4]"
        ),
    ),
    (
        {"x": ValueStats((-1.0,), (1e308,))},
        "statistics of 'x': 1e+308 is beyond f32; accepted: up to 3.4028234663852886e+38",
    ),
]


@pytest.mark.parametrize(("values", "message"), BAD_STATS)
def test_statistics_that_do_not_fit(values, message):
    graph = branchy()
    with pytest.raises(StatsError) as caught:
        annotate(graph, stats=stats_of(graph, **values))
    assert str(caught.value) == message


BAD = [
    (
        document(values={"mm": UNIFORM}),
        "annotations: values.mm: 'mm' is no value of model 'small' (did you mean 'm'?)",
    ),
    (
        document(values={"q*": UNIFORM}),
        (
            "annotations: values.q*: glob 'q*' matches no float value of model 'small' "
            "(known: 'b', 'c', 'f', 'k', 'm', 'o', 'r', 'shape', ...)"
        ),
    ),
    (
        document(remove=["mm"]),
        "annotations: remove.mm: 'mm' is no value of model 'small' (did you mean 'm'?)",
    ),
    (document(vales={}), "annotations: vales: unknown field 'vales' (did you mean 'values'?)"),
    ({"values": {}}, "annotations: format: format None is not read here; 'qplan.annotations/1' is"),
    (document(values=["m"]), "annotations: values: values must map names to types"),
    (document(remove="m"), "annotations: remove: remove must be a list of names"),
    (
        document(values={"m": []}),
        "annotations: values.m: 'm' needs a type or a list of types, as text (such as \"!quant.any<i16>\")",
    ),
    (
        document(values={"m": "!quant.unifrm<i8>"}),
        (
            "annotations: values.m: 'm': column 1: unknown type '!quant.unifrm'; known: !quant.any, "
            "!quant.bipolar, !quant.calibrated, !quant.uniform, !quant.none, f16, bf16, tf32, f32, f64, f80"
        ),
    ),
    (
        document(values={"m": [UNIFORM, UNIFORM]}),
        f"annotations: values.m: 'm' has two facts of one kind: {UNIFORM}, {UNIFORM}",
    ),
    (
        document(values={"shape": UNIFORM}),
        "annotations: values.shape: value 'shape' has element type i64; only float values carry types",
    ),
    (
        document(values={"m": "!quant.uniform<i8:f16, 0.5>"}),
        "annotations: values.m: type !quant.uniform<i8:f16, 0.5> expresses f16, value 'm' is f32",
    ),
    (
        document(values={"x": "!quant.uniform<i8:f32:2, {0.5,0.25}>"}),
        (
            "annotations: values.x: type !quant.uniform<i8:f32:2, {0.5,0.25}> does not fit 'x': "
            "it has no axis 2, its shape is [3, 4]"
        ),
    ),
    (
        document(values={"x": "!quant.uniform<i8:f32:1, {0.5,0.25}>"}),
        (
            "annotations: values.x: type !quant.uniform<i8:f32:1, {0.5,0.25}> does not fit 'x': "
            "2 scales for axis 1 of size 4, its shape is [3, 4]"
        ),
    ),
    (
        document(values={"x": "!quant.uniform<i8:f32:{1:3}, {{0.5,0.25,1.0}}>"}),
        (
            "annotations: values.x: type !quant.uniform<i8:f32:{1:3}, {{0.5, 0.25, 1.0}}> does not fit 'x': "
            "axis 1 of size 4 in blocks of 3 needs 2 scales, not 3"
        ),
    ),
    (
        document(values={"x": "!quant.uniform<i8:f32:{1:2}, {{0.5,0.25,0.5}}>"}),
        (
            "annotations: values.x: type !quant.uniform<i8:f32:{1:2}, {{0.5, 0.25, 0.5}}> does not fit 'x': "
            "axis 1 of size 4 in blocks of 2 needs 2 scales, not 3"
        ),
    ),
    (
        document(ports={"scale.in[0]": UNIFORM}),
        (
            "annotations: ports.scale.in[0]: model 'small' has no kernels yet, so no port 'scale.in[0]' "
            "(annotate the value 'x' instead)"
        ),
    ),
    ("no/such.yaml", "no/such.yaml: cannot read annotations: No such file or directory"),
    (
        "format: qplan.annotations/1\nvalues:\n  m: '!quant.none'\n  mm: '!quant.none'\n",
        "annotations:4:3: 'mm' is no value of model 'small' (did you mean 'm'?)",
    ),
    (
        "format: qplan.annotations/1\nremove:\n  - m\n  - mm\n",
        "annotations:4:5: 'mm' is no value of model 'small' (did you mean 'm'?)",
    ),
]


@pytest.mark.parametrize(("annotations", "message"), BAD)
def test_annotations_that_do_not_fit(annotations, message):
    with pytest.raises(AnnotationError) as caught:
        annotate(branchy(), annotations=annotations)
    assert str(caught.value) == message


BAD_PORTS = [
    ("conv.in[0]", "'conv' is no kernel of model 'fused' (did you mean 'conv1'?)"),
    ("conv1.in[2]", "kernel 'conv1' has no port in[2] (it has in[0], in[1])"),
    ("conv1.out[1]", "kernel 'conv1' has no port out[1] (it has out[0])"),
    ("conv1", "'conv1' is no port (a port reads conv1.in[0])"),
]


@pytest.mark.parametrize(("port", "message"), BAD_PORTS)
def test_ports_that_are_none(port, message):
    with pytest.raises(AnnotationError) as caught:
        annotate(fused(), annotations=document(ports={port: UNIFORM}))
    assert str(caught.value) == f"annotations: ports.{port}: {message}"


def test_yaml_that_is_none():
    with pytest.raises(AnnotationError) as caught:
        annotate(branchy(), annotations="format: [\n")
    assert str(caught.value).startswith("annotations:2:1: T001 not YAML: ")
