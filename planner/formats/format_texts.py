"""Texts: each format in words, for its page of the reference."""

from collections.abc import Mapping
from typing import Final, NamedTuple


class FormatText(NamedTuple):
    """A format in words.

    Attributes:
      content: the parts of the file.
      arithmetic: numbers that the file computes without optimizations.
      engines: programs that run or read it.
      page: page of the documentation, below `docs/`; "" for none.
    """

    content: str
    arithmetic: str
    engines: str
    page: str = ""


FORMAT_TEXTS: Final[Mapping[str, FormatText]] = {
    "encodings": FormatText(
        "types for AIMET and Qualcomm's `--quantization_overrides`; `annotate` reads them, from "
        "version 0.4 on, float tensors too",
        "none",
        "converters",
    ),
    "encodings-0.6.1": FormatText(
        "the same in version 0.6.1, where the default is 1.0.0", "none", "converters"
    ),
    "encodings-2.0.0": FormatText("the same in version 2.0.0", "none", "converters"),
    "finn": FormatText(
        "integer weights, `MultiThreshold`, scales behind the linear ops, FINN's datatypes on tensors",
        "the row's, exactly",
        "the qonnx executor; FINN's input",
    ),
    "hls4ml": FormatText(
        "a zip: QONNX (`model.onnx`) and a precision per layer (`hls_config.json`)",
        "`exact_even`, with factors of 24 bits",
        "hls4ml",
    ),
    "litert": FormatText(
        "a LiteRT (TensorFlow Lite) file, channels last; extra `[litert]`",
        "the row's, with exceptions",
        "LiteRT's interpreter",
        "litert.md#differences-from-the-runtime",
    ),
    "mlir": FormatText(
        "the MLIR module that the model was read from, with quantized element types on its values",
        "none: types alone",
        "compilers",
        "mlir.md#your-module-back",
    ),
    "mlir-casts": FormatText(
        "the same module with `quant.qcast` and `quant.dcast` around its ops",
        "none: types alone",
        "compilers",
        "mlir.md#your-module-back",
    ),
    "onnx-integer": FormatText(
        "`MatMulInteger`, `ConvInteger`, integer sums, one requantize per kernel",
        "the row's, exactly",
        "onnxruntime, slowly unless rows quantize at run time",
        "formats.md#onnx-integer",
    ),
    "onnx-matmulnbits": FormatText(
        "weights in blocks of 2, 4 or 8 bits (`MatMulNBits`; other widths in the next of these), "
        "the last block padded; tables in blocks along their rows (`GatherBlockQuantized`); float "
        "activations; refused without any such weight",
        "float32",
        "onnxruntime",
    ),
    "onnx-qcdq": FormatText(
        "QuantizeLinear, Clip, DequantizeLinear, for ranges under 8 bits", "`float32_qdq`", "onnxruntime"
    ),
    "onnx-qdq": FormatText(
        "QuantizeLinear and DequantizeLinear in pairs, weights stored as integers, per block too "
        "(opset 21, four bits two to a byte); activations of 1 to 16 bits, in bytes or words",
        "`float32_qdq`",
        "onnxruntime",
    ),
    "onnx-qoperator": FormatText("QLinear and contrib operators", "`float32_even`", "onnxruntime"),
    "onnx-qoperator-clip": FormatText(
        "`onnx-qoperator` for activations of 1 to 8 bits, with a Clip behind each result",
        "`float32_even`",
        "onnxruntime",
    ),
    "qonnx": FormatText(
        "Quant and BipolarQuant around float ops, of any width up to 24 bits",
        "`float32_quant`",
        "the qonnx executor, `qplan run`",
        "qonnx.md",
    ),
    "stablehlo": FormatText(
        "a StableHLO module with quantized element types",
        "`float32_spec`",
        "jaxlib's interpreter",
        "programs.md#stablehlo",
    ),
    "stablehlo-int": FormatText(
        "a StableHLO module of integer operations only",
        "`exact_even`, exactly",
        "jaxlib's interpreter, XLA",
        "programs.md#integers",
    ),
    "tosa": FormatText(
        "integer operators and RESCALE, TOSA 1.0 in MLIR's generic form, channels last",
        "the row's, exactly",
        "TOSA's reference model",
        "programs.md#tosa",
    ),
}
"""By name."""
