"""Measurements against onnxruntime's own quantizer; run by `make bench`, never imported by the product."""
