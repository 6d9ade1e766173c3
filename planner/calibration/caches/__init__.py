"""Caches: what leaves a model and comes back in its next run, told by names, stored in few bits."""
