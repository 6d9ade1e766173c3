"""Floor 2: a type for every port. Rows, ranges, classes, labels, the price, and the plan with its log."""
