"""ONNX in and out: files become a normalised Graph, records become files. Protobuf stays in here."""
