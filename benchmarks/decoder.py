"""A decoder of any size, written to disk tensor by tensor: the model of `large_models`.

Transformer blocks (RMS norms, attention of several heads under a causal mask, a gated feed-forward part)
between an embedding and a head, in f32, for sequences of a fixed length. Weights are drawn and lie in one
file beside the model; a piece of a tensor at a time is in memory. Run as
`python -m benchmarks.decoder 3.0 FOLDER`.
"""

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

SEED: Final = 21
WORDS: Final = 32_000
TOKENS: Final = 16
HEAD: Final = 64
_PAGE: Final = 4096
_PIECE: Final = 1 << 22
_FLOAT: Final = TensorProto.FLOAT


@dataclass(frozen=True, slots=True)
class Size:
    """How big a decoder is: `inner` is the width of its feed-forward parts."""

    layers: int
    width: int
    inner: int
    words: int = WORDS

    @property
    def matrices(self) -> int:
        """Bytes of the weights of all MatMuls and of the embedding."""
        layer = 4 * self.width * self.width + 3 * self.width * self.inner
        return 4 * (2 * self.words * self.width + self.layers * layer)

    @property
    def largest(self) -> int:
        """Bytes of the largest tensor."""
        return 4 * self.width * max(self.words, self.inner)


def size_of(gigabytes: float) -> Size:
    """The decoder of about so many GB (10^9 bytes): 2,048 wide from 1 GB on, narrower below."""
    width = 2048 if gigabytes >= 1 else 1024 if gigabytes >= 0.25 else 512
    words = WORDS if gigabytes >= 1 else WORDS // 16
    inner = width * 11 // 4
    empty = Size(0, width, inner, words)
    layer = Size(1, width, inner, words).matrices - empty.matrices
    return Size(max(1, round((gigabytes * 1e9 - empty.matrices) / layer)), width, inner, words)


def write_decoder(path: Path, size: Size) -> Path:
    """Write `path` and, beside it, its weights; the path is returned."""
    rng = np.random.default_rng(SEED)
    with path.with_suffix(".data").open("wb") as file:
        graph = _graph(size, _Weights(file, rng))
    opset = helper.make_opsetid("", 21)
    onnx.save(helper.make_model(graph, opset_imports=[opset], ir_version=10), path)
    return path


def samples(size: Size, count: int) -> dict[str, np.ndarray]:
    """Drawn token ids for `count` samples, (count, 1, TOKENS)."""
    return {"input_ids": np.random.default_rng(SEED + 1).integers(0, size.words, (count, 1, TOKENS))}


class _Weights:
    """The file of weights and what refers to it."""

    def __init__(self, file: BinaryIO, rng: np.random.Generator) -> None:
        self.tensors: list[TensorProto] = []
        self._file, self._rng = file, rng

    def draw(self, name: str, *shape: int) -> str:
        """Write a tensor of normal numbers that keeps variances, in pieces."""
        self._file.seek(-(-self._file.tell() // _PAGE) * _PAGE)
        count, start = int(np.prod(shape)), self._file.tell()
        for begin in range(0, count, _PIECE):
            drawn = self._rng.standard_normal(min(_PIECE, count - begin), np.float32)
            self._file.write(drawn * np.float32(shape[0] ** -0.5))
        tensor = TensorProto(name=name, data_type=_FLOAT, dims=shape, data_location=TensorProto.EXTERNAL)
        told = {"location": Path(self._file.name).name, "offset": str(start), "length": str(4 * count)}
        for key, text in told.items():
            tensor.external_data.add(key=key, value=text)
        self.tensors.append(tensor)
        return name

    def keep(self, name: str, array: np.ndarray) -> str:
        """A small tensor in the model's own file."""
        self.tensors.append(numpy_helper.from_array(array, name))
        return name


def _graph(size: Size, weights: _Weights) -> onnx.GraphProto:
    weights.keep("eps", np.float32([1e-5]))
    weights.keep("last", np.int64([-1]))
    weights.keep("scale", np.float32([HEAD**-0.5]))
    weights.keep("mask", np.triu(np.full((TOKENS, TOKENS), -1e4, np.float32), 1))
    weights.keep("heads", np.int64([1, TOKENS, size.width // HEAD, HEAD]))
    weights.keep("joined", np.int64([1, TOKENS, size.width]))
    table = weights.draw("embedding", size.words, size.width)
    nodes = [helper.make_node("Gather", [table, "input_ids"], ["h0"], "embed")]
    for i in range(size.layers):
        nodes += _layer(f"l{i}", f"h{i}", f"h{i + 1}", size, weights)
    nodes += _norm("final", f"h{size.layers}", "final_norm", size, weights)
    head = weights.draw("lm_head", size.width, size.words)
    nodes.append(helper.make_node("MatMul", ["final_norm", head], ["logits"], "head"))
    ids = helper.make_tensor_value_info("input_ids", TensorProto.INT64, [1, TOKENS])
    logits = helper.make_tensor_value_info("logits", _FLOAT, [1, TOKENS, size.words])
    return helper.make_graph(nodes, "decoder", [ids], [logits], weights.tensors)


def _layer(at: str, x: str, y: str, size: Size, weights: _Weights) -> Iterator[onnx.NodeProto]:
    width, inner = size.width, size.inner

    def node(kind: str, inputs: list[str], out: str, **attributes: object) -> onnx.NodeProto:
        return helper.make_node(kind, inputs, [f"{at}/{out}"], f"{at}/{out}", **attributes)

    def product(source: str, out: str, rows: int, columns: int) -> onnx.NodeProto:
        return node("MatMul", [source, weights.draw(f"{at}/{out}.weight", rows, columns)], out)

    yield from _norm(f"{at}/norm1", x, f"{at}/n1", size, weights)
    for part, turn in (("q", (0, 2, 1, 3)), ("k", (0, 2, 3, 1)), ("v", (0, 2, 1, 3))):
        yield product(f"{at}/n1", part, width, width)
        yield node("Reshape", [f"{at}/{part}", "heads"], f"{part}h")
        yield node("Transpose", [f"{at}/{part}h"], f"{part}t", perm=turn)
    yield node("MatMul", [f"{at}/qt", f"{at}/kt"], "scores")
    yield node("Mul", [f"{at}/scores", "scale"], "scaled")
    yield node("Add", [f"{at}/scaled", "mask"], "masked")
    yield node("Softmax", [f"{at}/masked"], "shares", axis=-1)
    yield node("MatMul", [f"{at}/shares", f"{at}/vt"], "mixed")
    yield node("Transpose", [f"{at}/mixed"], "back", perm=(0, 2, 1, 3))
    yield node("Reshape", [f"{at}/back", "joined"], "flat")
    yield product(f"{at}/flat", "o", width, width)
    yield node("Add", [x, f"{at}/o"], "mid")
    yield from _norm(f"{at}/norm2", f"{at}/mid", f"{at}/n2", size, weights)
    yield product(f"{at}/n2", "gate", width, inner)
    yield node("Sigmoid", [f"{at}/gate"], "open")
    yield node("Mul", [f"{at}/gate", f"{at}/open"], "silu")
    yield product(f"{at}/n2", "up", width, inner)
    yield node("Mul", [f"{at}/silu", f"{at}/up"], "gated")
    yield product(f"{at}/gated", "down", inner, width)
    yield helper.make_node("Add", [f"{at}/mid", f"{at}/down"], [y], f"{at}/sum")


def _norm(at: str, x: str, y: str, size: Size, weights: _Weights) -> Iterator[onnx.NodeProto]:
    gain = weights.keep(f"{at}.gain", np.ones(size.width, np.float32))
    steps = (("Mul", [x, x], "sq"), ("ReduceMean", [f"{at}/sq", "last"], "mean"))
    more = (("Add", [f"{at}/mean", "eps"], "safe"), ("Sqrt", [f"{at}/safe"], "root"))
    for kind, inputs, out in (*steps, *more, ("Div", [x, f"{at}/root"], "unit")):
        yield helper.make_node(kind, inputs, [f"{at}/{out}"], f"{at}/{out}")
    yield helper.make_node("Mul", [f"{at}/unit", gain], [y], f"{at}/gained")


def main() -> None:
    """Write a decoder of so many GB and eight samples for it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("gigabytes", type=float)
    parser.add_argument("folder", type=Path)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    size = size_of(options.gigabytes)
    path = write_decoder(options.folder / "decoder.onnx", size)
    np.savez(options.folder / "samples.npz", **samples(size, 8))
    print(f"{path}: {size}, {size.matrices:,} bytes of weights, largest {size.largest:,}")


if __name__ == "__main__":
    main()
