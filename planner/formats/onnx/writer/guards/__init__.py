"""Guards: changes that keep an ONNX file correct and loadable under onnxruntime's optimisations."""
