"""Net: a small model under construction, with seeded weights; the generators beside it use nothing else."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import GraphProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

F32 = TensorProto.FLOAT
F16 = TensorProto.FLOAT16
I64 = TensorProto.INT64
BOOL = TensorProto.BOOL


class Net:
    """Nodes, weights and ports in the order they were asked for."""

    def __init__(self, seed: int = 0, dtype: Any = np.float32) -> None:
        self.rng = np.random.default_rng(seed)
        self.dtype = dtype
        self.nodes: list[NodeProto] = []
        self.weights: list[TensorProto] = []
        self.inputs: list[ValueInfoProto] = []
        self.outputs: list[ValueInfoProto] = []
        self.infos: list[ValueInfoProto] = []
        self._mark = seed
        self._count = 0

    def name(self, stem: str) -> str:
        """A name that no other net with another seed has."""
        self._count += 1
        return f"{stem}{self._mark}_{self._count}"

    def input(self, name: str, shape: Sequence[int | str | None], dtype: int = F32) -> str:
        """A model input."""
        self.inputs.append(helper.make_tensor_value_info(name, dtype, shape))
        return name

    def output(self, name: str, shape: Sequence[int | str | None] | None, dtype: int = F32) -> str:
        """A model output; a shape of None claims nothing."""
        self.outputs.append(helper.make_tensor_value_info(name, dtype, shape))
        return name

    def const(self, array: Any, name: str = "") -> str:
        """An initializer."""
        name = name or self.name("c")
        self.weights.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def ints(self, *numbers: int) -> str:
        """An initializer of int64."""
        return self.const(np.asarray(numbers, np.int64))

    def weight(self, *shape: int, name: str = "") -> str:
        """Normal weights, scaled by the number of inputs of an output."""
        fan = max(int(np.prod(shape[1:])), 1)
        return self.const((self.rng.standard_normal(shape) / np.sqrt(fan)).astype(self.dtype), name)

    def vector_data(self, shape: Sequence[int], low: float = -0.5, high: float = 0.5) -> Any:
        """Numbers spread evenly."""
        return self.rng.uniform(low, high, tuple(shape)).astype(self.dtype)

    def vector_weights(self, *shape: int) -> str:
        """Weights spread evenly, of any shape."""
        return self.const(self.vector_data(shape))

    def vector(self, size: int, name: str = "", low: float = -0.5, high: float = 0.5) -> str:
        """A bias, say."""
        return self.const(self.vector_data((size,), low, high), name)

    def op(self, kind: str, *inputs: str, out: str | Sequence[str] = "", name: str = "", **more: Any) -> Any:
        """Append a node; the name of its result, or the names of its results where `out` lists them."""
        outputs = [out or self.name("v")] if isinstance(out, str) else list(out)
        self.nodes.append(helper.make_node(kind, inputs, outputs, name=name, **more))
        return outputs[0] if isinstance(out, str) else outputs

    def conv(self, x: str, c_in: int, c_out: int, k: int = 3, *, out: str = "", **more: Any) -> str:
        """A convolution with bias that keeps the size; `rank` is the number of spatial axes."""
        group = more.get("group", 1)
        rank = more.pop("rank", 2)
        weight = self.weight(c_out, c_in // group, *[k] * rank)
        if "pads" not in more and "auto_pad" not in more:
            more["pads"] = [k // 2] * 2 * rank
        return self.op("Conv", x, weight, self.vector(c_out), out=out, kernel_shape=[k] * rank, **more)

    def dense(self, x: str, n_in: int, n_out: int, *, out: str = "") -> str:
        """A fully connected layer."""
        return self.op("Gemm", x, self.weight(n_out, n_in), self.vector(n_out), out=out, transB=1)

    def graph(self, name: str = "awkward") -> GraphProto:
        """The graph so far, as a body or as a model."""
        return helper.make_graph(
            self.nodes, name, self.inputs, self.outputs, self.weights, value_info=self.infos
        )

    def data(self, *, opset: int = 17, ir: int = 8, domains: Sequence[str] = (), **more: Any) -> bytes:
        """The bytes of the model; a domain may name its version: `ai.onnx.ml:2`."""
        others = [domain.partition(":") for domain in domains]
        opsets = [helper.make_opsetid("", opset)]
        opsets += [helper.make_opsetid(domain, int(version or 1)) for domain, _, version in others]
        model = helper.make_model(self.graph(), opset_imports=opsets, ir_version=ir, **more)
        return model.SerializeToString()
