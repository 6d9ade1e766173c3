"""stablehlo and stablehlo-int: planned models as StableHLO modules, quantized or in integer math.

`program` holds operations, `operations` makes one each, `builder` knows which tensor holds which value;
`movement`, `arithmetic`, `windows`, `products` and `composites` say what ONNX ops are in StableHLO;
`quantized` and `integers` are the two forms; `write` puts a model together.
"""
