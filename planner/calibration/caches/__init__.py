"""Caches: values that leave a model and come back in its next run, found by names, stored in few bits."""
