"""Samples as other libraries hold them: arrays, batches, data loaders, data sets, readers, images."""
