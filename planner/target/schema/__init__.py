"""The document of a target file, as pydantic models: shapes and words, not meaning."""
