"""Layer 4: the command `qplan`. The only package that prints; everything heavy loads inside a verb."""
