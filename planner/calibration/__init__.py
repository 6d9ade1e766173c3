"""Floor 3: what values take on. Samples in, statistics out, and facts (ranges, annotations) onto a Graph."""
