"""Floor 4: trying a target out: its tests, what a model lacks on it, its kit, what an engine really runs."""
