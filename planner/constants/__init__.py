"""Constants: weights and biases to stored integers and back, fast, chunk by chunk."""
