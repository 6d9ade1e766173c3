"""TOSA: planned models as TOSA 1.0 programs, MLIR in generic operation form."""
