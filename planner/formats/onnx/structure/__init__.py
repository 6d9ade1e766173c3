"""Structure: subgraphs, loops, branches and local functions of ONNX files."""
