"""The numbers of a plan, recomputed: ranges, clips, lost bits, the price, and that it is the least."""
