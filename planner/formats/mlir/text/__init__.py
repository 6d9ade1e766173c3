"""Annotated models as MLIR modules: text written without xDSL, modules read with it."""
