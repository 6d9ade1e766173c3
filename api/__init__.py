"""Floor 5: the planner over HTTP. Nothing here yet; no planning will ever be."""
