"""Layer 5: the planner over HTTP. Routes parse, call one function, and answer; the library plans."""
