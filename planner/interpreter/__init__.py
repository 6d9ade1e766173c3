"""Floor 3: plans run on stored integers, exactly, and exported files run beside the float model."""
