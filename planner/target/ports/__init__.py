"""Types at a port of a row: the labels that hold a range there, and the types that it accepts."""
