"""Floor 4: making a model easier to quantize before it is planned. Float model in, float model out."""
