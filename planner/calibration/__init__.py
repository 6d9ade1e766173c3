"""Floor 3: ranges of values. Samples in, statistics out, and facts (ranges, annotations) onto a Graph."""
