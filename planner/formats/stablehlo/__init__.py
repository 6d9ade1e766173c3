"""StableHLO: `reader` and `writer`, and the vocabulary of operations that both use."""
