"""What a plan says in numbers, recomputed: ranges, clips, lost bits, the price, and that it is the least."""
