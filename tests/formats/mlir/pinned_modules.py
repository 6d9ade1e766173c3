"""Random modules whose values are pinned by casts and element types; a slow reading of what one says."""

import numpy as np
from xdsl.dialects import func

from planner.formats.mlir.casts import DequantizeCastOp, QuantizeCastOp
from planner.formats.mlir.parse import parse_text
from planner.formats.mlir.text.read_structure import op_name
from planner.formats.mlir.types import uniform_of

SCALES = ("0.05", "0.05000000074505806", "0.0731", "0.1937")
"""The first two are one float32. No integer of one stands just between two of another."""
OPS = {
    "onnx.Add": (2, lambda a, b: a + b),
    "onnx.Max": (3, lambda *xs: np.maximum.reduce(xs)),
    "onnx.Mul": (2, lambda a, b: a * b),
    "onnx.Relu": (1, lambda a: np.maximum(a, 0)),
    "my.turn": (1, lambda a: -a),
}


def _type(rng):
    return f"!quant.uniform<i8:f32, {rng.choice(SCALES)}{rng.choice(['', '', ':3'])}>"


def _tensor(kind):
    return f"tensor<4x{kind}>"


def _pinned(rng, name, lines):
    """Casts of a float value; gives what may be read of it."""
    found = [(name, "f32")]
    for i in range(rng.choice((0, 1, 1, 2))):
        kind = _type(rng)
        lines.append(f"{name}q{i} = quant.qcast {name} : {_tensor('f32')} to {_tensor(kind)}")
        found.append((f"{name}q{i}", kind))
        if rng.random() < 0.7:
            lines.append(f"{name}d{i} = quant.dcast {name}q{i} : {_tensor(kind)} to {_tensor('f32')}")
            found.append((f"{name}d{i}", "f32"))
    return found


def pinned_module(rng, ops=tuple(OPS)):
    """A function of up to five ops on four numbers each; some values are quantized, cast once or twice."""
    lines, args, live = [], [], []
    for i in range(rng.randint(1, 3)):
        kind = rng.choice(["f32", _type(rng)])
        args.append(f"%a{i}: {_tensor(kind)}")
        live += _pinned(rng, f"%a{i}", lines) if kind == "f32" else [(f"%a{i}", kind)]
    for i in range(rng.randint(1, 5)):
        op = rng.choice(ops)
        read = [rng.choice(live[-4:] if rng.random() < 0.6 else live) for _ in range(OPS[op][0])]
        kind = rng.choice(["f32", "f32", _type(rng)])
        names, kinds = ", ".join(name for name, _ in read), ", ".join(_tensor(kind) for _, kind in read)
        lines.append(f'%o{i} = "{op}"({names}) : ({kinds}) -> {_tensor(kind)}')
        live += _pinned(rng, f"%o{i}", lines) if kind == "f32" else [(f"%o{i}", kind)]
    outs = [live[-1]] + [rng.choice(live) for _ in range(rng.choice((0, 0, 1, 2)))]
    kinds = ", ".join(_tensor(kind) for _, kind in outs)
    lines.append(f"return {', '.join(name for name, _ in outs)} : {kinds}")
    body = "".join(f"  {line}\n" for line in lines)
    return f"func.func @main({', '.join(args)}) -> ({kinds}) {{\n{body}}}\n"


def said(text, inputs):
    """What a module says its results are: each op dequantizes, computes and quantizes; reals throughout.

    Args:
      inputs: of the function, as reals.

    Returns:
      The results as reals, and the types they had.
    """
    module, _ = parse_text(text)
    (main,) = [op for op in module.body.ops if isinstance(op, func.FuncOp)]
    block = main.body.blocks.first
    known = {arg: _stored(arg.type, x) for arg, x in zip(block.args, inputs, strict=True)}
    for op in block.ops:
        taken = [known[value] for value in op.operands]
        if isinstance(op, func.ReturnOp):
            return taken, [uniform_of(value.type) for value in op.operands]
        is_cast = isinstance(op, QuantizeCastOp | DequantizeCastOp)
        made = taken[0] if is_cast else OPS[op_name(op)][1](*taken)
        known[op.results[0]] = _stored(op.results[0].type, made)
    raise AssertionError("no return")


def _stored(kind, reals):
    """Reals that a type holds for some."""
    uniform = uniform_of(kind)
    if uniform is None:
        return np.asarray(reals, np.float32)
    scale, zero = np.float32(uniform.scales[0]), uniform.zero_points[0]
    store = uniform.storage
    stored = np.clip(np.rint(np.asarray(reals, np.float32) / scale) + zero, store.qmin, store.qmax)
    return np.asarray((stored - zero) * scale, np.float32)
