"""Guards: what keeps an ONNX file right, and open, under onnxruntime's optimisations."""
