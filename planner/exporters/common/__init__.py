"""What several formats share: the frame of an export, operands of linear ops, control flow."""
