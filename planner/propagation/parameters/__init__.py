"""Parameters: types that follow from labels and numbers: constants, biases, accumulators."""
