"""Lowering: what the kernels of a plan compute, for the interpreter, training and writers of files alike."""
