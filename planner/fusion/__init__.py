"""Floor 2: source ops into the logical kernels that a target names."""
