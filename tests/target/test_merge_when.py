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
