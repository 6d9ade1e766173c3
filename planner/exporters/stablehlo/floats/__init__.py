"""What a plan leaves float, as StableHLO operations."""
