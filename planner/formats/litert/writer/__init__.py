"""LiteRT: planned models as .tflite files, channels last."""
