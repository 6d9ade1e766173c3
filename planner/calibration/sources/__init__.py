"""Samples of other libraries: arrays, batches, data loaders, data sets, calibration data readers, images."""
