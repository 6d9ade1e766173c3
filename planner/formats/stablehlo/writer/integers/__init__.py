"""stablehlo-int: kernels in plain integer operations, rounded exactly."""
