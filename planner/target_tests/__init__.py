"""Layer 4: trying a target out: its tests, a model's coverage, its probe kit, probes of engines."""
