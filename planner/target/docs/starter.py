"""A target file to start from: empty and commented, or over another target. Text only; loading is `load`.

Source: docs/command.md.
"""

import json
import re
from typing import Final

from planner.errors import InputError
from planner.target.records import Target, TestCase

_ID: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")

_ALONE: Final = """# yaml-language-server: $schema=./target.schema.json
apiVersion: planner/v1
kind: Target
id: {id}
version: 0.1.0
title: {title}
mode: fixed                                        # fixed: kernels as they are; codegen: integer primitives

types:                                             # what ports ask of a tensor
  a8: {{storage: i8}}
  w8c: {{storage: i8, range: [-127, 127], granularity: axis, symmetric: true}}
  b32: {{storage: i32, symmetric: true}}

defaults: {{port: a8, on_no_kernel: float, requantize: tosa_double}}

fusions:                                           # which ops of the model one kernel takes
  - {{kernel: conv2d, pattern: "Relu?(Conv(x, w, b?))", where: {{w: constant, b: constant}}}}

kernels:                                           # the table: types of ports, and the rules between them
  - kernel: conv2d
    in: {{x: a8, w: w8c, b?: b32}}
    out: {{y: a8}}
    axis: {{w: out_channel}}
    accumulator: i32
    rules:
      - multiplier_accumulator_scale: {{port: b, of: [x, w]}}
      - multiplier_scale: {{out: y, of: [x, w]}}
  - {{kernel: MaxPool, in: {{x: a8}}, out: {{y: a8}}, rules: [{{same_scale: [x, y]}}]}}

tests:                                             # run by: qplan target test FILE
  - name: a pool keeps the scale of what it reads
    model: |
      w = constant : f32[8,8,3,3] {{-0.5, 0.5}}
      a = Conv(x, w) [pads=[1,1,1,1]] : f32[1,8,4,4] {{-2, 2}}
      y = MaxPool(a) [kernel_shape=[2,2], strides=[2,2]] : f32[1,8,2,2]
    expect: {{kernels: {{conv2d: 1, MaxPool: 1}}, rescales: 0, same_scale: [[a, y]]}}
"""

_OVER: Final = """# yaml-language-server: $schema=./target.schema.json
#
# Everything of {base} {version}, and what is written here. Maps merge; rows merge by kernel and the types of
# their ports, fusions by kernel and pattern, your entries first; `remove: true` deletes one.
apiVersion: planner/v1
kind: Target
id: {id}
version: 0.1.0
title: {title}
extends: {extends}

# defaults: {{on_no_kernel: error}}
# rescale: {{cost: {{requantize: 2.0}}}}
# kernels:
{rows}

tests:
{tests}"""


def new_target(name: str, base: Target | None = None, *, extends: str = "", title: str = "") -> str:
    """Write a target file that lints clean and passes its own tests.

    Args:
      name: the id of the new target.
      base: the target it starts from; None for a small target of its own.
      extends: name of the base in the file; by default its id.

    Raises:
      InputError: a name that is no id.
    """
    if not _ID.fullmatch(name):
        raise InputError(
            f"{name!r} is no id of a target", hint="letters, digits, '_', '.' and '-', such as my-npu"
        )
    shown = json.dumps(title or name, ensure_ascii=False)
    if base is None:
        return _ALONE.format(id=name, title=shown)
    return _OVER.format(
        id=name,
        title=shown,
        base=base.id,
        version=base.version,
        extends=json.dumps(extends or base.id),
        rows=_rows(base),
        tests="".join(map(_test, base.tests[:1])) or "  []\n",
    )


def _rows(base: Target) -> str:
    """Comments that show how to delete and to add a row, on a kernel that the base has."""
    kernel = next(iter(base.rows), "MaxPool")
    lines = (
        f"  - {{kernel: {json.dumps(kernel)}, remove: true}}                  # all its rows",
        '  - {kernel: Erf, in: {x: "*"}, out: {y: "*"}}            # a row more',
    )
    return "\n".join(f"# {line}" for line in lines)


def _test(case: TestCase) -> str:
    model = "".join(f"      {line}\n" for line in case.model.rstrip().splitlines())
    return f"  - name: {json.dumps(case.name)}\n    model: |\n{model}    expect: {json.dumps(case.expect)}\n"
