"""stablehlo and stablehlo-int: planned models as StableHLO modules, quantized or in integer math.

`function` holds operations, `operations` makes one each, `program_builder` casts values between their types;
`movement` and `floats` have the StableHLO form of each ONNX op; `quantized` and `integers` are the two forms
of kernels; `write` puts a model together.
"""
