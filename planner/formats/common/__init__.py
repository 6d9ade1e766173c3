"""Parts that several formats share: values and their tensors, blocks, linear ops, rounding, control flow."""
