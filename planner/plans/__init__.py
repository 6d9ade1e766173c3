"""Floor 2: the Plan and its pure readers (rescales, JSON and MLIR text, explain, the checker)."""
