"""The job of `plan` and `quantize`: the request, its files, and the summary."""
