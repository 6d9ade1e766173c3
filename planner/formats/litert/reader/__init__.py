"""LiteRT (TensorFlow Lite) files, read: scanned, then brought to ONNX's ops with fixed types."""
