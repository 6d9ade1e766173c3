"""What a port of a row makes of types: the labels that hold a range there, and the types that it accepts."""
