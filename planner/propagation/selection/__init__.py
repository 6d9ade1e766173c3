"""Selection: which row of the target serves each kernel, and which facts stand in the way."""
