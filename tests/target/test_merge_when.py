"""Rows of a base that differ in `when` alone are all inherited, and each can be replaced or removed."""

import pytest

from planner.target.load import load_target

BASE = """apiVersion: planner/v1
kind: Target
id: base
version: 1.0.0
title: base
mode: fixed
defaults: {port: {storage: i8}}
kernels:
  - {kernel: AveragePool, in: {x: "*"}, out: {y: "*"}, when: {x.rank: 4}, rules: [{same_scale: [x, y]}]}
  - {kernel: AveragePool, in: {x: "*"}, out: {y: "*"}, when: {x.rank: 3}, rules: [{same_scale: [x, y]}]}
"""
HEAD = """apiVersion: planner/v1
kind: Target
id: mine
version: 1.0.0
title: mine
mode: fixed
extends: base.yaml
"""


@pytest.mark.parametrize(
    ("kernels", "ranks"),
    [
        ("", [4, 3]),
        ("kernels: [{kernel: AveragePool, in: {x: '*'}, out: {y: '*'}, when: {x.rank: 3}}]", [3, 4]),
        ("kernels: [{kernel: AveragePool, in: {x: '*'}, out: {y: '*'}, when: {x.rank: 5}}]", [5, 4, 3]),
        ("kernels: [{kernel: AveragePool, when: {x.rank: 4}, remove: true}]", [3]),
        ("kernels: [{kernel: AveragePool, remove: true}]", []),
    ],
)
def test_rows_that_differ_in_when(tmp_path, kernels, ranks):
    (tmp_path / "base.yaml").write_text(BASE)
    (tmp_path / "mine.yaml").write_text(f"{HEAD}{kernels}\n")
    rows = load_target(tmp_path / "mine.yaml").rows.get("AveragePool", ())
    assert [row.when["x.rank"] for row in rows] == ranks


NAMED = """apiVersion: planner/v1
kind: Target
id: base
version: 1.0.0
title: base
mode: fixed
types:
  a8: {storage: i8}
  a16: {storage: i16}
  w8: {storage: i8, symmetric: true}
  b32: {storage: i32, symmetric: true}
defaults: {port: a8}
kernels:
  - kernel: Gemm
    in: {x: a8, w: w8, b?: b32}
    out: {y: a8}
    axis: {w: 0}
    when: {x.rank: 2, min_bits: {w: 4}, holds: "x.shape[1] == w.shape[0] and max.rank(x) > 0"}
    rules:
      - multiplier_accumulator_scale: {port: b, of: [x, w]}
      - multiplier_scale: {out: y, of: [x, w]}
  - {kernel: Gemm, in: {x: a16, w: w8, b?: b32}, out: {y: a16}}
  - {kernel: Relu, in: {x: a8}, out: {y: a8}, rules: [{same_scale: [x, y]}]}
  - {kernel: Relu, in: {x: a16}, out: {y: a16}, rules: [{same_scale: [x, y]}]}
"""


def laid_over(tmp_path, kernels, head=""):
    (tmp_path / "base.yaml").write_text(NAMED.replace(" and max.rank(x) > 0", ""))
    (tmp_path / "mine.yaml").write_text(f"{HEAD}{head}kernels:\n{kernels}")
    return load_target(tmp_path / "mine.yaml")


def test_rows_merge_by_types_whatever_ports_and_types_are_called(tmp_path):
    """What the inherited row says of its ports is said of the author's."""
    head = "types: {act: {storage: i8, granularity: tensor}}\n"
    ports = "in: {a: act, k: {storage: i8, symmetric: true}, c?: b32}, out: {z: act}"
    row = f"  - {{kernel: Gemm, {ports}, requantize: gemmlowp}}\n"
    rows = laid_over(tmp_path, row, head).rows["Gemm"]
    assert len(rows) == 2
    mine = rows[0]
    assert ([port.name for port in mine.inputs], mine.outputs[0].name) == (["a", "k", "c"], "z")
    assert mine.axis == {"k": 0}
    assert mine.when == {"a.rank": 2, "min_bits": {"k": 4}, "holds": ("a.shape[1] == k.shape[0]",)}
    assert [dict(rule.args) for rule in mine.rules] == [
        {"port": "c", "of": ("a", "k")},
        {"out": "z", "of": ("a", "k")},
    ]


@pytest.mark.parametrize("ports", ["{x: a8, w: a8, b?: b32}", "{x: a8, w: w8, b: b32}", "{x: a8, w: w8}"])
def test_another_type_another_number_or_an_optional_port_is_another_row(tmp_path, ports):
    assert len(laid_over(tmp_path, f"  - {{kernel: Gemm, in: {ports}, out: {{y: a8}}}}\n").rows["Gemm"]) == 3


def test_names_that_change_places_are_changed_at_once(tmp_path):
    row = "  - {kernel: Gemm, in: {w: a8, x: w8, b?: b32}, out: {y: a8}}\n"
    mine = laid_over(tmp_path, row).rows["Gemm"][0]
    assert mine.axis == {"x": 0}
    assert mine.when["holds"] == ("w.shape[1] == x.shape[0]",)


def test_rows_are_removed_by_a_storage(tmp_path):
    target = laid_over(
        tmp_path, "  - {kernel: Gemm, remove: {storage: i16}}\n  - {kernel: Relu, remove: {storage: i8}}\n"
    )
    assert [row.inputs[0].type.storage.name for row in target.rows["Gemm"]] == ["i8"]
    assert [row.inputs[0].type.storage.name for row in target.rows["Relu"]] == ["i16"]


def test_both_rows_written_are_both_there(tmp_path):
    """The first takes over the inherited one; the second stands beside it."""
    rows = "".join(
        f"  - {{kernel: Relu, in: {{x: a8}}, out: {{y: a8}}, when: {{x.rank: {rank}}}}}\n" for rank in (4, 3)
    )
    found = laid_over(tmp_path, rows).rows["Relu"]
    assert [(row.when.get("x.rank"), len(row.rules)) for row in found] == [(4, 1), (3, 0), (None, 1)]
