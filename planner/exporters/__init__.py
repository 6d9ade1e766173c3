"""Exporters: a float model and its plan to the bytes of a file, one module a format; see `table`.

An exporter says everything a plan says or refuses with a reason (`UnsupportedExport`).
"""
