"""The solver: classes of ports, the labels they may take, and the labelling of least price."""
