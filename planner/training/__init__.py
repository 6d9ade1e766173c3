"""Training under a plan: the types, ties and grids of a plan as data, and what was learned as facts again."""
