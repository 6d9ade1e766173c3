"""Float ops of a plan as StableHLO operations."""
