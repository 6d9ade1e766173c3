"""Passes over MLIR modules, one module each, named as upstream names them."""
